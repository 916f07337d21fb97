//! Device metadata (KEP-5304): files in a container that describe its devices to the workload, without access to the
//! API.
//!
//! A driver enables it with [`crate::Builder::device_metadata`] and sets the content with
//! [`crate::PreparedDevice::metadata`]. Each request of a claim has a separate file for each driver, mounted read-only:
//!
//! - claim named in the pod: `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/CLAIM/REQUEST/DRIVER-metadata.json`
//! - claim created from a template: `…/resourceclaimtemplates/NAME/REQUEST/DRIVER-metadata.json`, with the pod's name
//!   for the claim (`spec.resourceClaims[].name`).
//!
//! A file is a stream of JSON objects: the same content in each version, the newest first. [`decode`] reads it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::resource::v1::{DeviceAttribute, NetworkDeviceData};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(test)]
mod tests;

/// Metadata of a device for containers; becomes a part of [`Device`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceMetadata {
    /// Attributes by qualified name: `model` belongs to the driver, `resource.kubernetes.io/pciBusID` is a standard one
    /// (see [`crate::attributes`]). Usually those that the driver publishes for the device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, DeviceAttribute>,
    /// Interface and addresses of a network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDeviceData>,
}

/// The content of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Name, namespace and UID of the claim; the generation counts the changes of the file, from 1.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The pod's name for a claim that was created from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// The request that the file is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Request>,
}

/// A request and its devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The name in the allocation: `gpu/large` if an alternative was chosen.
    pub name: String,
    /// The devices of one driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
}

/// A device of a request, as the metadata file describes it to the container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Name of the driver that publishes the device.
    pub driver: String,
    /// Name of the pool that the device is in.
    pub pool: String,
    /// Name of the device in its pool.
    pub name: String,
    /// The driver's metadata.
    #[serde(flatten)]
    pub about: DeviceMetadata,
}

const GROUP: &str = "metadata.resource.k8s.io";
const KIND: &str = "DeviceMetadata";
/// Newest first; they differ in name only.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// Directory of the files in a container.
const DIRECTORY: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// Path in a container of the file of a claim that its pod names.
pub fn claim_file(driver: &str, claim: &str, request: &str) -> PathBuf {
    path("resourceclaims", driver, claim, request)
}

/// Path in a container of the file of a claim that was created from a template; `claim` is the pod's name for it.
pub fn template_file(driver: &str, claim: &str, request: &str) -> PathBuf {
    path("resourceclaimtemplates", driver, claim, request)
}

fn path(kind: &str, driver: &str, claim: &str, request: &str) -> PathBuf {
    format!("{DIRECTORY}/{kind}/{claim}/{request}/{driver}-metadata.json").into()
}

/// Why a file cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not a stream of JSON objects, or a supported version with another structure.
    #[error("decode metadata object: {0}")]
    Json(#[from] serde_json::Error),
    /// An object without `apiVersion` and `kind`, or of another kind.
    #[error("decode metadata object: unexpected kind {kind:?} of version {version:?}")]
    Kind {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
    },
    /// An empty stream.
    #[error("no metadata objects found in stream")]
    Empty,
    /// Only versions that are newer than this crate.
    #[error("no compatible metadata version found in stream (unknown versions: {})", .0.join(", "))]
    Unknown(Vec<String>),
}

/// Reads the first object of a supported version.
///
/// # Errors
/// The error in the content.
pub fn decode(content: &[u8]) -> Result<File, DecodeError> {
    let mut unknown = Vec::new();
    for object in serde_json::Deserializer::from_slice(content).into_iter::<Value>() {
        let object = object?;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let known = version
            .split_once('/')
            .is_some_and(|(group, version)| group == GROUP && VERSIONS.contains(&version));
        if known && kind == KIND {
            return Ok(serde_json::from_value(object)?);
        }
        if known || version.is_empty() || kind.is_empty() {
            return Err(DecodeError::Kind { kind, version });
        }
        unknown.push(version);
    }
    Err(match unknown.is_empty() {
        true => DecodeError::Empty,
        false => DecodeError::Unknown(unknown),
    })
}

/// The stream: one object for each version.
pub(crate) fn encode(file: &File) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Object<'a> {
        kind: &'a str,
        api_version: String,
        #[serde(flatten)]
        file: &'a File,
    }
    let mut content = Vec::new();
    for version in VERSIONS {
        let object = Object {
            kind: KIND,
            api_version: format!("{GROUP}/{version}"),
            file,
        };
        serde_json::to_writer_pretty(&mut content, &object)?;
        content.push(b'\n');
    }
    Ok(content)
}
