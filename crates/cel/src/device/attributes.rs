//! Devices in the form in which selectors are evaluated on them.

use allot_apimachinery::Quantity;
use serde_json::Value as Json;
use smol_str::SmolStr;

use crate::{semver::Version, value::Key};

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

/// A device, built once and evaluated often. Names without a domain are in the domain of the driver; where a name is
/// given both with and without that domain, the later one wins.
#[derive(Debug, Clone)]
pub struct Device {
    driver: SmolStr,
    allow_multiple_allocations: bool,
    attributes: Table<Attribute>,
    capacity: Table<Quantity>,
    /// Attributes that cannot be evaluated, with what is wrong; `None` = a list, wrong only where lists are off.
    problems: Box<[(Box<str>, Option<String>)]>,
}

/// Collects what makes up a [`Device`].
#[derive(Debug, Clone)]
pub struct Builder {
    device: Device,
    attributes: Vec<(Name, Attribute)>,
    capacity: Vec<(Name, Quantity)>,
    problems: Vec<(Box<str>, Option<String>)>,
}

impl Builder {
    /// Adds an attribute, `name` or `domain/name`.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: Attribute) -> Self {
        if value.is_list() {
            self.problems.push((name.into(), None));
        }
        self.attributes
            .push((Name::new(name, &self.device.driver), value));
        self
    }

    /// Adds an attribute of type version from its text. A malformed one makes every evaluation on the device fail.
    #[must_use]
    pub fn version(self, name: &str, text: &str) -> Self {
        match Version::parse(text) {
            Ok(version) => self.attribute(name, Attribute::Version(version)),
            Err(error) => self.problem(name, format!("parse semantic version: {error}")),
        }
    }

    /// Adds an attribute with a list of versions from their texts; malformed ones are treated as in [`Self::version`].
    #[must_use]
    pub fn versions<'a>(self, name: &str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        match texts
            .into_iter()
            .map(Version::parse)
            .collect::<Result<_, _>>()
        {
            Ok(versions) => self.attribute(name, Attribute::Versions(versions)),
            Err(error) => self.problem(name, format!("parse semantic version: {error}")),
        }
    }

    /// Adds an attribute of a type that this version does not know. It makes every evaluation on the device fail.
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
    pub fn capacity(mut self, name: &str, value: Quantity) -> Self {
        self.capacity
            .push((Name::new(name, &self.device.driver), value));
        self
    }

    /// Sets whether the device may be allocated several times (unset means no).
    #[must_use]
    pub fn allow_multiple_allocations(mut self, allow: Option<bool>) -> Self {
        self.device.allow_multiple_allocations = allow.unwrap_or(false);
        self
    }

    /// The device.
    pub fn build(mut self) -> Device {
        self.problems.sort();
        Device {
            attributes: Table::new(self.attributes),
            capacity: Table::new(self.capacity),
            problems: self.problems.into(),
            ..self.device
        }
    }
}

impl Device {
    /// Starts a device of `driver`.
    pub fn builder(driver: &str) -> Builder {
        let device = Self {
            driver: driver.into(),
            allow_multiple_allocations: false,
            attributes: Table::default(),
            capacity: Table::default(),
            problems: Box::default(),
        };
        Builder {
            device,
            attributes: Vec::new(),
            capacity: Vec::new(),
            problems: Vec::new(),
        }
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
                Err(problem) => builder.problem(name, problem),
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
        &self.driver
    }

    /// Whether the device may be allocated several times.
    pub fn allow_multiple_allocations(&self) -> bool {
        self.allow_multiple_allocations
    }

    /// The attribute `id` of `domain`.
    pub fn attribute(&self, domain: &str, id: &str) -> Option<&Attribute> {
        self.attributes.get(Key::new(domain), Key::new(id))
    }

    /// The attribute with this qualified name (`domain/id`, or `id` in the domain of the driver).
    pub fn attribute_by_name(&self, name: &str) -> Option<&Attribute> {
        let (domain, id) = name.split_once('/').unwrap_or((&self.driver, name));
        self.attribute(domain, id)
    }

    /// The capacity `id` of `domain`.
    pub fn capacity(&self, domain: &str, id: &str) -> Option<&Quantity> {
        self.capacity.get(Key::new(domain), Key::new(id))
    }

    /// All attributes as (domain, id, value), sorted.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str, &Attribute)> {
        self.attributes.iter()
    }

    /// All capacities as (domain, id, value), sorted.
    pub fn capacities(&self) -> impl Iterator<Item = (&str, &str, &Quantity)> {
        self.capacity.iter()
    }

    /// Why no expression can be evaluated on this device.
    pub(crate) fn problem(&self, lists: bool) -> Option<String> {
        if self.problems.is_empty() {
            return None;
        }
        self.problems
            .iter()
            .find_map(|(name, problem)| match problem {
                Some(problem) => Some(format!("attribute {name}: {problem}")),
                None if lists => None,
                None => Some(format!("attribute {name}: unsupported attribute value")),
            })
    }

    pub(crate) fn attribute_table(&self) -> &Table<Attribute> {
        &self.attributes
    }

    pub(crate) fn capacity_table(&self) -> &Table<Quantity> {
        &self.capacity
    }
}

fn read_attribute(attribute: &Json) -> Result<Option<Attribute>, String> {
    let version = |text: &str| {
        Version::parse(text).map_err(|error| format!("parse semantic version: {error}"))
    };
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
            .map(|text| version(text))
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
        .map(|text| version(text).map(Attribute::Version))
        .transpose()
}

/// A name with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyText {
    hash: u64,
    text: SmolStr,
}

impl KeyText {
    fn new(text: &str) -> Self {
        Self {
            hash: Key::new(text).hash(),
            text: text.into(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    #[inline]
    fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash() && self.text.as_str() == key.text()
    }
}

#[derive(Debug, Clone)]
struct Name {
    domain: KeyText,
    id: KeyText,
}

impl Name {
    fn new(name: &str, driver: &str) -> Self {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        Self {
            domain: KeyText::new(domain),
            id: KeyText::new(id),
        }
    }
}

/// Entries of one domain.
#[derive(Debug, Clone)]
pub(crate) struct Domain<T> {
    key: KeyText,
    entries: Box<[(KeyText, T)]>,
}

/// A map of maps, few entries each, sorted by text.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    domains: Box<[Domain<T>]>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            domains: Box::default(),
        }
    }
}

impl<T> Table<T> {
    fn new(mut entries: Vec<(Name, T)>) -> Self {
        // The sort is stable and only the last of equal names is kept.
        entries.sort_by(|(a, _), (b, _)| {
            (a.domain.as_str(), a.id.as_str()).cmp(&(b.domain.as_str(), b.id.as_str()))
        });
        let mut domains: Vec<(KeyText, Vec<(KeyText, T)>)> = Vec::new();
        for (name, value) in entries {
            if domains.last().is_none_or(|(key, _)| *key != name.domain) {
                domains.push((name.domain, Vec::new()));
            }
            if let Some((_, entries)) = domains.last_mut() {
                if entries.last().is_some_and(|(key, _)| *key == name.id) {
                    entries.pop();
                }
                entries.push((name.id, value));
            }
        }
        let domain = |(key, entries): (KeyText, Vec<(KeyText, T)>)| Domain {
            key,
            entries: entries.into(),
        };
        Self {
            domains: domains.into_iter().map(domain).collect(),
        }
    }

    pub(crate) fn domain(&self, key: Key<'_>) -> Option<&Domain<T>> {
        self.domains.iter().find(|domain| domain.key.is(key))
    }

    pub(crate) fn domains(&self) -> &[Domain<T>] {
        &self.domains
    }

    fn get(&self, domain: Key<'_>, id: Key<'_>) -> Option<&T> {
        self.domain(domain)?.get(id)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.domains.iter().flat_map(|domain| {
            domain
                .entries
                .iter()
                .map(|(id, value)| (domain.name(), id.as_str(), value))
        })
    }
}

impl<T> Domain<T> {
    pub(crate) fn name(&self) -> &str {
        self.key.as_str()
    }

    pub(crate) fn get(&self, id: Key<'_>) -> Option<&T> {
        self.entries
            .iter()
            .find(|(key, _)| key.is(id))
            .map(|(_, value)| value)
    }

    pub(crate) fn entries(&self) -> &[(KeyText, T)] {
        &self.entries
    }
}
