//! Positions of attributes and capacities in devices, cached for selectors.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Attribute, Device,
    layout::{Layout, Names},
};
use crate::{
    program::{self, Field, FieldPath, Fields, Program, Use},
    value::{Key, hash},
};

/// A selector as tests, bound to the fields of devices.
#[derive(Debug)]
pub(super) struct Quick {
    tests: program::Quick,
    sites: Box<[Site]>,
}

/// A field of devices.
#[derive(Debug)]
enum Site {
    Driver,
    AllowMultipleAllocations,
    Attribute(Name),
    Capacity(Name),
    /// Whether there are attributes of a domain.
    AttributeDomain(Box<str>),
    /// Whether there are capacities of a domain.
    CapacityDomain(Box<str>),
}

/// A qualified name, and its last position.
#[derive(Debug)]
struct Name {
    domain: Box<str>,
    id: Box<str>,
    hashes: (u64, u64),
    /// The layout in the upper bits, in the lower the place there or [`ABSENT`].
    last: AtomicU64,
}

const PLACE_BITS: u32 = 16;
/// The place of a name that a layout does not have.
const ABSENT: u64 = (1 << PLACE_BITS) - 1;

impl Name {
    fn new(domain: &str, id: &str) -> Self {
        Self {
            domain: domain.into(),
            id: id.into(),
            hashes: (hash(domain), hash(id)),
            last: AtomicU64::new(0),
        }
    }

    /// The index of the value in devices of this layout.
    #[inline]
    fn find(&self, layout: &Layout, names: &Names) -> Option<usize> {
        // Any value that a thread sees here is right for its layout, so no order is needed.
        let last = self.last.load(Ordering::Relaxed);
        if last >> PLACE_BITS != layout.id {
            return self.search(layout, names);
        }
        let place = last & ABSENT;
        (place != ABSENT).then_some(place as usize)
    }

    #[inline(never)]
    fn search(&self, layout: &Layout, names: &Names) -> Option<usize> {
        let found = names.find(
            Key::hashed(self.hashes.0, &self.domain),
            Key::hashed(self.hashes.1, &self.id),
        );
        let place = found.map_or(ABSENT, |place| place as u64);
        if (place < ABSENT || found.is_none()) && layout.id >> (64 - PLACE_BITS) == 0 {
            self.last
                .store(layout.id << PLACE_BITS | place, Ordering::Relaxed);
        }
        found
    }
}

impl Site {
    /// The field that a path leads to.
    fn new(path: &FieldPath) -> Option<Self> {
        let keys: Vec<&str> = path.keys.iter().map(|key| &**key).collect();
        Some(match (path.usage, &keys[..]) {
            (Use::Value, ["driver"]) => Self::Driver,
            (Use::Value, ["allowMultipleAllocations"]) => Self::AllowMultipleAllocations,
            (_, ["attributes", domain, id]) => Self::Attribute(Name::new(domain, id)),
            (_, ["capacity", domain, id]) => Self::Capacity(Name::new(domain, id)),
            (Use::In, ["attributes", domain]) => Self::AttributeDomain((*domain).into()),
            (Use::In, ["capacity", domain]) => Self::CapacityDomain((*domain).into()),
            _ => return None,
        })
    }
}

impl Quick {
    /// The tests of a selector, if it consists of such.
    pub(super) fn new(program: &Program) -> Option<Self> {
        let tests = program.quick()?;
        let sites = tests.fields.iter().map(Site::new).collect::<Option<_>>()?;
        Some(Self { tests, sites })
    }

    /// The attributes that the tests read, as (domain, identifier); `None` when they also read whole domains.
    pub(super) fn attributes(&self) -> Option<Vec<(&str, &str)>> {
        let mut names = Vec::new();
        for site in &self.sites {
            match site {
                Site::Attribute(name) => names.push((&*name.domain, &*name.id)),
                Site::AttributeDomain(_) => return None,
                Site::Driver
                | Site::AllowMultipleAllocations
                | Site::Capacity(_)
                | Site::CapacityDomain(_) => {}
            }
        }
        Some(names)
    }

    /// Result and cost; `None` when the steps must be evaluated.
    #[inline]
    pub(super) fn evaluate(&self, device: &Device, limit: u64) -> Option<(bool, u64)> {
        let sites = &self.sites;
        self.tests.evaluate(&Bound { sites, device }, limit)
    }
}

struct Bound<'a> {
    sites: &'a [Site],
    device: &'a Device,
}

impl Fields for Bound<'_> {
    #[inline]
    fn get(&self, field: usize) -> Option<Field<'_>> {
        let device = self.device;
        let layout = &*device.layout;
        Some(match &self.sites[field] {
            Site::Driver => Field::Text(&layout.driver),
            Site::AllowMultipleAllocations => Field::Bool(device.allow_multiple_allocations()),
            Site::Attribute(name) => {
                match &device.attributes[name.find(layout, &layout.attributes)?] {
                    Attribute::Bool(value) => Field::Bool(*value),
                    Attribute::Int(value) => Field::Int(*value),
                    Attribute::String(text) => Field::Text(text),
                    Attribute::Version(version) => Field::Version(version),
                    Attribute::Bools(_)
                    | Attribute::Ints(_)
                    | Attribute::Strings(_)
                    | Attribute::Versions(_) => return None,
                }
            }
            Site::Capacity(name) => {
                Field::Quantity(&device.capacity[name.find(layout, &layout.capacity)?])
            }
            Site::AttributeDomain(_) | Site::CapacityDomain(_) => return None,
        })
    }

    fn has(&self, field: usize) -> bool {
        let layout = &*self.device.layout;
        match &self.sites[field] {
            Site::Attribute(name) => name.find(layout, &layout.attributes).is_some(),
            Site::Capacity(name) => name.find(layout, &layout.capacity).is_some(),
            Site::AttributeDomain(domain) => layout.attributes.domain(Key::new(domain)).is_some(),
            Site::CapacityDomain(domain) => layout.capacity.domain(Key::new(domain)).is_some(),
            Site::Driver | Site::AllowMultipleAllocations => true,
        }
    }
}
