//! The names that devices have in common.
//!
//! The devices of a driver nearly always have the same attributes and capacities, with other values. Their names are
//! stored once, in a layout that many devices share: a device is then a few arrays of values, and a selector that has
//! found a name in a layout once knows its position in all devices of that layout.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use crate::value::{Key, hash};

/// A name with its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyText {
    hash: u64,
    text: SmolStr,
}

impl KeyText {
    fn new(text: &str) -> Self {
        Self {
            hash: hash(text),
            text: text.into(),
        }
    }

    #[inline]
    fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash() && self.text.as_str() == key.text()
    }
}

/// What there is in one domain.
#[derive(Debug)]
struct Domain {
    key: KeyText,
    /// Range in `Names::entries`.
    entries: (u32, u32),
}

/// Names of attributes or of capacities.
#[derive(Debug)]
pub(super) struct Names {
    /// As given, in the order of the values.
    given: Box<[SmolStr]>,
    /// Sorted by text.
    domains: Box<[Domain]>,
    /// Identifier and index of the value, sorted by domain and identifier.
    entries: Box<[(KeyText, u32)]>,
}

impl Names {
    /// A name without a domain is in that of the driver. If a name is given both ways, the later one is used.
    fn new(driver: &str, given: Box<[SmolStr]>) -> Self {
        let split = |name: &'_ SmolStr| -> (SmolStr, SmolStr) {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            (domain.into(), id.into())
        };
        let mut sorted: Vec<_> = (0_u32..)
            .zip(&given)
            .map(|(i, name)| (split(name), i))
            .collect();
        sorted.sort();
        let mut domains: Vec<Domain> = Vec::new();
        let mut entries: Vec<(KeyText, u32)> = Vec::with_capacity(sorted.len());
        for ((domain, id), index) in sorted {
            let known = domains.last().is_some_and(|last| last.key.text == domain);
            if !known {
                let start = entries.len() as u32;
                domains.push(Domain {
                    key: KeyText::new(&domain),
                    entries: (start, start),
                });
            }
            if known
                && let Some(last) = entries.last_mut()
                && last.0.text == id
            {
                last.1 = index;
                continue;
            }
            entries.push((KeyText::new(&id), index));
            if let Some(domain) = domains.last_mut() {
                domain.entries.1 += 1;
            }
        }
        Self {
            given,
            domains: domains.into(),
            entries: entries.into(),
        }
    }

    /// Number of domains.
    pub(super) fn domains(&self) -> usize {
        self.domains.len()
    }

    /// The number of a domain.
    pub(super) fn domain(&self, domain: Key<'_>) -> Option<usize> {
        self.domains.iter().position(|known| known.key.is(domain))
    }

    /// Text of the domain with this number.
    pub(super) fn domain_text(&self, domain: usize) -> &str {
        &self.domains[domain].key.text
    }

    fn entries_of(&self, domain: usize) -> &[(KeyText, u32)] {
        let (start, end) = self.domains[domain].entries;
        &self.entries[start as usize..end as usize]
    }

    /// Number of names in a domain.
    pub(super) fn len(&self, domain: usize) -> usize {
        self.entries_of(domain).len()
    }

    /// The identifier at a place among those of a domain, and the index of its value.
    pub(super) fn entry(&self, domain: usize, place: usize) -> (&str, usize) {
        let (id, index) = &self.entries_of(domain)[place];
        (&id.text, *index as usize)
    }

    /// The index of the value of an identifier in a domain.
    pub(super) fn find_in(&self, domain: usize, id: Key<'_>) -> Option<usize> {
        let entries = self.entries_of(domain);
        let found = entries.iter().find(|(known, _)| known.is(id));
        found.map(|(_, index)| *index as usize)
    }

    /// The index of the value of a name.
    pub(super) fn find(&self, domain: Key<'_>, id: Key<'_>) -> Option<usize> {
        self.find_in(self.domain(domain)?, id)
    }

    /// All names as (domain, identifier, index of the value), sorted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        (0..self.domains.len()).flat_map(move |domain| {
            let text = self.domain_text(domain);
            let entries = self.entries_of(domain).iter();
            entries.map(move |(id, index)| (text, id.text.as_str(), *index as usize))
        })
    }
}

/// A driver and the names that its devices have.
#[derive(Debug)]
pub(super) struct Layout {
    /// Identifies layouts for the whole life of the process. Never 0.
    pub(super) id: u64,
    pub(super) driver: SmolStr,
    pub(super) attributes: Names,
    pub(super) capacity: Names,
}

impl Layout {
    pub(super) fn new<'n>(
        driver: &str,
        attributes: impl Iterator<Item = &'n str>,
        capacity: impl Iterator<Item = &'n str>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            driver: driver.into(),
            attributes: Names::new(driver, attributes.map(SmolStr::new).collect()),
            capacity: Names::new(driver, capacity.map(SmolStr::new).collect()),
        }
    }
}

impl Layout {
    /// The numbers of attributes and of capacities.
    pub(super) fn lens(&self) -> (usize, usize) {
        (self.attributes.given.len(), self.capacity.given.len())
    }

    /// The name of an attribute as given.
    pub(super) fn attribute_name(&self, index: usize) -> &str {
        &self.attributes.given[index]
    }
}

/// The layouts of many devices. Copies share them.
#[derive(Debug, Clone, Default)]
pub struct Layouts {
    known: Arc<Mutex<FxHashMap<u64, Vec<Arc<Layout>>>>>,
}

/// Number of layouts from which unused ones are dropped.
const SWEEP: usize = 1024;

/// The given names of values.
pub(super) type Named<'n, T> = Vec<(Cow<'n, str>, T)>;

impl Layouts {
    /// No layouts yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn of<A, C>(
        &self,
        driver: &str,
        attributes: &Named<'_, A>,
        capacity: &Named<'_, C>,
    ) -> Arc<Layout> {
        let texts = || {
            let capacity = capacity.iter().map(|(name, _)| &**name);
            (attributes.iter().map(|(name, _)| &**name), capacity)
        };
        let mut key = hash(driver) ^ attributes.len() as u64;
        let (first, second) = texts();
        for name in first.chain(second) {
            key = key.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash(name);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SWEEP && !known.contains_key(&key) {
            known.retain(|_, layouts| {
                layouts.retain(|layout| Arc::strong_count(layout) > 1);
                !layouts.is_empty()
            });
        }
        let layouts = known.entry(key).or_default();
        let same = |layout: &&Arc<Layout>| {
            let (attributes, capacity) = texts();
            layout.driver == driver
                && attributes.eq(layout.attributes.given.iter().map(SmolStr::as_str))
                && capacity.eq(layout.capacity.given.iter().map(SmolStr::as_str))
        };
        if let Some(layout) = layouts.iter().find(same) {
            return Arc::clone(layout);
        }
        let (attributes, capacity) = texts();
        let layout = Arc::new(Layout::new(driver, attributes, capacity));
        layouts.push(Arc::clone(&layout));
        layout
    }
}
