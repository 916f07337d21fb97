//! Models of hardware: what the drivers of real devices publish about a node, in compact YAML files, and their expansion
//! to the objects of Kubernetes (ResourceSlices, DeviceClasses, labels and capacity of Nodes).
//!
//! The files of the [catalogue](names) name their sources: documentation and source of the drivers that they model.
//! They contain facts of those drivers' interfaces: names, types and numbers.
//!
//! Invariants:
//! - the expansion is a function of the model, the node's name and its index: a restart publishes the same;
//! - a slice never has more devices than it may have with taints, so that a device can fail at any time;
//! - a model that was [parsed](Model::parse) expands for every node without an error.
//!
//! ```
//! let model = allot_hardware::find("h100-mig").expect("in the catalogue");
//! let node = model.expand("node-0", 0).expect("expands");
//! assert_eq!(node.slices[0].driver, "gpu.nvidia.com");
//! ```

#![forbid(unsafe_code)]

mod catalogue;
mod expand;
mod expression;
mod fleet;
mod format;
mod record;
mod template;

pub use catalogue::{find, names, source};
pub use expand::{Expanded, NodeParts, Slice};
pub use fleet::Fleet;
pub use format::{Class, Cpus, Model, Prepare, Source};
pub use record::{Cluster, Recorded, record};

/// An error of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file is larger than a model may be.
    #[error("the file has more than the {MOST_BYTES} bytes that a model may have")]
    Large,
    /// The text is no YAML, or has members that models do not have.
    #[error("{0}")]
    Shape(String),
    /// A value that does not fit its place.
    #[error("{place}: {reason}")]
    Value {
        /// The path in the file, such as `pools[0].slices[1].devices[0].name`.
        place: String,
        /// The reason.
        reason: String,
    },
    /// A name that the catalogue does not have.
    #[error(
        "unknown hardware {name:?}: the catalogue has {known}, and a name with a slash or a dot is a file"
    )]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// A list of models that cannot be read.
    #[error("{0}")]
    Choice(String),
}

/// Most bytes of a file.
pub const MOST_BYTES: usize = 1 << 20;
