//! The extension points of each plugin; a configuration may list a plugin at no other.

use super::Plugin;

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident: $field:literal),+ $(,)?) => {
        /// An extension point of the scheduling framework.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ExtensionPoint { $($(#[$doc])* $name),+ }

        impl ExtensionPoint {
            /// All points, in the order in which upstream processes their plugins.
            pub const ALL: &[ExtensionPoint] = &[$(ExtensionPoint::$name),+];

            /// The field of a profile.
            pub fn field(self) -> &'static str {
                match self { $(ExtensionPoint::$name => $field),+ }
            }

            /// What upstream's messages call plugins at this point.
            pub fn interface(self) -> &'static str {
                match self { $(ExtensionPoint::$name => concat!(stringify!($name), "Plugin")),+ }
            }
        }
    };
}

points! {
    /// Before any node is filtered.
    PreFilter: "preFilter",
    /// Whether a node will do.
    Filter: "filter",
    /// Runs when no node is feasible: preemption.
    PostFilter: "postFilter",
    /// Reserves what the pod needs on the chosen node, in memory.
    Reserve: "reserve",
    /// Before nodes are scored.
    PreScore: "preScore",
    /// Ranks the feasible nodes.
    Score: "score",
    /// Writes claims and volumes before the binding.
    PreBind: "preBind",
    /// The binding.
    Bind: "bind",
    /// After the binding.
    PostBind: "postBind",
    /// Whether the binding must wait.
    Permit: "permit",
    /// Whether the pod may be tried.
    PreEnqueue: "preEnqueue",
    /// The order of the queue.
    QueueSort: "queueSort",
}

impl Plugin {
    /// Whether the plugin implements an extension point in upstream, independent of this implementation.
    pub fn extends(self, point: ExtensionPoint) -> bool {
        use ExtensionPoint as P;
        let points: &[P] = match self {
            Plugin::SchedulingGates => &[P::PreEnqueue],
            Plugin::PrioritySort => &[P::QueueSort],
            Plugin::NodeUnschedulable | Plugin::NodeName => &[P::Filter],
            Plugin::TaintToleration => &[P::Filter, P::PreScore, P::Score],
            Plugin::NodeAffinity
            | Plugin::NodeResourcesFit
            | Plugin::PodTopologySpread
            | Plugin::InterPodAffinity => &[P::PreFilter, P::Filter, P::PreScore, P::Score],
            Plugin::NodePorts
            | Plugin::VolumeRestrictions
            | Plugin::NodeVolumeLimits
            | Plugin::VolumeZone
            | Plugin::NodeDeclaredFeatures => &[P::PreFilter, P::Filter],
            Plugin::VolumeBinding => &[
                P::PreFilter,
                P::Filter,
                P::Reserve,
                P::PreScore,
                P::Score,
                P::PreBind,
            ],
            Plugin::DynamicResources => &[
                P::PreEnqueue,
                P::PreFilter,
                P::Filter,
                P::PostFilter,
                P::Score,
                P::Reserve,
                P::PreBind,
            ],
            Plugin::DefaultPreemption => &[P::PostFilter, P::PreEnqueue],
            Plugin::NodeResourcesBalancedAllocation => &[P::PreScore, P::Score],
            Plugin::ImageLocality => &[P::Score],
            Plugin::DefaultBinder => &[P::Bind],
            Plugin::GangScheduling => &[P::PreEnqueue, P::Permit],
        };
        points.contains(&point)
    }
}
