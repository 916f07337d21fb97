//! Constraints, and the pods and nodes that count for them.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::super::affinity::NodeAffinity;
use super::super::taints;
use super::{DefaultConstraint, Defaults};
use crate::node::NodeInfo;
use crate::pod::{PodInfo, Replicated};
use crate::selectors::Labels;

/// The pods that a constraint counts.
#[derive(Debug, Clone)]
pub(super) enum Counted {
    Labels(Labels),
    OfController(Replicated),
}

impl Counted {
    fn matches(&self, pod: &PodInfo) -> bool {
        match self {
            Self::Labels(selector) => selector.matches(pod.labels()),
            Self::OfController((_, uid)) => pod.controller.as_ref() == Some(uid),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    pub(super) key: String,
    pub(super) selector: Counted,
    pub(super) min_domains: usize,
    honor_affinity: bool,
    honor_taints: bool,
    pub(super) self_match: i64,
}

impl Constraint {
    fn new(pod: &PodInfo, c: &TopologySpreadConstraint) -> Self {
        let mut selector = Labels::new(c.label_selector.as_ref());
        for key in c.match_label_keys.iter().flatten() {
            if let Some(value) = pod.labels().and_then(|l| l.get(key)) {
                selector.require_in(key, value);
            }
        }
        Self {
            max_skew: i64::from(c.max_skew),
            key: c.topology_key.clone(),
            self_match: i64::from(selector.matches(pod.labels())),
            selector: Counted::Labels(selector),
            min_domains: c
                .min_domains
                .and_then(|m| usize::try_from(m).ok())
                .unwrap_or(1),
            honor_affinity: c.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: c.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    fn by_default(replicated: &Replicated, c: &DefaultConstraint) -> Self {
        Self {
            max_skew: i64::from(c.max_skew),
            key: c.key.clone(),
            selector: Counted::OfController(replicated.clone()),
            min_domains: c.min_domains,
            honor_affinity: c.honor_affinity,
            honor_taints: c.honor_taints,
            self_match: 1,
        }
    }

    pub(super) fn includes(&self, pod: &PodInfo, affinity: &NodeAffinity, node: &NodeInfo) -> bool {
        (!self.honor_affinity || affinity.matches(node))
            && (!self.honor_taints || taints::filter(pod.tolerations(), node).is_ok())
    }

    pub(super) fn counts(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        other.key.namespace == pod.key.namespace
            && !other.is_terminating()
            && self.selector.matches(other)
    }

    pub(super) fn count_on(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        match &self.selector {
            // Nearly every pod has a controller: do not search all other pods for its pods each time.
            Counted::OfController(replicated) => {
                node.replicas.get(replicated).copied().unwrap_or_default()
            }
            Counted::Labels(_) => node.pods.iter().filter(|p| self.counts(pod, p)).count() as i64,
        }
    }
}

/// When a pod may be placed where a constraint does not hold: `whenUnsatisfiable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

/// The constraints of a pod of one kind, or the default ones.
pub(super) fn constraints(
    pod: &PodInfo,
    when: WhenUnsatisfiable,
    defaults: &Defaults,
) -> Vec<Constraint> {
    let required = when == WhenUnsatisfiable::DoNotSchedule;
    let when = match when {
        WhenUnsatisfiable::DoNotSchedule => "DoNotSchedule",
        WhenUnsatisfiable::ScheduleAnyway => "ScheduleAnyway",
    };
    let own = pod.spec().topology_spread_constraints.as_deref();
    match (own.unwrap_or_default(), pod.replicated()) {
        ([], None) => Vec::new(),
        ([], Some(replicated)) => {
            let all = defaults.constraints.iter();
            all.filter(|c| c.required == required)
                .map(|c| Constraint::by_default(&replicated, c))
                .collect()
        }
        (own, _) => {
            let those = own.iter().filter(|c| c.when_unsatisfiable == when);
            those.map(|c| Constraint::new(pod, c)).collect()
        }
    }
}
