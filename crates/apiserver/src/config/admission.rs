//! The file of `--admission-control-config-file`: configuration of admission plugins (`apiserver.config.k8s.io`).

mod events;
mod image_policy;
mod quota;
mod tolerations;
mod webhooks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_model::features::Features;
use serde::Deserialize;
use serde_json::Value;

use super::decode::{Document, Fields, Kind, Unreadable};
use super::pod_security::PodSecurity;

pub use events::{EventLimit, EventLimitKind};
pub use image_policy::ImagePolicy;
pub use quota::LimitedResource;
pub use tolerations::{Toleration, TolerationDefaults};
pub use webhooks::WebhookOptions;

const KIND: Kind = Kind {
    types: &[
        ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
        ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
    ],
    fields: Some(Fields::Object(&[(
        "plugins",
        Fields::List(&Fields::Object(&[
            ("name", Fields::Any),
            ("path", Fields::Any),
            ("configuration", Fields::Any),
        ])),
    )])),
};

/// The plugins that have configuration.
const CONFIGURED: [&str; 10] = [
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "PodTolerationRestriction",
    "EventRateLimit",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];
/// Fields of files from before there was [`KIND`], which are the configuration of one plugin.
const LEGACY: [(&str, &str); 2] = [
    ("imagePolicy", "ImagePolicyWebhook"),
    ("podNodeSelectorPluginConfig", "PodNodeSelector"),
];

/// What is configured for admission plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionOptions {
    /// Defaults and exemptions of PodSecurity.
    pub pod_security: PodSecurity,
    /// What ResourceQuota permits only where a quota limits it.
    pub limited_resources: Vec<LimitedResource>,
    /// How mutating webhooks are called.
    pub mutating_webhooks: WebhookOptions,
    /// How validating webhooks are called.
    pub validating_webhooks: WebhookOptions,
    /// A directory with mutating policies beside those in the API.
    pub mutating_policies: Option<PathBuf>,
    /// A directory with validating policies beside those in the API.
    pub validating_policies: Option<PathBuf>,
    /// The node selectors that PodNodeSelector permits to the pods of each namespace, and under `clusterDefaultNodeSelector` that of
    /// namespaces that name none.
    pub node_selectors: BTreeMap<String, String>,
    /// What PodTolerationRestriction does in namespaces without annotations.
    pub tolerations: TolerationDefaults,
    /// The limits of EventRateLimit.
    pub event_limits: Vec<EventLimit>,
    /// The webhook of ImagePolicyWebhook.
    pub image_policy: Option<ImagePolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    plugins: Vec<Plugin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Plugin {
    name: String,
    path: PathBuf,
    configuration: Option<Value>,
}

impl AdmissionOptions {
    /// Reads a file; files that it names are relative to its directory. As in kube-apiserver a configuration within it comes before
    /// a named file, the first entry of a plugin counts, and that of a plugin which is off is not read. `is_enabled` knows the names of
    /// plugins, and whether they run.
    ///
    /// # Errors
    /// What cannot be read or is not valid, and a plugin that runs and lacks the configuration which it needs.
    pub fn read(
        file: Option<&Path>,
        is_enabled: impl Fn(&str) -> Option<bool>,
        features: &Features,
    ) -> Result<Self, String> {
        let plugins = match file {
            Some(file) => entries(file)?,
            None => Vec::new(),
        };
        let mut options = AdmissionOptions::default();
        for name in CONFIGURED {
            if is_enabled(name) != Some(true) {
                continue;
            }
            let failed = |why: String| format!("couldn't init admission plugin \"{name}\": {why}");
            let entry = plugins.iter().find(|plugin| plugin.name == name);
            let document = entry.map(Plugin::document).transpose().map_err(failed)?;
            options
                .take(name, document.flatten(), features)
                .map_err(failed)?;
        }
        // As upstream: names that mean nothing are skipped.
        for name in plugins.iter().map(|plugin| &plugin.name) {
            if is_enabled(name).is_none() {
                tracing::warn!(name, "configuration of an unknown plugin");
            }
        }
        Ok(options)
    }

    /// Reads the configuration of a plugin, which is absent if it is written nowhere.
    fn take(
        &mut self,
        name: &str,
        document: Option<Document>,
        features: &Features,
    ) -> Result<(), String> {
        let Some(document) = document else {
            // It would limit nothing.
            return match name {
                "EventRateLimit" => Err(events::EMPTY.to_owned()),
                "ImagePolicyWebhook" => Err(image_policy::NONE.to_owned()),
                _ => Ok(()),
            };
        };
        match name {
            "PodSecurity" => self.pod_security = PodSecurity::read(document)?,
            "PodNodeSelector" => self.node_selectors = node_selectors(document)?,
            "PodTolerationRestriction" => self.tolerations = tolerations::read(document)?,
            "EventRateLimit" => self.event_limits = events::read(document)?,
            "ImagePolicyWebhook" => self.image_policy = Some(image_policy::read(document)?),
            "MutatingAdmissionWebhook" => {
                self.mutating_webhooks = webhooks::read(document, features)?
            }
            "ValidatingAdmissionWebhook" => {
                self.validating_webhooks = webhooks::read(document, features)?
            }
            "MutatingAdmissionPolicy" => {
                let kind = &webhooks::MUTATING_POLICIES;
                self.mutating_policies = webhooks::policies(document, kind, features)?;
            }
            "ValidatingAdmissionPolicy" => {
                let kind = &webhooks::VALIDATING_POLICIES;
                self.validating_policies = webhooks::policies(document, kind, features)?;
            }
            _ => self.limited_resources = quota::read(document)?,
        }
        Ok(())
    }
}

/// The entries of a file.
fn entries(file: &Path) -> Result<Vec<Plugin>, String> {
    let named = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        format!("unable to read admission control configuration from {named:?} [{error}]")
    })?;
    let document = Document::parse(&text)?;
    let is_legacy = LEGACY
        .iter()
        .any(|(field, _)| document.value.get(field).is_some());
    let mut plugins = match KIND.decode::<Written>(document) {
        Ok(written) => written.plugins,
        // As upstream: the file is that of both plugins, which find in it what is theirs.
        Err(Unreadable::Kind(_)) if is_legacy => {
            let plugins = LEGACY.iter().map(|(_, name)| Plugin {
                name: (*name).to_owned(),
                path: file.to_owned(),
                configuration: None,
            });
            return Ok(plugins.collect());
        }
        Err(why) => return Err(why.into()),
    };
    let directory = file.parent().unwrap_or(Path::new(""));
    for plugin in &mut plugins {
        if !plugin.path.as_os_str().is_empty() {
            plugin.path = directory.join(&plugin.path);
        }
    }
    Ok(plugins)
}

impl Plugin {
    /// The configuration in the entry or in the file that it names.
    fn document(&self) -> Result<Option<Document>, String> {
        if let Some(value) = &self.configuration {
            return Ok(Some(Document {
                text: value.to_string(),
                value: value.clone(),
            }));
        }
        if self.path.as_os_str().is_empty() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        Document::parse(&text).map(Some)
    }
}

/// The node selectors by namespace; a file without version.
fn node_selectors(document: Document) -> Result<BTreeMap<String, String>, String> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Written {
        pod_node_selector_plugin_config: Option<BTreeMap<String, String>>,
    }
    let written: Option<Written> =
        serde_json::from_value(document.value).map_err(|error| error.to_string())?;
    let selectors = written.unwrap_or_default();
    Ok(selectors
        .pod_node_selector_plugin_config
        .unwrap_or_default())
}

#[cfg(test)]
mod tests;
