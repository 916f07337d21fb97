//! The file of `--admission-control-config-file`: configuration of admission plugins (`apiserver.config.k8s.io`).

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::pod_security::PodSecurity;

/// Versions that have the kind.
const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
const KIND: &str = "AdmissionConfiguration";

/// What is configured for admission plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionOptions {
    /// Defaults and exemptions of PodSecurity.
    pub pod_security: PodSecurity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    plugins: Option<Vec<Plugin>>,
}

#[derive(Debug, Deserialize)]
struct Plugin {
    #[serde(default)]
    name: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    configuration: Option<Value>,
}

impl AdmissionOptions {
    /// Reads a file; files that it names are relative to its directory. As in kube-apiserver a configuration within it comes before
    /// a named file, and the first entry of a plugin counts. `is_plugin` knows the names of plugins.
    ///
    /// # Errors
    /// What cannot be read or is not valid, and configuration for a plugin that would not follow it.
    pub fn read(file: &Path, is_plugin: impl Fn(&str) -> bool) -> Result<Self, String> {
        let named = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            format!("unable to read admission control configuration from {named:?} [{error}]")
        })?;
        let written: Written = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        let (version, kind) = (&written.api_version, &written.kind);
        if kind != KIND || !VERSIONS.contains(&version.as_str()) {
            return Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            ));
        }
        let directory = file.parent().unwrap_or(Path::new(""));
        let (mut options, mut seen) = (AdmissionOptions::default(), Vec::new());
        for plugin in written.plugins.unwrap_or_default() {
            if seen.contains(&plugin.name) {
                continue;
            }
            let failed = |why: String| {
                let name = &plugin.name;
                format!("couldn't init admission plugin \"{name}\": {why}")
            };
            let content = plugin.content(directory).map_err(failed)?;
            match (plugin.name.as_str(), content) {
                (_, None) => {}
                ("PodSecurity", Some(content)) => {
                    options.pod_security = PodSecurity::read(content).map_err(failed)?;
                }
                // A restriction that is configured must not be missing without a word.
                (name, Some(_)) if is_plugin(name) => {
                    return Err(failed("it has no configuration in this server".to_owned()));
                }
                // As upstream: names that mean nothing are skipped.
                (name, Some(_)) => tracing::warn!(name, "configuration of an unknown plugin"),
            }
            seen.push(plugin.name);
        }
        Ok(options)
    }
}

impl Plugin {
    /// The configuration in the entry or in the file that it names.
    fn content(&self, directory: &Path) -> Result<Option<Value>, String> {
        if let Some(value) = &self.configuration {
            return Ok(Some(value.clone()));
        }
        let Some(path) = self.path.as_ref().filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let path = directory.join(path);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if text.is_empty() {
            return Ok(None);
        }
        let value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests;
