//! Equality of slices for an allocation.
//!
//! Most nodes of a cluster have the same devices; they differ in names and in attributes such as serial numbers that no
//! selector reads. A fingerprint is a 128-bit hash of everything else that the search uses, with separate hashes for
//! attributes: one for the values of all devices of the slice under one name. Slices with equal fingerprints have the
//! same solutions for claims that read no other attributes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;

use crate::counters::CounterSet;
use crate::device::Device;

/// 128 bits of a hash; equal means that the input was equal.
///
/// The hash is not resistant to deliberate collisions: everything in a fingerprint except for the driver's name is
/// written by that driver, which gains nothing if two of its slices are confused.
pub(crate) type Wide = [u64; 2];

/// Two lanes of multiplications, each with its own constants.
#[derive(Clone)]
struct WideHasher(u64, u64);

/// Odd constants without a pattern: fractional digits of the square roots of the first primes.
const KEYS: [u64; 6] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
];

/// Both halves of a product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl WideHasher {
    fn new() -> Self {
        Self(KEYS[0], KEYS[1])
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, KEYS[2]);
        self.1 = fold(self.1.rotate_left(29) ^ word, KEYS[3]);
    }

    fn wide(&self) -> Wide {
        [
            fold(self.0 ^ KEYS[4], KEYS[3]),
            fold(self.1 ^ KEYS[5], KEYS[2]),
        ]
    }
}

impl Hasher for WideHasher {
    /// The length comes first, so that different texts do not become equal by padding.
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    #[inline]
    fn write_u128(&mut self, value: u128) {
        self.add(value as u64);
        self.add((value >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        self.wide()[0]
    }
}

/// The fingerprint of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Fingerprint {
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

impl Fingerprint {
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
        let first = spec.devices.iter().flatten().next();
        let expected = first
            .and_then(|d| d.attributes.as_ref())
            .map_or(0, |a| a.len());
        let mut columns: Vec<(&str, WideHasher)> = Vec::with_capacity(expected);
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

/// All types, because it is not decided here which one counts if several are set.
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

#[cfg(test)]
mod tests;
