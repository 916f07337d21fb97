//! The names of plugins, as configuration, messages and metrics have them, and sets of plugins.

macro_rules! plugins {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// A plugin of the scheduling framework by its upstream name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Plugin { $($(#[$doc])* $name),+ }

        impl Plugin {
            /// All plugins in the order in which the default profile runs them.
            pub const ALL: &[Plugin] = &[$(Plugin::$name),+];

            /// The name in configuration, messages and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Plugin::$name => stringify!($name)),+ }
            }
        }
    };
}

plugins! {
    /// Holds a pod back until its gates are removed.
    SchedulingGates,
    /// Orders the queue.
    PrioritySort,
    /// Rejects cordoned nodes.
    NodeUnschedulable,
    /// Honours a node set in the pod.
    NodeName,
    /// Rejects nodes with taints that the pod does not tolerate.
    TaintToleration,
    /// Honours node selectors and node affinity.
    NodeAffinity,
    /// Rejects nodes whose host ports are taken.
    NodePorts,
    /// Rejects nodes with too little left.
    NodeResourcesFit,
    /// Keeps claims in use by one pod exclusively from other pods.
    VolumeRestrictions,
    /// Rejects nodes that take no more volumes.
    NodeVolumeLimits,
    /// Finds volumes, and rejects nodes from which they cannot be reached.
    VolumeBinding,
    /// Rejects nodes in other zones than the volumes.
    VolumeZone,
    /// Spreads pods over domains.
    PodTopologySpread,
    /// Honours affinity between pods.
    InterPodAffinity,
    /// Allocates devices.
    DynamicResources,
    /// Deletes pods of lower priority so that a pod fits.
    DefaultPreemption,
    /// Prefers nodes whose resources are used evenly.
    NodeResourcesBalancedAllocation,
    /// Prefers nodes that have the images.
    ImageLocality,
    /// Writes the binding.
    DefaultBinder,
    /// Rejects nodes that do not declare what a pod needs.
    NodeDeclaredFeatures,
    /// Places the pods of a gang at once, or none of them.
    GangScheduling,
}

impl Plugin {
    /// Finds a plugin by name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name() == name)
    }

    /// Whether the plugin has the Score extension point.
    pub fn scores(self) -> bool {
        self.default_weight() > 0
    }

    /// The weight in the default profile; zero for a plugin without score.
    pub fn default_weight(self) -> i64 {
        match self {
            Plugin::TaintToleration => 3,
            Plugin::NodeAffinity
            | Plugin::PodTopologySpread
            | Plugin::InterPodAffinity
            | Plugin::DynamicResources => 2,
            Plugin::NodeResourcesFit
            | Plugin::NodeResourcesBalancedAllocation
            | Plugin::ImageLocality => 1,
            _ => 0,
        }
    }
}

/// A set of plugins, such as those that rejected a pod or those that a profile enables; a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct PluginSet(u32);

impl PluginSet {
    /// Every plugin.
    pub const fn all() -> Self {
        Self((1 << Plugin::ALL.len()) - 1)
    }

    /// Whether the set has no plugin.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a plugin.
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u32;
    }

    /// Removes a plugin; no effect if it is not in the set.
    pub fn remove(&mut self, plugin: Plugin) {
        self.0 &= !(1 << plugin as u32);
    }

    /// Whether the plugin is in the set, in constant time.
    pub fn contains(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u32) != 0
    }

    /// The plugins of the set in the order of [`Plugin::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        Plugin::ALL
            .iter()
            .copied()
            .filter(move |p| self.contains(*p))
    }
}

impl FromIterator<Plugin> for PluginSet {
    fn from_iter<T: IntoIterator<Item = Plugin>>(iter: T) -> Self {
        let mut set = Self::default();
        iter.into_iter().for_each(|p| set.insert(p));
        set
    }
}
