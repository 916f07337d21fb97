//! One binding cycle: what is written for an assumed pod, and its progress.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::pre_bind::PodInPreBind;
use crate::core::volumes::Awaited;
use crate::dra::claims::Version;
use crate::pod::{Key, Uid};
use crate::queue::{Now, QueuedPod};

/// How far a binding cycle is, by kube-scheduler's extension points. Phases follow each other in this order; none is
/// entered twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Phase {
    /// PreBind: claims and volumes are being written. A pod with neither stays in this phase while it is bound.
    Writing,
    /// PreBind: everything is written. The cycle continues when watches show the claims in the versions that were
    /// written, when their binding conditions (KEP-5007) are true, and when the volumes are bound.
    Waiting {
        /// When the binding conditions are late; `None` without any, and once they are true.
        conditions: Option<Timestamp>,
        /// When the volumes are late; `None` without any.
        volumes: Option<Timestamp>,
    },
    /// Bind: only the binding itself remains.
    Bind {
        /// The time at which the phase began.
        since: Now,
    },
}

impl Phase {
    /// The deadline of what the cycle waits for.
    pub(in crate::core) fn deadline(self) -> Option<Timestamp> {
        self.conditions_deadline()
            .into_iter()
            .chain(self.volumes_deadline())
            .min()
    }

    /// When binding conditions are late; `None` unless the cycle waits for some.
    pub(in crate::core) fn conditions_deadline(self) -> Option<Timestamp> {
        match self {
            Self::Waiting { conditions, .. } => conditions,
            Self::Writing | Self::Bind { .. } => None,
        }
    }

    /// When volumes are late; `None` unless the cycle waits for some.
    pub(in crate::core) fn volumes_deadline(self) -> Option<Timestamp> {
        match self {
            Self::Waiting { volumes, .. } => volumes,
            Self::Writing | Self::Bind { .. } => None,
        }
    }
}

/// The binding cycle of a pod.
#[derive(Debug)]
pub(in crate::core) struct Binding {
    pub(in crate::core) queued: QueuedPod,
    pub(in crate::core) node: Arc<str>,
    pub(in crate::core) phase: Phase,
    /// For canceling the cycle; `None` if PreBind has nothing to do for the pod.
    pub(in crate::core) pre_bind: Option<PodInPreBind>,
    /// UIDs under which allocations are in flight for the pod.
    pub(in crate::core) in_flight: Vec<Uid>,
    /// The claims that the pod needs, with the extended resource claim once that was created, in the versions that a
    /// watch has to show.
    pub(in crate::core) claims: Vec<Version>,
    /// Claims that were allocated before this cycle.
    pub(in crate::core) found: Vec<Uid>,
    /// Claims of another generation that the pod needs, with their UIDs.
    pub(in crate::core) plugin_claims: Vec<(Key, Uid)>,
    /// Whether the pod's status records node resources of its devices.
    pub(in crate::core) has_node_allocatable: bool,
    /// The extended resource claim, once it was created.
    pub(in crate::core) extended: Option<Arc<ResourceClaim>>,
    /// Volumes that must be bound first.
    pub(in crate::core) volumes: Awaited,
    /// The time at which the scheduling cycle began.
    pub(in crate::core) started: Now,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cycle_is_late_when_the_first_of_its_deadlines_passes() {
        let at = |seconds| Timestamp::from_second(seconds).ok();
        let check = |conditions, volumes, expected| {
            let phase = Phase::Waiting {
                conditions,
                volumes,
            };
            assert_eq!(phase.deadline(), expected, "{phase:?}");
        };
        check(None, None, None);
        check(at(5), None, at(5));
        check(at(5), at(3), at(3));
        check(None, at(3), at(3));
        let since = Duration::ZERO;
        assert_eq!(Phase::Writing.deadline(), None);
        assert_eq!(Phase::Bind { since }.deadline(), None);
    }
}
