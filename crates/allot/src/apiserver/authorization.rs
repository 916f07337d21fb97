//! Flags of authorization, with kube-apiserver's names, and the file of authorizers, which may change while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::field::joined;
use allot_apiserver::ReloadableConfig;
use allot_apiserver::auth::Authorizer;
use allot_apiserver::config::authorization::abac::Policies;
use allot_apiserver::config::authorization::conditions::Conditions;
use allot_apiserver::config::authorization::{ReviewVersion, WebhookOptions, file};
use allot_apiserver::config::{AuthorizationMode, Kubeconfig};
use anyhow::{Context, bail};

use super::flags::{duration, list, path};
use super::reload::ReloadedFile;

/// The default authorization modes.
const DEFAULT: [&str; 2] = ["Node", "RBAC"];
/// The name of the webhook of `--authorization-webhook-config-file`, as upstream.
const WEBHOOK: &str = "default";
/// The time of a call of that webhook.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of authorization.
#[derive(Debug, clap::Args)]
#[group(id = "authorization")]
pub struct Args {
    /// Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny; default Node,RBAC
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// File of policies for the mode ABAC: one in JSON on each line
    #[arg(long, value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the server that the mode Webhook asks
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReview that the webhook is sent, v1 or v1beta1; default v1beta1
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// How long an answer of the webhook that allows is kept; default 5m0s
    #[arg(long, value_name = "DURATION")]
    authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long any other answer of the webhook is kept; default 30s
    #[arg(long, value_name = "DURATION")]
    authorization_webhook_cache_unauthorized_ttl: Option<String>,
    /// File with the authorizers in order (apiserver.config.k8s.io/v1), which is followed; instead of the modes and the webhook above
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
}

/// The authorizers at the start, and the file that they are from.
pub(super) struct Authorizers {
    /// The authorizers in their order.
    pub(super) modes: Vec<AuthorizationMode>,
    /// The file of `--authorization-config`.
    pub(super) file: Option<ReloadedFile>,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 7] {
        [
            ("authorization-mode", list(&self.modes())),
            (
                "authorization-policy-file",
                path(self.authorization_policy_file.as_deref()),
            ),
            (
                "authorization-webhook-config-file",
                path(self.authorization_webhook_config_file.as_deref()),
            ),
            (
                "authorization-webhook-version",
                self.webhook_version().to_owned(),
            ),
            (
                "authorization-webhook-cache-authorized-ttl",
                self.authorized_ttl().to_owned(),
            ),
            (
                "authorization-webhook-cache-unauthorized-ttl",
                self.unauthorized_ttl().to_owned(),
            ),
            (
                "authorization-config",
                path(self.authorization_config.as_deref()),
            ),
        ]
    }

    fn webhook_version(&self) -> &str {
        let given = self.authorization_webhook_version.as_deref();
        given.unwrap_or("v1beta1")
    }

    fn authorized_ttl(&self) -> &str {
        let given = self.authorization_webhook_cache_authorized_ttl.as_deref();
        given.unwrap_or("5m0s")
    }

    fn unauthorized_ttl(&self) -> &str {
        let given = self.authorization_webhook_cache_unauthorized_ttl.as_deref();
        given.unwrap_or("30s")
    }

    /// Whether a mode allows everything to all users.
    pub(super) fn allows_all(&self) -> bool {
        self.modes().contains(&"AlwaysAllow")
    }

    fn modes(&self) -> Vec<&str> {
        match (&self.authorization_config, &self.authorization_mode[..]) {
            (None, []) => DEFAULT.to_vec(),
            (_, modes) => modes.iter().map(String::as_str).collect(),
        }
    }

    /// The authorizers that the flags name.
    ///
    /// # Errors
    /// kube-apiserver's texts for flags that do not go together, and for files that cannot be used.
    pub(super) fn authorizers(&self) -> anyhow::Result<Authorizers> {
        let authorizers = match &self.authorization_config {
            Some(file) => self.by_file(file)?,
            None => Authorizers {
                modes: self.by_modes()?,
                file: None,
            },
        };
        Authorizer::check(&authorizers.modes).map_err(anyhow::Error::msg)?;
        Ok(authorizers)
    }

    fn by_file(&self, path: &Path) -> anyhow::Result<Authorizers> {
        let others = [
            !self.authorization_mode.is_empty(),
            self.authorization_webhook_config_file.is_some(),
            self.authorization_webhook_version.is_some(),
            self.authorization_webhook_cache_authorized_ttl.is_some(),
            self.authorization_webhook_cache_unauthorized_ttl.is_some(),
        ];
        if others.contains(&true) {
            bail!(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
            );
        }
        let named = || format!("--authorization-config: {}", path.display());
        let content = std::fs::read(path).with_context(named)?;
        let modes = file::read(&content, self.authorization_policy_file.as_deref());
        let modes = modes.map_err(anyhow::Error::msg).with_context(named)?;
        let initial = ReloadableConfig::Authorization {
            authorizers: modes.clone(),
        };
        let followed = ReloadedFile::new("authorization-config", path, content, initial);
        Ok(Authorizers {
            modes,
            file: Some(followed),
        })
    }

    fn by_modes(&self) -> anyhow::Result<Vec<AuthorizationMode>> {
        let modes = self.modes();
        if let Some(errors) = joined(&self.conflicts(&modes)) {
            bail!("{errors}");
        }
        let (policies, webhook) = (
            self.authorization_policy_file.as_deref(),
            self.authorization_webhook_config_file.as_deref(),
        );
        let modes = modes.iter().map(|mode| match (*mode, policies, webhook) {
            ("ABAC", Some(file), _) => {
                let policies = Policies::read(file).map_err(anyhow::Error::msg)?;
                Ok(AuthorizationMode::Abac(Arc::new(policies)))
            }
            ("Webhook", _, Some(file)) => {
                let options = self.webhook(file)?;
                Ok(AuthorizationMode::Webhook(Arc::new(options)))
            }
            (mode, _, _) => AuthorizationMode::named(mode).with_context(|| unknown_mode(mode)),
        });
        modes.collect()
    }

    fn conflicts(&self, modes: &[&str]) -> Vec<String> {
        let (policies, webhook) = (
            self.authorization_policy_file.is_some(),
            self.authorization_webhook_config_file.is_some(),
        );
        let mut errors = Vec::new();
        for mode in modes {
            match *mode {
                "ABAC" if !policies => {
                    errors.push(
                        "authorization-mode ABAC's authorization policy file not passed".to_owned(),
                    );
                }
                "Webhook" if !webhook => {
                    errors.push(
                        "authorization-mode Webhook's authorization config file not passed"
                            .to_owned(),
                    );
                }
                "ABAC" | "Webhook" => {}
                mode if AuthorizationMode::named(mode).is_none() => {
                    errors.push(unknown_mode(mode));
                }
                _ => {}
            }
        }
        if policies && !modes.contains(&"ABAC") {
            errors.push("cannot specify --authorization-policy-file without mode ABAC".to_owned());
        }
        if webhook && !modes.contains(&"Webhook") {
            errors.push(
                "cannot specify --authorization-webhook-config-file without mode Webhook"
                    .to_owned(),
            );
        }
        let is_repeated = |(index, mode): (usize, &&str)| modes[..index].contains(mode);
        if modes.iter().enumerate().any(is_repeated) {
            let modes: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
            errors.push(format!(
                "authorization-mode [{}] has mode specified more than once",
                modes.join(" ")
            ));
        }
        errors
    }

    fn webhook(&self, file: &Path) -> anyhow::Result<WebhookOptions> {
        let version = self.webhook_version();
        let version = ReviewVersion::named(version).with_context(|| {
            format!("unsupported webhook authorizer version {version:?}, supported versions are \"v1\", \"v1beta1\"")
        })?;
        let kubeconfig = Kubeconfig::read(file).map_err(anyhow::Error::msg);
        Ok(WebhookOptions {
            name: WEBHOOK.to_owned(),
            kubeconfig: kubeconfig.context("--authorization-webhook-config-file")?,
            version,
            timeout: TIMEOUT,
            authorized_ttl: duration(
                "authorization-webhook-cache-authorized-ttl",
                self.authorized_ttl(),
            )?,
            unauthorized_ttl: duration(
                "authorization-webhook-cache-unauthorized-ttl",
                self.unauthorized_ttl(),
            )?,
            denies_on_error: false,
            conditions: Conditions::default(),
        })
    }
}

fn unknown_mode(mode: &str) -> String {
    format!("authorization-mode {mode:?} is not a valid mode")
}

#[cfg(test)]
mod tests;
