//! Whether a driver that is drained still runs: it would publish its devices again, without the taints.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use tokio::time::Instant;

use crate::controller::meta;
use crate::controller::whole::Whole;
use crate::liveness::DRIVERS;

/// How a drain waits until the driver is stopped.
#[derive(Debug, Clone)]
pub struct Hold {
    /// Nodes may be watched: those of allot report the drivers that run on them.
    pub sees_nodes: bool,
    /// If nodes do not report, a driver that publishes nothing for this long after its slices were removed counts as
    /// stopped.
    pub quiet: Duration,
}

/// What to do next, when no pod uses the devices.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Remove the slices.
    Remove,
    /// The driver runs, on these nodes if known.
    WaitForDriver(Vec<String>),
    /// The driver may publish again until then.
    WaitFor(Instant),
    /// This many slices were removed, and the driver has stopped.
    Done(usize),
}

/// What was observed of the driver so far.
#[derive(Debug)]
pub(super) struct Held {
    hold: Option<Hold>,
    removed: usize,
    quiet_until: Option<Instant>,
    /// It published again after its slices were removed.
    published_again: bool,
    /// The nodes that its slices were on.
    places: BTreeSet<String>,
}

impl Held {
    pub(super) fn new(hold: Option<Hold>) -> Self {
        Self {
            hold,
            removed: 0,
            quiet_until: None,
            published_again: false,
            places: BTreeSet::new(),
        }
    }

    /// So many slices were removed now.
    pub(super) fn removed(&mut self, slices: usize) {
        self.removed += slices;
        let quiet = self.hold.as_ref().map(|hold| hold.quiet);
        self.quiet_until = Some(Instant::now() + quiet.unwrap_or_default());
    }

    /// What to do about the slices that there are.
    pub(super) fn next(
        &mut self,
        driver: &str,
        slices: &[Arc<Whole<ResourceSlice>>],
        nodes: &[Arc<Node>],
    ) -> Next {
        let places = slices.iter().filter_map(|s| s.spec.node_name.clone());
        self.places.extend(places);
        if self.hold.is_none() {
            return match self.quiet_until {
                None if !slices.is_empty() => Next::Remove,
                _ => Next::Done(self.removed),
            };
        }
        match self.running(driver, nodes) {
            Some(on) if on.is_empty() && slices.is_empty() => Next::Done(self.removed),
            Some(on) if on.is_empty() => Next::Remove,
            Some(on) => Next::WaitForDriver(on),
            None if slices.is_empty() => match self.quiet_until {
                Some(until) if until > Instant::now() => Next::WaitFor(until),
                _ => Next::Done(self.removed),
            },
            None if self.quiet_until.is_some() || self.published_again => {
                self.published_again = true;
                // Its slices are removed when it is stopped: by the kubelet.
                self.removed(0);
                Next::WaitForDriver(Vec::new())
            }
            None => Next::Remove,
        }
    }

    /// The nodes on which it runs, if all its nodes report that.
    fn running(&self, driver: &str, nodes: &[Arc<Node>]) -> Option<Vec<String>> {
        if self.places.is_empty() {
            return None;
        }
        let mut on = Vec::new();
        for place in &self.places {
            let Some(node) = nodes.iter().find(|node| meta::name(&***node) == place) else {
                // Without its node it does not run.
                continue;
            };
            let annotations = node.metadata.annotations.as_ref();
            let drivers = annotations.and_then(|all| all.get(DRIVERS))?;
            if drivers.split(',').any(|known| known.trim() == driver) {
                on.push(place.clone());
            }
        }
        // A list without permission looks like an empty one.
        (!nodes.is_empty()).then_some(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allot_reflector::{Readable as _, everything};
    use serde_json::json;

    fn slices(nodes: &[&str]) -> Vec<Arc<Whole<ResourceSlice>>> {
        let slice = |node: &&str| {
            let slice = json!({"metadata": {"name": node}, "spec": {"driver": "d", "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
            Arc::new(Whole::read(&slice.to_string(), everything).expect("a slice"))
        };
        nodes.iter().map(slice).collect()
    }

    /// A node with or without a report of its drivers.
    fn node(name: &str, drivers: Option<&str>) -> Arc<Node> {
        let annotations = drivers.map(|drivers| json!({DRIVERS: drivers}));
        let node = json!({"metadata": {"name": name, "annotations": annotations}});
        Arc::new(serde_json::from_value(node).expect("a node"))
    }

    fn held(quiet: Duration) -> Held {
        Held::new(Some(Hold {
            sees_nodes: true,
            quiet,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_its_node_knows_is_waited_for() {
        let mut held = held(Duration::from_secs(30));
        let running = [node("a", Some("d,e")), node("b", Some("e"))];
        let next = held.next("d", &slices(&["a", "b"]), &running);
        assert_eq!(next, Next::WaitForDriver(vec!["a".to_owned()]));
        let stopped = [node("a", Some("")), node("b", Some("e"))];
        assert_eq!(held.next("d", &slices(&["a"]), &stopped), Next::Remove);
        held.removed(1);
        assert_eq!(held.next("d", &[], &stopped), Next::Done(1));
    }

    #[tokio::test(start_paused = true)]
    async fn elsewhere_it_runs_when_it_publishes_again() {
        let quiet = Duration::from_secs(30);
        let mut held = held(quiet);
        let nodes = [node("a", None)];
        assert_eq!(held.next("d", &slices(&["a"]), &nodes), Next::Remove);
        held.removed(1);
        let waits = held.next("d", &[], &nodes);
        assert_eq!(waits, Next::WaitFor(Instant::now() + quiet));
        let again = held.next("d", &slices(&["a"]), &nodes);
        assert_eq!(again, Next::WaitForDriver(Vec::new()));
        assert_eq!(
            held.next("d", &[], &nodes),
            Next::WaitFor(Instant::now() + quiet)
        );
        tokio::time::advance(quiet).await;
        assert_eq!(held.next("d", &[], &nodes), Next::Done(1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_holding_it_is_done_when_the_slices_are_gone() {
        let mut held = Held::new(None);
        assert_eq!(held.next("d", &slices(&["a"]), &[]), Next::Remove);
        held.removed(1);
        assert_eq!(held.next("d", &slices(&["a"]), &[]), Next::Done(1));
        assert_eq!(Held::new(None).next("d", &[], &[]), Next::Done(0));
    }
}
