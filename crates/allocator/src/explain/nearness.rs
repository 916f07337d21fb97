//! How near a node comes to satisfying claims, without the texts: for choosing the node to explain.

use super::filter_counts::{self, Stage, StageKind};
use super::fixed_count;
use crate::allocator::Allocator;
use crate::attempt::{Attempt, Scratch, pools_of};
use crate::claims::{Alternative, Claims};
use crate::cluster::Cluster;
use crate::device::Device;
use crate::node::Node;
use crate::observer::{Observer, Place};
use crate::outcome::Policy;
use crate::pool::ViewState;

/// How near a node comes to satisfying claims; larger is nearer. Requests are checked one by one, as if each had the
/// node for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nearness {
    /// Requests for which there are enough devices.
    pub satisfied: usize,
    /// Of the other requests, how many checks come before the one that leaves too few devices, summed up. Where fewer
    /// are selected than are wanted, those of the selection are passed if they leave any.
    pub checks: usize,
    /// Of the other requests, the sum of devices that pass the check that leaves too few.
    pub devices: i64,
}

impl Allocator {
    /// How near a node comes to satisfying `claims`, and the number of device checks that this took.
    pub fn nearness(cluster: &Cluster, node: &Node, claims: &Claims) -> (Nearness, usize) {
        let (mut nearness, mut work) = (Nearness::default(), 1);
        let Ok(parts) = pools_of(cluster, node) else {
            return (nearness, work);
        };
        let (mut scratch, mut observer) = (Scratch::default(), ());
        let policy = Policy::FirstFit;
        let attempt = Attempt::new(
            cluster,
            node,
            claims,
            policy,
            parts,
            &mut scratch,
            &mut observer,
        );
        for request in claims.claims.iter().flat_map(|c| &c.requests) {
            let (first, end) = request.alternatives;
            let alternatives = (first..end).map(|id| reach(&attempt, id, &mut work));
            match alternatives.max() {
                Some((true, ..)) => nearness.satisfied += 1,
                Some((false, checks, devices)) => {
                    nearness.checks += checks;
                    nearness.devices += devices;
                }
                None => {}
            }
        }
        (nearness, work)
    }
}

/// Whether there are enough devices for an alternative; if not, the index of the check that leaves too few, and the number
/// of devices that it leaves. If class and selectors select fewer devices than requested, but some, that is the last of
/// these checks, whichever of them is the first to leave too few.
fn reach<O: Observer>(attempt: &Attempt<'_, O>, id: u32, work: &mut usize) -> (bool, usize, i64) {
    let alternative = &attempt.claims.alternatives[id as usize];
    let mut stages = filter_counts::stages(attempt, alternative);
    let mut passed: Vec<Place<'_>> = Vec::new();
    // A pool that cannot be used yet may be what the request waits for.
    let mut withheld = 0;
    for part in 0..attempt.parts.len() {
        if attempt.parts[part].view.state != ViewState::Usable {
            let info = attempt.parts[part].info();
            for slot in info.newest().1 {
                *work += 1;
                withheld += i64::from(alternative.selects(info.device(slot)));
            }
            continue;
        }
        for index in 0..attempt.parts[part].len() {
            *work += 1;
            let place = attempt.place(part as u32, index);
            let failing = filter_counts::first_failing(attempt, alternative, &place, &stages);
            let end = failing.as_ref().map_or(stages.len(), |(stage, _)| *stage);
            stages[..end].iter_mut().for_each(|stage| stage.left += 1);
            if failing.is_none() {
                passed.push(place);
            }
        }
    }
    let needs = fixed_count(alternative).unwrap_or_else(|| filter_counts::selected(&stages));
    filter_counts::constraints(attempt, alternative, &passed, &mut stages);
    let Some(short) = stages.iter().find(|stage| stage.left < needs.max(1)) else {
        return (true, 0, 0);
    };
    // By the kind of the check: nodes differ in how many checks there are.
    if short.kind > StageKind::Node {
        return (false, order(short.kind), short.left);
    }
    // There are too few devices even if none were in use. A node with one selected device is nearer than a node with any
    // number of devices that are not selected.
    let selected = filter_counts::selected(&stages) + withheld;
    if selected > 0 {
        return (false, order(StageKind::Node), selected);
    }
    let none = |stage: &&Stage| stage.kind != StageKind::Seen && stage.left == 0;
    let last = stages.iter().find(none).map_or(short.kind, |s| s.kind);
    (false, order(last), 0)
}

impl Alternative {
    /// Whether class and request select a device, as far as that can be determined.
    fn selects(&self, device: &Device) -> bool {
        let mut selectors = self.class.selectors.iter().chain(&self.selectors);
        selectors.all(|s| s.matches(&device.cel).unwrap_or_default())
    }
}

fn order(kind: StageKind) -> usize {
    kind as usize
}
