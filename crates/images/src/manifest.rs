//! Manifests and indexes, of OCI and of Docker (schema 2), reduced to what a node needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Limits, Result};

/// Accepted media types of manifests, in the order of preference.
pub const ACCEPTED: [&str; 4] = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];
/// An OCI manifest of one image.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An OCI index of images by platform.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Docker's manifest of one image.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's list of images by platform.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The configuration of an OCI image.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// A layer that is not compressed.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A reference to content: its type, digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The type of the content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    /// The digest of the content.
    pub digest: Digest,
    /// The length of the content in bytes.
    pub size: u64,
    /// The machines that the content is for, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Names and notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A kind of machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The processor, by Go's name: amd64, arm64.
    #[serde(default)]
    pub architecture: String,
    /// The operating system, by Go's name.
    #[serde(default)]
    pub os: String,
    /// A kind of the processor: v8 of arm64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self {
            architecture: architecture.to_owned(),
            os: "linux".to_owned(),
            variant: None,
        }
    }

    /// How well an image for `offered` runs here; `None` if it does not.
    fn fits(&self, offered: &Self) -> Option<u8> {
        if offered.os != self.os || offered.architecture != self.architecture {
            return None;
        }
        // The first version of each is what every machine of the kind can do: arm64 v8, amd64 v1.
        match offered.variant.as_deref().unwrap_or_default() {
            "" => Some(2),
            "v8" if self.architecture == "arm64" => Some(3),
            "v1" if self.architecture == "amd64" => Some(3),
            variant if self.variant.as_deref() == Some(variant) => Some(4),
            _ => None,
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(out, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// The manifest of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The image's configuration.
    pub config: Descriptor,
    /// The layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// The document behind a digest or a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Image(Manifest),
    /// Images by platform.
    Index(Vec<Descriptor>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    /// Reads a manifest or an index, and checks it against the limits.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidImage`] for a document that is neither, or both (which programs interpret differently), and for
    /// Docker's schema 1; [`Error::TooLarge`] for too many or too large layers.
    pub fn parse(content: &[u8], limits: &Limits) -> Result<Self> {
        let invalid = |reason: String| Error::InvalidImage(reason);
        let wire: Wire = serde_json::from_slice(content)
            .map_err(|error| invalid(format!("the manifest is not valid: {error}")))?;
        if wire.schema_version != 2 {
            return Err(invalid(format!(
                "manifests of schema version {} are not supported",
                wire.schema_version
            )));
        }
        let kind = wire.media_type.as_deref();
        let index = match (kind, &wire.manifests, &wire.layers) {
            (Some(OCI_INDEX | DOCKER_LIST), Some(_), None) | (None, Some(_), None) => true,
            (Some(OCI_MANIFEST | DOCKER_MANIFEST) | None, None, Some(_)) => false,
            (Some(kind), ..) if !ACCEPTED.contains(&kind) => {
                let kind: String = kind.chars().take(100).collect();
                return Err(invalid(format!("media type {kind:?} is not supported")));
            }
            _ => {
                return Err(invalid(
                    "the manifest has to have either layers or manifests, as its media type says"
                        .to_owned(),
                ));
            }
        };
        if index {
            return Ok(Self::Index(wire.manifests.unwrap_or_default()));
        }
        let config = wire
            .config
            .ok_or_else(|| invalid("the manifest has no config".to_owned()))?;
        let manifest = Manifest {
            config,
            layers: wire.layers.unwrap_or_default(),
        };
        manifest.check(limits)?;
        Ok(Self::Image(manifest))
    }
}

impl Manifest {
    fn check(&self, limits: &Limits) -> Result<()> {
        if self.layers.len() > limits.layers {
            return Err(Error::TooLarge(format!(
                "the image has {} layers, more than {}",
                self.layers.len(),
                limits.layers
            )));
        }
        if self.config.size > limits.config {
            return Err(Error::TooLarge(format!(
                "the image's configuration has {} bytes, more than {}",
                self.config.size, limits.config
            )));
        }
        if let Some(layer) = self.layers.iter().find(|layer| layer.size > limits.layer) {
            return Err(Error::TooLarge(format!(
                "layer {} has {} bytes, more than {}",
                layer.digest, layer.size, limits.layer
            )));
        }
        if self.size() > limits.image {
            return Err(Error::TooLarge(format!(
                "the image has {} bytes, more than {}",
                self.size(),
                limits.image
            )));
        }
        Ok(())
    }

    /// Bytes of configuration and layers, as they are sent.
    pub fn size(&self) -> u64 {
        let layers = self.layers.iter().map(|layer| layer.size);
        layers.fold(self.config.size, u64::saturating_add)
    }
}

/// The entry of an index for a platform. As in containerd an entry without a platform is taken if no other fits.
pub fn select<'a>(entries: &'a [Descriptor], platform: &Platform) -> Result<&'a Descriptor> {
    let is_image = |entry: &&Descriptor| {
        matches!(
            entry.media_type.as_str(),
            "" | OCI_MANIFEST | DOCKER_MANIFEST
        )
    };
    let score = |entry: &Descriptor| match &entry.platform {
        Some(offered) => platform.fits(offered),
        None => Some(1),
    };
    entries
        .iter()
        .filter(is_image)
        .filter_map(|entry| Some((score(entry)?, entry)))
        // The first of those that match equally well.
        .rev()
        .max_by_key(|(score, _)| *score)
        .map(|(_, entry)| entry)
        .ok_or_else(|| Error::Platform(platform.to_string()))
}

#[cfg(test)]
mod tests;
