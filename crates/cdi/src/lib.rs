//! The Container Device Interface (CDI): how a device driver specifies the container edits that a device needs. A
//! driver writes a spec file and returns names such as `vendor.com/gpu=gpu-0`; the runtime looks up the names and
//! applies their edits.
//!
//! Invariants:
//! - a spec file is replaced as a whole or not at all ([`file::write_atomic`]);
//! - written specs pass [`Spec::validate`], and their version is the lowest with all used fields;
//! - resolving is deterministic: directories in order, files by name, a name defined twice at the same
//!   priority is an error and never a guess.
//!
//! It must not depend on Kubernetes, claims or containers.
//!
//! ```
//! use allot_cdi::{ContainerEdits, Device, Registry, Spec};
//!
//! let dir = std::env::temp_dir().join(format!("cdi-doc-{}", std::process::id()));
//! let edits = ContainerEdits { env: vec!["GPU=0".into()], ..Default::default() };
//! let spec = Spec::new("example.com/gpu", vec![Device { name: "gpu-0".into(), edits, ..Default::default() }]);
//! spec.write(&dir.join("example.com-gpu.json"))?;
//!
//! let found = Registry::load(&[&dir]).resolve(&["example.com/gpu=gpu-0"])?;
//! assert_eq!(found.env, ["GPU=0"]);
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok::<(), allot_cdi::Error>(())
//! ```

#![forbid(unsafe_code)]

use std::path::PathBuf;

mod bounded;
pub mod file;
mod name;
mod registry;
mod spec;

pub use name::{
    NamePartError, QualifiedName, check_class, check_device, check_vendor, check_written_kind,
};
pub use registry::Registry;
pub use spec::{
    ContainerEdits, Device, DeviceNode, HOOK_NAMES, Hook, IntelRdt, Mount, NetDevice, Spec,
    VERSIONS,
};

/// Errors of a spec, a name, or a look-up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not of the form `vendor/class=name`, or with characters that are not allowed.
    #[error("invalid CDI device name {name:?}: {reason}")]
    Name {
        /// The text that was given.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A spec that breaks a rule.
    #[error("invalid CDI spec: {field}: {reason}")]
    Spec {
        /// Path of the field.
        field: String,
        /// The reason.
        reason: String,
    },
    /// Names without a definition.
    #[error("unresolvable CDI devices {}", .0.join(", "))]
    Unresolvable(Vec<String>),
    /// A file that cannot be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is not a CDI spec.
    #[error("{path}: {reason}", path = .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        reason: String,
    },
}
