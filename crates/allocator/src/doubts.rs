//! Whether selectors can fail on devices of the cluster, wherever they are.
//!
//! In Kubernetes a selector that fails on one node ends the attempt to place the pod, although others may fit: something
//! is wrong with the claim, and nobody would find out. A scheduler that allocates only where it wants the pod to go has to
//! know whether it must look at the other nodes, too. That is rare, so the answer is kept per slice and costs nothing as
//! long as slices do not change.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smol_str::SmolStr;

use crate::claims::{Alternative, Claims};
use crate::cluster::Cluster;
use crate::pool::Member;
use crate::selector::Selector;

/// Most lists of selectors that are remembered.
const LIMIT: usize = 256;

/// What is known about selectors and slices. For one cluster and its snapshots.
#[derive(Debug, Default)]
pub struct Doubts {
    known: FxHashMap<Vec<usize>, Known>,
}

/// What is known about a list of selectors.
#[derive(Debug)]
struct Known {
    /// Kept, so that no other selector can be where one of these is.
    selectors: Vec<Arc<Selector>>,
    revision: u64,
    fails: bool,
    slices: FxHashMap<SmolStr, (Arc<Member>, bool)>,
}

impl Doubts {
    /// Whether an attempt for these claims may end with [`ErrorKind::Fatal`](crate::ErrorKind::Fatal) on some node although it finds devices on
    /// another one.
    pub fn may_fail(&mut self, cluster: &Cluster, claims: &Claims) -> bool {
        // How many devices "all" means, and whether they are known at all, depends on the node.
        if claims.any_all {
            return true;
        }
        if claims.attributes.as_ref().is_some_and(|a| a.is_empty()) {
            return false;
        }
        let mut alternatives = claims.alternatives.iter();
        alternatives.any(|a| self.fails(cluster, a))
    }

    fn fails(&mut self, cluster: &Cluster, alternative: &Alternative) -> bool {
        let selectors = || {
            alternative
                .class
                .selectors
                .iter()
                .chain(&alternative.selectors)
        };
        let key: Vec<usize> = selectors().map(|s| Arc::as_ptr(s).addr()).collect();
        if self.known.len() >= LIMIT && !self.known.contains_key(&key) {
            self.known.clear();
        }
        let known = self.known.entry(key).or_insert_with(|| Known {
            selectors: selectors().cloned().collect(),
            revision: u64::MAX,
            fails: false,
            slices: FxHashMap::default(),
        });
        known.update(cluster);
        known.fails
    }
}

impl Known {
    fn update(&mut self, cluster: &Cluster) {
        if self.revision == cluster.revision() {
            return;
        }
        self.revision = cluster.revision();
        let old = std::mem::take(&mut self.slices);
        for (key, member) in cluster.slices() {
            let fails = match old.get(key) {
                Some((same, fails)) if Arc::ptr_eq(same, member) => *fails,
                _ => self.fails_on(member),
            };
            self.slices.insert(key.clone(), (Arc::clone(member), fails));
        }
        self.fails = self.slices.values().any(|(_, fails)| *fails);
    }

    /// Whether one of the selectors fails on a device that those before it select.
    fn fails_on(&self, member: &Member) -> bool {
        let mut devices = member.slice.devices.iter();
        devices.any(|device| {
            for selector in &self.selectors {
                match selector.matches(&device.cel) {
                    Ok(true) => {}
                    Ok(false) => return false,
                    Err(_) => return true,
                }
            }
            false
        })
    }
}
