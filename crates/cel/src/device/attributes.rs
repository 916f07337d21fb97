//! Devices in the form in which selectors are evaluated on them.

use std::{borrow::Cow, sync::Arc};

use allot_apimachinery::Quantity;
use serde_json::Value as Json;
use smol_str::SmolStr;

use super::layout::{Layout, Layouts, Named};
use crate::{
    semver::{ParseError, Version},
    value::Key,
};

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A bool.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(SmolStr),
    /// A semantic version.
    Version(Version),
    /// Several bools.
    Bools(Box<[bool]>),
    /// Several integers.
    Ints(Box<[i64]>),
    /// Several strings.
    Strings(Box<[SmolStr]>),
    /// Several semantic versions.
    Versions(Box<[Version]>),
}

impl Attribute {
    /// Whether it is one of the list types, which need the feature `DRAListTypeAttributes`.
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Bools(_) | Self::Ints(_) | Self::Strings(_) | Self::Versions(_)
        )
    }
}

/// A device, built once and evaluated often. Names without a domain are in the domain of the driver; if a name is given
/// both with and without that domain, the later one is used.
#[derive(Debug, Clone)]
pub struct Device {
    pub(super) layout: Arc<Layout>,
    allow_multiple_allocations: bool,
    pub(super) attributes: Box<[Attribute]>,
    pub(super) capacity: Box<[Quantity]>,
    problems: Problems,
}

/// Attributes that cannot be evaluated, with the error; `None` = a list, an error only if lists are off.
type Problems = Box<[(Box<str>, Option<String>)]>;

/// Collects the attributes and capacities of a [`Device`]; names may be borrowed.
#[derive(Debug, Clone)]
pub struct Builder<'n> {
    driver: &'n str,
    allow_multiple_allocations: bool,
    attributes: Named<'n, Attribute>,
    capacity: Named<'n, Quantity>,
    problems: Vec<(Box<str>, Option<String>)>,
}

impl<'n> Builder<'n> {
    /// Adds an attribute, `name` or `domain/name`.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<Cow<'n, str>>, value: Attribute) -> Self {
        let name = name.into();
        if value.is_list() {
            self.problems.push(((*name).into(), None));
        }
        self.attributes.push((name, value));
        self
    }

    /// Adds an attribute of type version from its text. A malformed one makes every evaluation on the device fail.
    #[must_use]
    pub fn version(self, name: impl Into<Cow<'n, str>>, text: &str) -> Self {
        match Version::parse(text) {
            Ok(version) => self.attribute(name, Attribute::Version(version)),
            Err(error) => self.malformed_version(&name.into(), &error),
        }
    }

    /// Adds an attribute with a list of versions from their texts; malformed ones are treated as in [`Self::version`].
    #[must_use]
    pub fn versions<'a>(
        self,
        name: impl Into<Cow<'n, str>>,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match texts
            .into_iter()
            .map(Version::parse)
            .collect::<Result<_, _>>()
        {
            Ok(versions) => self.attribute(name, Attribute::Versions(versions)),
            Err(error) => self.malformed_version(&name.into(), &error),
        }
    }

    fn malformed_version(self, name: &str, error: &ParseError) -> Self {
        self.problem(name, format!("parse semantic version: {error}"))
    }

    /// Adds an attribute of an unknown type. It makes every evaluation on the device fail.
    #[must_use]
    pub fn unsupported(self, name: &str) -> Self {
        self.problem(name, "unsupported attribute value".to_owned())
    }

    fn problem(mut self, name: &str, problem: String) -> Self {
        self.problems.push((name.into(), Some(problem)));
        self
    }

    /// Adds a capacity, `name` or `domain/name`.
    #[must_use]
    pub fn capacity(mut self, name: impl Into<Cow<'n, str>>, value: Quantity) -> Self {
        self.capacity.push((name.into(), value));
        self
    }

    /// Sets whether the device may be allocated several times (unset means no).
    #[must_use]
    pub fn allow_multiple_allocations(mut self, allow: Option<bool>) -> Self {
        self.allow_multiple_allocations = allow.unwrap_or(false);
        self
    }

    /// The device with the attributes and capacities that were added, and a layout of its own.
    pub fn build(self) -> Device {
        let layout = Layout::new(
            self.driver,
            self.attributes.iter().map(|(name, _)| &**name),
            self.capacity.iter().map(|(name, _)| &**name),
        );
        self.with(Arc::new(layout))
    }

    /// The device, with names shared among all devices that are built with these layouts: they need less memory, and
    /// selectors find their attributes faster.
    pub fn build_in(self, layouts: &Layouts) -> Device {
        let layout = layouts.of(self.driver, &self.attributes, &self.capacity);
        self.with(layout)
    }

    fn with(mut self, layout: Arc<Layout>) -> Device {
        self.problems.sort();
        Device {
            layout,
            allow_multiple_allocations: self.allow_multiple_allocations,
            attributes: self.attributes.into_iter().map(|(_, v)| v).collect(),
            capacity: self.capacity.into_iter().map(|(_, v)| v).collect(),
            problems: self.problems.into(),
        }
    }
}

impl Device {
    /// Starts a device of `driver`.
    pub fn builder(driver: &str) -> Builder<'_> {
        Builder {
            driver,
            allow_multiple_allocations: false,
            attributes: Vec::new(),
            capacity: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// A device with the same names as this one, and with these values in the order of the names. For the many devices
    /// that differ only in values.
    ///
    /// # Errors
    /// The capacities as they were given, when the values are not as many as the names.
    pub fn with_values(
        &self,
        allow_multiple_allocations: Option<bool>,
        attributes: Box<[Attribute]>,
        capacity: Box<[Quantity]>,
    ) -> Result<Self, Box<[Quantity]>> {
        if self.layout.lens() != (attributes.len(), capacity.len()) {
            return Err(capacity);
        }
        let lists = attributes.iter().enumerate().filter(|(_, v)| v.is_list());
        let mut problems: Vec<_> = lists
            .map(|(index, _)| (self.layout.attribute_name(index).into(), None))
            .collect();
        problems.sort();
        Ok(Self {
            layout: Arc::clone(&self.layout),
            allow_multiple_allocations: allow_multiple_allocations.unwrap_or(false),
            attributes,
            capacity,
            problems: problems.into(),
        })
    }

    /// The values of all attributes and capacities in the order in which they were given.
    pub fn values(&self) -> (&[Attribute], &[Quantity]) {
        (&self.attributes, &self.capacity)
    }

    /// Reads a device as a `resource.k8s.io/v1` ResourceSlice holds it. Never fails: what cannot be read is reported by
    /// the evaluation, as upstream does.
    pub fn from_json(driver: &str, device: &Json) -> Self {
        let mut builder = Self::builder(driver)
            .allow_multiple_allocations(device["allowMultipleAllocations"].as_bool());
        for (name, attribute) in device["attributes"].as_object().into_iter().flatten() {
            builder = match read_attribute(attribute) {
                Ok(Some(value)) => builder.attribute(name, value),
                Ok(None) => builder.unsupported(name),
                Err(error) => builder.malformed_version(name, &error),
            };
        }
        for (name, capacity) in device["capacity"].as_object().into_iter().flatten() {
            builder = match Quantity::from_json(&capacity["value"]) {
                Ok(value) => builder.capacity(name, value),
                Err(error) => builder.problem(name, error.to_string()),
            };
        }
        builder.build()
    }

    /// Name of the driver.
    pub fn driver(&self) -> &str {
        &self.layout.driver
    }

    /// Whether the device may be allocated several times.
    pub fn allow_multiple_allocations(&self) -> bool {
        self.allow_multiple_allocations
    }

    /// The attribute `id` of `domain`.
    pub fn attribute(&self, domain: &str, id: &str) -> Option<&Attribute> {
        let found = self.layout.attributes.find(Key::new(domain), Key::new(id));
        found.map(|index| &self.attributes[index])
    }

    /// The attribute with this qualified name (`domain/id`, or `id` in the domain of the driver).
    pub fn attribute_by_name(&self, name: &str) -> Option<&Attribute> {
        let (domain, id) = name.split_once('/').unwrap_or((self.driver(), name));
        self.attribute(domain, id)
    }

    /// The capacity `id` of `domain`.
    pub fn capacity(&self, domain: &str, id: &str) -> Option<&Quantity> {
        let found = self.layout.capacity.find(Key::new(domain), Key::new(id));
        found.map(|index| &self.capacity[index])
    }

    /// All attributes as (domain, id, value), sorted.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str, &Attribute)> {
        let names = self.layout.attributes.iter();
        names.map(|(domain, id, index)| (domain, id, &self.attributes[index]))
    }

    /// All capacities as (domain, id, value), sorted.
    pub fn capacities(&self) -> impl Iterator<Item = (&str, &str, &Quantity)> {
        let names = self.layout.capacity.iter();
        names.map(|(domain, id, index)| (domain, id, &self.capacity[index]))
    }

    /// Whether every expression can be evaluated on this device.
    #[inline]
    pub(super) fn is_sound(&self, lists: bool) -> bool {
        self.problems.is_empty() || self.problem(lists).is_none()
    }

    /// Why no expression can be evaluated on this device.
    #[cold]
    pub(crate) fn problem(&self, lists: bool) -> Option<String> {
        self.problems
            .iter()
            .find_map(|(name, problem)| match problem {
                Some(problem) => Some(format!("attribute {name}: {problem}")),
                None if lists => None,
                None => Some(format!("attribute {name}: unsupported attribute value")),
            })
    }
}

/// The value of an attribute; `None` for a type that is unknown here. If several types are set, the order is upstream's.
///
/// # Errors
/// A version is malformed.
fn read_attribute(attribute: &Json) -> Result<Option<Attribute>, ParseError> {
    fn all<T>(list: &Json, read: impl Fn(&Json) -> Option<T>) -> Option<Box<[T]>> {
        list.as_array()?.iter().map(read).collect()
    }
    if let Some(ints) = all(&attribute["ints"], Json::as_i64) {
        return Ok(Some(Attribute::Ints(ints)));
    }
    if let Some(bools) = all(&attribute["bools"], Json::as_bool) {
        return Ok(Some(Attribute::Bools(bools)));
    }
    if let Some(strings) = all(&attribute["strings"], |text| {
        text.as_str().map(SmolStr::new)
    }) {
        return Ok(Some(Attribute::Strings(strings)));
    }
    if let Some(texts) = all(&attribute["versions"], |text| {
        text.as_str().map(str::to_owned)
    }) {
        let versions = texts
            .iter()
            .map(|text| Version::parse(text))
            .collect::<Result<_, _>>()?;
        return Ok(Some(Attribute::Versions(versions)));
    }
    if let Some(int) = attribute["int"].as_i64() {
        return Ok(Some(Attribute::Int(int)));
    }
    if let Some(bool) = attribute["bool"].as_bool() {
        return Ok(Some(Attribute::Bool(bool)));
    }
    if let Some(text) = attribute["string"].as_str() {
        return Ok(Some(Attribute::String(text.into())));
    }
    attribute["version"]
        .as_str()
        .map(|text| Version::parse(text).map(Attribute::Version))
        .transpose()
}
