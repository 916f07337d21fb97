//! The extension points of the scheduling framework.

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
