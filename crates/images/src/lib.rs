//! Container images for a node: names, registries, a content-addressed store on disk, and root file systems.
//!
//! The path of an image: a [`Reference`] is resolved at a [`registry`] (or a mirror of it, [`Registries`]), its blobs
//! are streamed into a [`Store`] with every digest checked, its layers are unpacked ([`unpack`]) into directories that
//! serve as lower directories of overlayfs, and [`ImageConfig`] specifies what to run. [`Manager`] adds the kubelet's
//! rules: pull policies, credentials, back-off and the texts of events, all as data.
//!
//! All content of a registry or an archive is hostile until its digest is checked, and the content itself stays hostile
//! after that: sizes and counts are bounded by [`Limits`], every wait by [`Timeouts`], and no path or link of a layer
//! leaves the directory that it is unpacked into.

#![deny(unsafe_code)]

pub mod backoff;
pub mod collect;
mod config;
mod decompress;
mod digest;
mod error;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod import;
pub mod keyring;
mod limits;
pub mod manager;
pub mod manifest;
pub mod pull;
mod reference;
mod registries;
pub mod registry;
mod remove;
mod resolve;
pub mod store;
pub mod unpack;
pub mod user;

pub use config::ImageConfig;
pub use digest::{Digest, Hasher, InvalidDigest};
pub use error::{Error, Result};
pub use keyring::{Credential, Keyring, PullSecret, SecretSource};
pub use limits::{Limits, Timeouts};
pub use manager::Manager;
pub use pull::Puller;
pub use reference::Reference;
pub use registries::{Endpoint, Registries};
pub use remove::remove_tree;
pub use resolve::openat2;
pub use store::{Image, Store};
