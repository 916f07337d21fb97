//! The plugins: filters and scores of upstream's default profile, each in its own file.
//!
//! The table below is the one place that knows all of them: a new plugin is a file, its `mod` line and its row. A row has
//! the name, the extension points, the weight in the default profile, the events that requeue pods, and for plugins
//! that take no arguments the functions that filter and score. The plugins whose state changes during an attempt, or
//! whose answers are kept from one attempt to the next, are called by name in `attempt.rs` and `attempt/score.rs`.
//!
//! A plugin prepares itself once per attempt from the pod and the snapshot, then judges nodes one by one without
//! side effects, so that nodes can be judged in parallel. Texts and codes are upstream's, since tools match on them.

pub mod affinity;
pub mod declared;
pub mod fit;
pub mod image;
pub mod interpod;
pub mod points;
pub mod ports;
pub mod simple;
pub mod spread;
pub mod taints;
pub mod volumes;

use points::{ExtensionPoint, ExtensionPoint as P};

use crate::cache::Snapshot;
use crate::framework::{EventKind, EventKind as E, Plugin};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// Passes the rows of the table to a macro. The order is that in which the default profile runs the plugins.
macro_rules! plugin_table {
    ($rows:ident) => {
        $rows! {
            /// Holds a pod back until its gates are removed.
            SchedulingGates => Definition {
                points: &[P::PreEnqueue],
                ..Definition::NONE
            },
            /// Orders the queue.
            PrioritySort => Definition {
                points: &[P::QueueSort],
                ..Definition::NONE
            },
            /// Rejects cordoned nodes.
            NodeUnschedulable => Definition {
                points: &[P::Filter],
                events: &[E::Node],
                ..Definition::NONE
            },
            /// Honours a node set in the pod.
            NodeName => Definition {
                points: &[P::Filter],
                events: &[E::Node],
                ..Definition::NONE
            },
            /// Rejects nodes with taints that the pod does not tolerate.
            TaintToleration => Definition {
                points: &[P::Filter, P::PreScore, P::Score],
                weight: 3,
                events: &[E::Node],
                ..Definition::NONE
            },
            /// Honours node selectors and node affinity.
            NodeAffinity => Definition {
                points: &[P::PreFilter, P::Filter, P::PreScore, P::Score],
                weight: 2,
                events: &[E::Node],
                ..Definition::NONE
            },
            /// Rejects nodes whose host ports are taken.
            NodePorts => Definition {
                points: &[P::PreFilter, P::Filter],
                events: &[E::Node, E::PodGone],
                ..Definition::NONE
            },
            /// Rejects nodes with too little left.
            NodeResourcesFit => Definition {
                points: &[P::PreFilter, P::Filter, P::PreScore, P::Score],
                weight: 1,
                events: &[E::Node, E::PodResized, E::PodGone, E::DeviceClass],
                ..Definition::NONE
            },
            /// Keeps claims in use by one pod exclusively from other pods.
            VolumeRestrictions => Definition {
                points: &[P::PreFilter, P::Filter],
                events: &[E::PodGone, E::VolumeClaim],
                ..Definition::NONE
            },
            /// Rejects nodes that take no more volumes.
            NodeVolumeLimits => Definition {
                points: &[P::PreFilter, P::Filter],
                events: &[E::Node, E::PodGone, E::VolumeClaim, E::Storage],
                ..Definition::NONE
            },
            /// Finds volumes, and rejects nodes from which they cannot be reached.
            VolumeBinding => Definition {
                points: &[P::PreFilter, P::Filter, P::Reserve, P::PreScore, P::Score, P::PreBind],
                events: &[E::Node, E::VolumeClaim, E::Storage],
                ..Definition::NONE
            },
            /// Rejects nodes in other zones than the volumes.
            VolumeZone => Definition {
                points: &[P::PreFilter, P::Filter],
                events: &[E::Node, E::VolumeClaim, E::Storage],
                ..Definition::NONE
            },
            /// Spreads pods over domains.
            PodTopologySpread => Definition {
                points: &[P::PreFilter, P::Filter, P::PreScore, P::Score],
                weight: 2,
                events: &[E::Node, E::NodeRemoved, E::Pod, E::PodGone],
                ..Definition::NONE
            },
            /// Honours affinity between pods.
            InterPodAffinity => Definition {
                points: &[P::PreFilter, P::Filter, P::PreScore, P::Score],
                weight: 2,
                events: &[E::Node, E::Pod, E::PodGone, E::Namespace],
                ..Definition::NONE
            },
            /// Allocates devices.
            DynamicResources => Definition {
                points: &[P::PreEnqueue, P::PreFilter, P::Filter, P::PostFilter, P::Score, P::Reserve, P::PreBind],
                weight: 2,
                events: &[E::Node, E::Devices, E::DeviceClass],
                ..Definition::NONE
            },
            /// Deletes pods of lower priority so that a pod fits.
            DefaultPreemption => Definition {
                points: &[P::PostFilter, P::PreEnqueue],
                ..Definition::NONE
            },
            /// Prefers nodes whose resources are used evenly.
            NodeResourcesBalancedAllocation => Definition {
                points: &[P::PreScore, P::Score],
                weight: 1,
                ..Definition::NONE
            },
            /// Prefers nodes that have the images.
            ImageLocality => Definition {
                points: &[P::Score],
                weight: 1,
                score: Some(image::score),
                ..Definition::NONE
            },
            /// Writes the binding.
            DefaultBinder => Definition {
                points: &[P::Bind],
                ..Definition::NONE
            },
            /// Rejects nodes that do not declare what a pod needs.
            NodeDeclaredFeatures => Definition {
                points: &[P::PreFilter, P::Filter],
                events: &[E::Node],
                filter: Some(declared::prepare),
                ..Definition::NONE
            },
            /// Places the pods of a gang at once, or none of them.
            GangScheduling => Definition {
                points: &[P::PreEnqueue, P::Permit],
                ..Definition::NONE
            },
        }
    };
}

/// What the scheduler knows of a plugin.
pub struct Definition {
    /// The extension points that the plugin implements in upstream; a configuration may list it at no other.
    pub points: &'static [ExtensionPoint],
    /// The weight of the score in the default profile; zero for a plugin without one.
    pub weight: i64,
    /// The events after which a pod that this plugin rejected is tried again. `hints.rs` can narrow that by the objects of
    /// the event.
    pub events: &'static [EventKind],
    /// The filter, which runs after those that `attempt.rs` calls by name, in the order of the table.
    pub filter: Option<Prepare>,
    /// The score.
    pub score: Option<Score>,
}

impl Definition {
    /// A plugin without any effect, as the base of rows.
    const NONE: Self = Self {
        points: &[],
        weight: 0,
        events: &[],
        filter: None,
        score: None,
    };
}

/// PreFilter: computes once per attempt what the filter needs; `None` if the plugin has nothing to check for the pod.
pub type Prepare = fn(&PodInfo, &Snapshot) -> Option<Box<dyn Filter>>;

/// A filter that is prepared for a pod. Nodes are filtered in parallel.
pub trait Filter: Send + Sync {
    /// Whether the pod can run on the node, as far as the plugin knows.
    ///
    /// # Errors
    /// The rejection of the node.
    fn filter(&self, node: &NodeInfo) -> Result<(), Rejection>;
}

/// Scores the feasible nodes, given by their positions in the snapshot, from 0 to [`MAX_SCORE`]; `None` if the plugin
/// makes no difference between nodes.
pub type Score = fn(&PodInfo, &Snapshot, &[usize]) -> Option<Vec<i64>>;

macro_rules! definitions {
    ($($(#[$doc:meta])* $name:ident => $definition:expr),+ $(,)?) => {
        impl Plugin {
            /// The row of the plugin in the table.
            pub fn definition(self) -> &'static Definition {
                match self {
                    $(Plugin::$name => {
                        static DEFINITION: Definition = $definition;
                        &DEFINITION
                    })+
                }
            }
        }
    };
}

plugin_table!(definitions);

impl Plugin {
    /// Whether the plugin implements an extension point in upstream, independent of this implementation.
    pub fn extends(self, point: ExtensionPoint) -> bool {
        self.definition().points.contains(&point)
    }

    /// Whether the plugin has a score in the default profile.
    pub fn scores(self) -> bool {
        self.default_weight() > 0
    }

    /// The weight in the default profile; zero for a plugin without score.
    pub fn default_weight(self) -> i64 {
        self.definition().weight
    }
}

/// Highest score of a plugin for a node.
pub const MAX_SCORE: i64 = 100;

/// Scales scores to 0..=[`MAX_SCORE`] by the highest one; `reverse` turns few into many.
pub fn normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = if max == 0 {
            0
        } else {
            *score * MAX_SCORE / max
        };
        if reverse {
            *score = MAX_SCORE - *score;
        }
    }
}

#[cfg(test)]
mod tests;
