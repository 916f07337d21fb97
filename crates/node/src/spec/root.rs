//! The content of a container's root directory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the copy of an image is below the directory of its container, where layers cannot be laid over each other.
pub(crate) const COPY: &str = "image";

/// A root directory: that of an image, or else programs and libraries of the host from an allow-list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RootFs {
    /// Unpacked layers of an image, the topmost first, if the kernel supports overlay mounts.
    pub lower: Vec<PathBuf>,
    /// Otherwise: a directory with a copy of all layers, for this container alone.
    #[serde(default)]
    pub copy: Option<PathBuf>,
    /// What the status of the container calls the image; empty for the host's files.
    #[serde(default)]
    pub image_id: String,
    /// The image's configuration of the program.
    pub config: ImageConfig,
}

/// The part of an image's configuration that a container is started from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `ENTRYPOINT`: replaced by the container's `command`.
    pub entrypoint: Vec<String>,
    /// `CMD`: replaced by the container's `args`, and dropped if the container has a `command`.
    pub cmd: Vec<String>,
    /// `ENV`, `NAME=value`.
    pub env: Vec<String>,
    /// `USER`: `user[:group]`, names or numbers. Empty is root.
    pub user: String,
    /// `WORKDIR`; `/` when empty.
    pub working_dir: String,
    /// `STOPSIGNAL`, the signal that asks the program to terminate: a name or a number, `SIGTERM` when absent.
    pub stop_signal: Option<String>,
}

impl RootFs {
    /// Whether it is an image's.
    pub fn is_image(&self) -> bool {
        !self.lower.is_empty() || self.copy.is_some()
    }
}

/// A bind mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the host, without symbolic links. Unused with [`Mount::layers`].
    pub source: PathBuf,
    /// Unpacked layers of an image that is a volume, the topmost first.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
    /// A path below the source, which is created if it does not exist. Symbolic links that the container wrote there
    /// cannot lead out of the source.
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
    /// Path in the container.
    pub target: PathBuf,
    /// Not writable.
    pub read_only: bool,
    /// Mounts below the source stay writable although this one is read-only.
    #[serde(default)]
    pub shallow: bool,
    /// Mounts that the host creates below the source later become visible (`HostToContainer`).
    #[serde(default)]
    pub follow: bool,
    /// The same, and those that the container creates below it become visible on the host (`Bidirectional`). For a runtime that
    /// does that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both_ways: bool,
    /// Further mount options, of the OCI runtime specification.
    #[serde(default)]
    pub options: Vec<String>,
    /// Name for the error when [`Mount::sub_path`] leads out of the source.
    #[serde(default)]
    pub name: String,
}
