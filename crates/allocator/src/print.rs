//! What makes slices equal for an allocation.
//!
//! Most nodes of a cluster have the same devices; what differs are the names and attributes such as serial numbers that
//! no selector reads. A print is 128 bits of a hash of everything else that the search looks at, with the attributes
//! apart, one hash for the values that all devices of the slice have under one name. Slices with equal prints have the
//! same solutions for claims that read no other attributes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;

use crate::device::Device;
use crate::slice::CounterSet;

/// 128 bits of a hash; equal means that the input was equal.
pub(crate) type Wide = [u64; 2];

/// Two hashes of the same input.
#[derive(Clone)]
struct WideHasher(DefaultHasher, DefaultHasher);

impl WideHasher {
    fn new() -> Self {
        let mut second = DefaultHasher::new();
        second.write_u8(1);
        Self(DefaultHasher::new(), second)
    }

    fn wide(&self) -> Wide {
        [self.0.finish(), self.1.finish()]
    }
}

impl Hasher for WideHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// The print of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Print {
    /// Of everything but attributes.
    pub(crate) rest: Wide,
    /// Of all attributes.
    pub(crate) attributes: Wide,
    /// Of each attribute: its name and its values.
    columns: Arc<[(Wide, Wide)]>,
}

/// The hash of a qualified name.
pub(crate) fn name(domain: &str, id: &str) -> Wide {
    let mut hasher = WideHasher::new();
    (domain, id).hash(&mut hasher);
    hasher.wide()
}

impl Print {
    pub(crate) fn new(
        spec: &api::ResourceSliceSpec,
        devices: &[Device],
        counters: &[CounterSet],
    ) -> Self {
        let mut rest = WideHasher::new();
        (&spec.driver, spec.devices.is_some(), counters).hash(&mut rest);
        devices.len().hash(&mut rest);
        for device in devices {
            device.hash_rest(&mut rest);
        }
        let mut columns: Vec<(&str, WideHasher)> = Vec::new();
        for (number, device) in spec.devices.iter().flatten().enumerate() {
            for (place, (name, attribute)) in device.attributes.iter().flatten().enumerate() {
                // Nearly all devices of a slice have the same names.
                let known = |column: Option<&(&str, WideHasher)>| {
                    column.is_some_and(|(known, _)| known == name)
                };
                let place = if known(columns.get(place)) {
                    place
                } else {
                    let found = columns.iter().position(|column| known(Some(column)));
                    found.unwrap_or_else(|| {
                        columns.push((name, WideHasher::new()));
                        columns.len() - 1
                    })
                };
                let hasher = &mut columns[place].1;
                number.hash(hasher);
                hash_attribute(attribute, hasher);
            }
        }
        let mut columns: Vec<(Wide, Wide)> = columns
            .into_iter()
            .map(|(given, values)| match given.split_once('/') {
                Some((domain, id)) => (name(domain, id), values.wide()),
                None => (name(&spec.driver, given), values.wide()),
            })
            .collect();
        columns.sort_unstable();
        let mut all = WideHasher::new();
        columns.hash(&mut all);
        Self {
            rest: rest.wide(),
            attributes: all.wide(),
            columns: columns.into(),
        }
    }

    /// The hashes of the values of the attribute with this name. A name can be given with and without the domain of the
    /// driver, so there may be two.
    pub(crate) fn values(&self, name: Wide) -> impl Iterator<Item = Wide> {
        let columns = self.columns.iter().filter(move |column| column.0 == name);
        columns.map(|column| column.1)
    }
}

/// All types, because nothing says here which one counts if there are several.
fn hash_attribute(attribute: &api::DeviceAttribute, hasher: &mut impl Hasher) {
    let api::DeviceAttribute {
        bool,
        bools,
        int,
        ints,
        string,
        strings,
        version,
        versions,
    } = attribute;
    if let (Some(text), None, None, None) = (string, int, bool, version)
        && bools.is_none()
        && ints.is_none()
        && strings.is_none()
        && versions.is_none()
    {
        (0_u8, text).hash(hasher);
        return;
    }
    (1_u8, bool, int, string, version).hash(hasher);
    (bools, ints, strings, versions).hash(hasher);
}
