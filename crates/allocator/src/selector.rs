//! The bridge to CEL: compiled selectors and devices as they see them.

use std::sync::{Arc, Mutex, PoisonError};

use allot_apimachinery::quantity::Quantity;
use allot_cel::device::{self, Attribute, Layouts, MAX_COST, Options};
use allot_cel::semver::Version;
use k8s_openapi::api::resource::v1 as api;
use rustc_hash::FxHashMap;

use crate::boxed::exactly;
use crate::features::Features;

/// A compiled selector, or why it cannot be compiled.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) expression: String,
    compiled: Result<device::Selector, device::CompileError>,
}

/// Why a selector has no answer for a device; the text is what upstream puts behind the number of the selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The expression cannot be compiled.
    #[error("CEL compile error: {0}")]
    Compile(device::CompileError),
    /// The expression cannot be evaluated for the device.
    #[error("CEL runtime error: {0}")]
    Eval(device::EvalError),
}

impl Selector {
    /// Whether the device is selected.
    ///
    /// # Errors
    /// The expression cannot be compiled, or not be evaluated for the device.
    pub(crate) fn matches(&self, device: &Device) -> Result<bool, SelectorError> {
        match &self.compiled {
            Ok(selector) => selector.matches(&device.0).map_err(SelectorError::Eval),
            Err(error) => Err(SelectorError::Compile(error.clone())),
        }
    }

    /// The attributes that the result can depend on, as (domain, identifier); `None` = any.
    pub(crate) fn attributes(&self) -> Option<Vec<(&str, &str)>> {
        match &self.compiled {
            Ok(selector) => selector.attributes(),
            Err(_) => Some(Vec::new()),
        }
    }
}

/// Compiled selectors by expression, shared by all that prepare claims.
///
/// Expressions come from few classes and templates, so the cache keeps everything until it reaches its limit, and is
/// then cleared.
#[derive(Debug, Clone, Default)]
pub struct SelectorCache {
    known: Arc<Mutex<FxHashMap<Key, Arc<Selector>>>>,
}

/// An expression and the features that its environment depends on.
type Key = (String, bool, bool);

const CACHE_LIMIT: usize = 4096;

impl SelectorCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn compile(&self, features: &Features, expression: &str) -> Arc<Selector> {
        let key = (
            expression.to_owned(),
            features.consumable_capacity,
            features.list_type_attributes,
        );
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(selector) = known.get(&key) {
            return Arc::clone(selector);
        }
        let options = Options {
            consumable_capacity: features.consumable_capacity,
            list_type_attributes: features.list_type_attributes,
            stored: true,
            cost_limit: MAX_COST,
        };
        let selector = Arc::new(Selector {
            expression: expression.to_owned(),
            compiled: device::compile(expression, &options),
        });
        if known.len() >= CACHE_LIMIT {
            known.clear();
        }
        known.insert(key, Arc::clone(&selector));
        selector
    }
}

/// A device ready for evaluation.
#[derive(Debug)]
pub(crate) struct Device(device::Device);

impl Device {
    /// Converts the attributes of a device; `capacity` is converted already. `like` is a device with the same names of
    /// attributes and capacities.
    pub(crate) fn new(
        layouts: &Layouts,
        driver: &str,
        source: &api::Device,
        capacity: Box<[Quantity]>,
        like: Option<&Self>,
    ) -> Self {
        let attributes = source.attributes.iter().flatten();
        let allow = source.allow_multiple_allocations;
        let mut capacity = capacity;
        if let Some(Self(like)) = like {
            let len = source.attributes.as_ref().map_or(0, |a| a.len());
            let sound = attributes.clone().map_while(|(_, a)| value(a).ok());
            match like.with_values(allow, exactly(len, sound), capacity) {
                Ok(device) => return Self(device),
                Err(given) => capacity = given,
            }
        }
        let mut builder = device::Device::builder(driver).allow_multiple_allocations(allow);
        for (name, attribute) in attributes {
            builder = match value(attribute) {
                Ok(value) => builder.attribute(name, value),
                Err(Some(text)) => builder.version(name, text),
                Err(None) => builder.unsupported(name),
            };
        }
        let names = source.capacity.iter().flatten().map(|(name, _)| name);
        for (name, value) in names.zip(capacity) {
            builder = builder.capacity(name, value);
        }
        Self(builder.build_in(layouts))
    }

    /// The capacities in the order of their names.
    pub(crate) fn capacity(&self) -> &[Quantity] {
        self.0.values().1
    }
}

/// The value of an attribute; the error is an invalid version, or `None` for a type of a later release. The order of
/// the cases is upstream's, in case several types are set.
fn value(source: &api::DeviceAttribute) -> Result<Attribute, Option<&str>> {
    let version = |text: &'_ String| Version::parse(text).ok();
    if let Some(ints) = &source.ints {
        Ok(Attribute::Ints(ints.as_slice().into()))
    } else if let Some(bools) = &source.bools {
        Ok(Attribute::Bools(bools.as_slice().into()))
    } else if let Some(strings) = &source.strings {
        Ok(Attribute::Strings(strings.iter().map(Into::into).collect()))
    } else if let Some(versions) = &source.versions {
        let wrong = || versions.iter().find(|text| version(text).is_none());
        let all: Option<_> = versions.iter().map(version).collect();
        all.map(Attribute::Versions)
            .ok_or_else(|| wrong().map(String::as_str))
    } else if let Some(int) = source.int {
        Ok(Attribute::Int(int))
    } else if let Some(bool) = source.bool {
        Ok(Attribute::Bool(bool))
    } else if let Some(string) = &source.string {
        Ok(Attribute::String(string.into()))
    } else if let Some(text) = &source.version {
        version(text).map(Attribute::Version).ok_or(Some(text))
    } else {
        Err(None)
    }
}
