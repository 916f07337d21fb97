//! Whose certificates prove an identity. The rules are those of Go's `crypto/x509`, and so of Kubernetes: every certificate of
//! a chain has to be valid at the time of the request, that of the authority included, which webpki takes as given.
//!
//! [`clients`] judges what clients of the API server and of a node present, [`servers`] what webhooks, nodes and registries
//! present, [`subject`] reads the names in a certificate.

pub mod clients;
mod follow;
pub mod roots;
pub mod servers;
mod signatures;
pub mod subject;

pub use clients::{Authorities, Presented};
pub use follow::{FollowedDirectory, FollowedFile};
pub use servers::{AnyServer, Trust};
pub use subject::{Identity, Subject, SubjectError};
