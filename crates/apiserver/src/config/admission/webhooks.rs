//! Configuration of the plugins for webhooks and policies: how the server proves itself to webhooks, and which of them are in files.

use std::path::PathBuf;

use allot_apimachinery::field::{Error, Path};
use allot_model::features::{Feature, Features};
use serde::Deserialize;

use crate::config::Credentials;
use crate::config::decode::{Document, Fields, Kind};

const KIND: Kind = Kind {
    types: &[(
        "apiserver.config.k8s.io/v1",
        "WebhookAdmissionConfiguration",
    )],
    fields: Some(Fields::Object(&[
        ("kubeConfigFile", Fields::Any),
        ("staticManifestsDir", Fields::Any),
    ])),
};

/// The configuration of validating policies.
pub(super) const VALIDATING_POLICIES: Kind = Kind {
    types: &[(
        "apiserver.config.k8s.io/v1",
        "ValidatingAdmissionPolicyConfiguration",
    )],
    fields: Some(Fields::Object(&[("staticManifestsDir", Fields::Any)])),
};
/// The configuration of mutating policies.
pub(super) const MUTATING_POLICIES: Kind = Kind {
    types: &[(
        "apiserver.config.k8s.io/v1",
        "MutatingAdmissionPolicyConfiguration",
    )],
    fields: Some(Fields::Object(&[("staticManifestsDir", Fields::Any)])),
};

/// How webhooks are called, and which of them are in files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookOptions {
    /// As whom.
    pub credentials: Credentials,
    /// A directory with webhooks beside those in the API.
    pub manifests: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    kube_config_file: PathBuf,
    static_manifests_dir: PathBuf,
}

/// Reads a configuration, and the kubeconfig file that it names.
pub(super) fn read(document: Document, features: &Features) -> Result<WebhookOptions, String> {
    let written: Written = KIND.decode(document)?;
    let file = written.kube_config_file;
    if !file.as_os_str().is_empty() && !file.is_absolute() {
        let (path, file) = (Path::new("kubeConfigFile"), file.display().to_string());
        let error = Error::invalid(&path, file.as_str(), "must be an absolute file path");
        return Err(error.to_string());
    }
    let manifests = manifests(written.static_manifests_dir, features)?;
    let credentials = match file.as_os_str().is_empty() {
        true => Credentials::default(),
        false => Credentials::read(&file)?,
    };
    Ok(WebhookOptions {
        credentials,
        manifests,
    })
}

/// Reads the configuration of a plugin for policies: the directory with policies beside those in the API.
pub(super) fn policies(
    document: Document,
    kind: &Kind,
    features: &Features,
) -> Result<Option<PathBuf>, String> {
    let written: Written = kind.decode(document)?;
    manifests(written.static_manifests_dir, features)
}

/// The directory, if there is one.
fn manifests(directory: PathBuf, features: &Features) -> Result<Option<PathBuf>, String> {
    if directory.as_os_str().is_empty() {
        return Ok(None);
    }
    let path = Path::new("staticManifestsDir");
    if !features.enabled(Feature::ManifestBasedAdmissionControlConfig) {
        let why = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
        return Err(Error::forbidden(&path, why).to_string());
    }
    let shown = directory.display().to_string();
    let invalid = |why: String| Err(Error::invalid(&path, shown.as_str(), why).to_string());
    if !directory.is_absolute() {
        return invalid("must be an absolute file path".to_owned());
    }
    match std::fs::metadata(&directory) {
        Err(error) => invalid(format!("unable to read: {error}")),
        Ok(found) if !found.is_dir() => invalid("must be a directory".to_owned()),
        Ok(_) => Ok(Some(directory)),
    }
}
