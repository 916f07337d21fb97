//! The names of plugins, as configuration, messages and metrics have them, and sets of plugins. The plugins themselves are
//! rows of the table in `plugins.rs`.

macro_rules! plugins {
    ($($(#[$doc:meta])* $name:ident => $definition:expr),+ $(,)?) => {
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

plugin_table!(plugins);

impl Plugin {
    /// Finds a plugin by name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name() == name)
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

/// The kinds of changes of the cluster after which a rejected pod may be schedulable; [`crate::hints::ClusterEvent`] has
/// the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A node was added or changed.
    Node,
    /// A node was deleted.
    NodeRemoved,
    /// A pod was bound to a node, or the labels of one on a node changed.
    Pod,
    /// A pod on a node was resized.
    PodResized,
    /// A pod on a node finished or was deleted.
    PodGone,
    /// Devices, claims or quotas of devices changed.
    Devices,
    /// A DeviceClass was added or changed.
    DeviceClass,
    /// Labels of a namespace changed.
    Namespace,
    /// A PersistentVolumeClaim was added or changed.
    VolumeClaim,
    /// A volume, a storage class, or what a CSI driver reports was added or changed.
    Storage,
}
