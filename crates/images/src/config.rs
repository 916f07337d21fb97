//! The runtime configuration of an image.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};

use crate::manifest::Platform;
use crate::{Digest, Error, Limits, Result};

/// The configuration of an image, as far as a node needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// What `command` of a container replaces.
    pub entrypoint: Vec<String>,
    /// What `args` of a container replaces.
    pub cmd: Vec<String>,
    /// Environment variables, `NAME=VALUE`, overridden by those of the container.
    pub env: Vec<String>,
    /// The user as written: empty, `NAME`, `UID`, `USER:GROUP`. [`crate::user::resolve`] finds the numbers.
    pub user: String,
    /// The directory to start in; empty for the root.
    pub working_dir: String,
    /// Paths that the image declares as volumes.
    pub volumes: BTreeSet<String>,
    /// Labels of the image.
    pub labels: BTreeMap<String, String>,
    /// The signal that asks the program to terminate, by name or number; `SIGTERM` if absent.
    pub stop_signal: Option<String>,
    /// The digests of the layers when uncompressed, the lowest first.
    pub diff_ids: Vec<Digest>,
    /// What the image runs on.
    pub platform: Platform,
}

/// Go encodes empty values as `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> std::result::Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "or_default")]
    architecture: String,
    #[serde(default, deserialize_with = "or_default")]
    os: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    config: WireRun,
    rootfs: WireRootFs,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct WireRun {
    #[serde(deserialize_with = "or_default")]
    entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    cmd: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    user: String,
    #[serde(deserialize_with = "or_default")]
    working_dir: String,
    #[serde(deserialize_with = "or_default")]
    volumes: BTreeMap<String, serde_json::Value>,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    stop_signal: String,
}

#[derive(Deserialize)]
struct WireRootFs {
    #[serde(deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Reads an image's configuration.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidImage`] if it is not one, which includes artifacts that are no container images.
    pub fn parse(content: &[u8], limits: &Limits) -> Result<Self> {
        if content.len() as u64 > limits.config {
            return Err(Error::TooLarge(format!(
                "the image's configuration has {} bytes, more than {}",
                content.len(),
                limits.config
            )));
        }
        let wire: Wire = serde_json::from_slice(content).map_err(|error| {
            Error::InvalidImage(format!("the configuration is not valid: {error}"))
        })?;
        if wire.rootfs.diff_ids.len() > limits.layers {
            return Err(Error::TooLarge(format!(
                "the image has {} layers, more than {}",
                wire.rootfs.diff_ids.len(),
                limits.layers
            )));
        }
        let run = wire.config;
        let texts = run.entrypoint.iter().chain(&run.cmd).chain(&run.env);
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err(Error::InvalidImage(
                "the configuration has a NUL byte in a command or a variable".to_owned(),
            ));
        }
        Ok(Self {
            entrypoint: run.entrypoint,
            cmd: run.cmd,
            env: run.env,
            user: run.user,
            working_dir: run.working_dir,
            volumes: run.volumes.into_keys().collect(),
            labels: run.labels,
            stop_signal: Some(run.stop_signal).filter(|signal| !signal.is_empty()),
            diff_ids: wire.rootfs.diff_ids,
            platform: Platform {
                architecture: wire.architecture,
                os: wire.os,
                variant: wire.variant,
            },
        })
    }
}
