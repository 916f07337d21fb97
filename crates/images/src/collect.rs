//! Garbage collection of unused images, by the kubelet's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::store::Store;
use crate::{Error, Result};

/// When images are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Percent of the disk in use from which on images are removed. Kubelet: 85.
    pub high_threshold_percent: u8,
    /// Percent of the disk in use down to which images are removed. Kubelet: 80.
    pub low_threshold_percent: u8,
    /// Minimum age of an image before it is removed, from when it was first seen. Kubelet: two minutes.
    pub min_age: Duration,
    /// After how long without use an image is removed however much space there is; zero for never.
    pub max_age: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: Duration::ZERO,
        }
    }
}

/// The space on the disk that images are on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All of it.
    pub capacity: u64,
    /// What can still be written.
    pub available: u64,
}

impl Usage {
    /// The space on a directory's file system.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn of(path: &Path) -> Result<Self> {
        let stat =
            rustix::fs::statvfs(path).map_err(Error::os(format!("statfs {}", path.display())))?;
        Ok(Self {
            capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// Images of which unused ones can be removed.
pub trait Collectable {
    /// The ids of the images that may be removed.
    ///
    /// # Errors
    /// They are not known.
    fn ids(&self) -> Result<BTreeSet<String>>;

    /// Removes an image with all its names. Returns the bytes that are free again.
    ///
    /// # Errors
    /// It was not removed.
    fn remove(&self, id: &str) -> Result<u64>;
}

impl Collectable for Store {
    fn ids(&self) -> Result<BTreeSet<String>> {
        let images = self.list()?;
        Ok(images.iter().map(|image| image.id.to_string()).collect())
    }

    fn remove(&self, id: &str) -> Result<u64> {
        Store::remove(self, id).map(|removed| removed.freed)
    }
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The ids of the removed images.
    pub removed: Vec<String>,
    /// Bytes that are free again.
    pub freed: u64,
    /// Images that could not be removed, with the reasons. The others were removed.
    pub failures: Vec<String>,
    /// The message of an event `FreeDiskSpaceFailed` (or `InvalidDiskCapacity`) about the node.
    pub warning: Option<(&'static str, String)>,
}

/// Collects, and remembers between collections when images were used.
pub struct Collector {
    policy: Policy,
    started: Instant,
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    first: Instant,
    used: Option<Instant>,
}

impl Collector {
    /// A collector that begins to count at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for invalid thresholds, in the kubelet's words.
    pub fn new(policy: Policy, started: Instant) -> Result<Self> {
        let (high, low) = (policy.high_threshold_percent, policy.low_threshold_percent);
        for (name, percent) in [("HighThresholdPercent", high), ("LowThresholdPercent", low)] {
            if percent > 100 {
                return Err(Error::Config(format!(
                    "invalid {name} {percent}, must be in range [0-100]"
                )));
            }
        }
        if low > high {
            return Err(Error::Config(format!(
                "LowThresholdPercent {low} can not be higher than HighThresholdPercent {high}"
            )));
        }
        Ok(Self {
            policy,
            started,
            seen: BTreeMap::new(),
        })
    }

    /// Records which images exist and which of them are used, by their ids. Returns those that are not used, the longest unused
    /// first.
    fn unused(
        &mut self,
        images: &dyn Collectable,
        in_use: &BTreeSet<String>,
        now: Instant,
    ) -> Result<Vec<(String, Seen)>> {
        let ids = images.ids()?;
        self.seen.retain(|id, _| ids.contains(id));
        for id in &ids {
            let seen = self.seen.entry(id.clone()).or_insert(Seen {
                first: now,
                used: None,
            });
            if in_use.contains(id) {
                seen.used = Some(now);
            }
        }
        let seen = self.seen.iter().filter(|(id, _)| !in_use.contains(*id));
        let mut unused: Vec<_> = seen.map(|(id, seen)| (id.clone(), *seen)).collect();
        unused.sort_by_key(|(_, seen)| (seen.used, seen.first));
        Ok(unused)
    }

    /// Removes images that are not used: those without use for longer than the greatest age, and if the disk is fuller
    /// than the high threshold others, the longest unused first, until it is below the low one.
    ///
    /// # Errors
    ///
    /// What [`Collectable::ids`] and `usage` fail with.
    pub fn collect(
        &mut self,
        images: &dyn Collectable,
        in_use: &BTreeSet<String>,
        usage: &dyn Fn() -> Result<Usage>,
        now: Instant,
    ) -> Result<Collected> {
        let mut unused = self.unused(images, in_use, now)?;
        let mut done = Collected::default();
        let max_age = self.policy.max_age;
        if !max_age.is_zero() && now.saturating_duration_since(self.started) > max_age {
            // An image that was never used counts from when it was first seen.
            let (old, rest) = unused.into_iter().partition(|(_, seen)| {
                now.saturating_duration_since(seen.used.unwrap_or(seen.first)) > max_age
            });
            unused = rest;
            for (id, _) in old {
                self.free(images, &id, &mut done);
            }
        }
        let usage = usage()?;
        if usage.capacity == 0 {
            let message = "invalid capacity 0 on image filesystem".to_owned();
            done.warning = Some(("InvalidDiskCapacity", message));
            return Ok(done);
        }
        let available = u128::from(usage.available.min(usage.capacity));
        let capacity = u128::from(usage.capacity);
        let used_percent = 100 - available * 100 / capacity;
        if used_percent < u128::from(self.policy.high_threshold_percent) {
            return Ok(done);
        }
        let keep = u128::from(100 - self.policy.low_threshold_percent);
        let wanted = (capacity * keep / 100).saturating_sub(available);
        let freed = self.free_space(images, unused, wanted, now, &mut done);
        if u128::from(freed) < wanted {
            let message = format!(
                "Insufficient free disk space on the node's image filesystem ({used_percent}% of {} used). \
                 Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
                 Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
                size(usage.capacity)
            );
            done.warning = Some(("FreeDiskSpaceFailed", message));
        }
        Ok(done)
    }

    /// Removes all images that are not used, except for those that are younger than the least age.
    ///
    /// # Errors
    ///
    /// What [`Collectable::ids`] fails with.
    pub fn collect_unused(
        &mut self,
        images: &dyn Collectable,
        in_use: &BTreeSet<String>,
        now: Instant,
    ) -> Result<Collected> {
        let unused = self.unused(images, in_use, now)?;
        let mut done = Collected::default();
        self.free_space(images, unused, u128::MAX, now, &mut done);
        Ok(done)
    }

    /// Removes images in this order until as many bytes are free again as are wanted, except for those that are younger than the
    /// least age. Returns how many are.
    fn free_space(
        &mut self,
        images: &dyn Collectable,
        unused: Vec<(String, Seen)>,
        wanted: u128,
        now: Instant,
        done: &mut Collected,
    ) -> u64 {
        let before = done.freed;
        for (id, seen) in unused {
            if u128::from(done.freed - before) >= wanted {
                break;
            }
            let used_since = seen.used.is_some_and(|used| used >= now);
            if used_since || now.saturating_duration_since(seen.first) < self.policy.min_age {
                continue;
            }
            self.free(images, &id, done);
        }
        done.freed - before
    }

    fn free(&mut self, images: &dyn Collectable, id: &str, done: &mut Collected) {
        match images.remove(id) {
            Ok(freed) => {
                done.freed += freed;
                done.removed.push(id.to_owned());
                self.seen.remove(id);
            }
            Err(error) => done.failures.push(format!("{id}: {error}")),
        }
    }
}

/// A number of bytes in the kubelet's format.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests;
