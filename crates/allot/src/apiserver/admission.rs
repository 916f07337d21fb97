//! Flags of admission plugins, with kube-apiserver's names.

use std::path::PathBuf;

use allot_apiserver::admission::plugins::is_enabled;
use allot_apiserver::config::AdmissionOptions;
use allot_model::features::Features;
use anyhow::bail;

use super::flags::path;

/// Configuration of admission plugins.
#[derive(Debug, clap::Args)]
#[group(id = "admission")]
pub struct Args {
    /// File with configuration of admission plugins (apiserver.config.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 1] {
        let file = self.admission_control_config_file.as_deref();
        [("admission-control-config-file", path(file))]
    }

    /// The configuration in the file for the plugins that are enabled with these values of the two flags.
    pub fn options(
        &self,
        enabled: &[String],
        disabled: &[String],
        features: &Features,
    ) -> anyhow::Result<AdmissionOptions> {
        let file = self.admission_control_config_file.as_deref();
        let is_enabled = |name: &str| is_enabled(name, enabled, disabled);
        let read = AdmissionOptions::read(file, is_enabled, features);
        read.map_err(|error| anyhow::anyhow!("--admission-control-config-file: {error}"))
    }
}

/// Rejects unknown admission plugins.
pub(super) fn check_plugins(enabled: &[String], disabled: &[String]) -> anyhow::Result<()> {
    for (verb, names) in [("enable", enabled), ("disable", disabled)] {
        for name in names {
            if is_enabled(name, &[], &[]).is_none() {
                bail!("--{verb}-admission-plugins: plugin {name:?} is unknown");
            }
        }
    }
    Ok(())
}
