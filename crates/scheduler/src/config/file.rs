//! Reading a KubeSchedulerConfiguration. Strict: an unknown field or value is an error, not a setting without effect.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Config;

mod args;
mod profile;
mod typed;

use profile::{FileProfile, read_profile};
use typed::{DurationText, typed};

/// Group and version of everything in the file.
const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// An error in a configuration, with the path of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not YAML, or a text that is not what its field is for.
    #[error("{0}")]
    Syntax(String),
    /// An unknown field, or a value of the wrong type.
    #[error("{path}: {text}")]
    Type {
        /// The field.
        path: String,
        /// The value found and the value expected.
        text: String,
    },
    /// Another kind of file.
    #[error(
        "apiVersion {0:?}, kind {1:?}: want kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration"
    )]
    Kind(String, String),
    /// A value that is not allowed.
    #[error("{path}: Invalid value: {value}: {text}")]
    Invalid {
        /// The field.
        path: String,
        /// The value in the file.
        value: String,
        /// The error.
        text: String,
    },
    /// A value that is missing.
    #[error("{path}: Required value: {text}")]
    Required {
        /// The field.
        path: String,
        /// The condition under which the field is required.
        text: String,
    },
    /// An unsupported value.
    #[error("{path}: Unsupported value: {value:?}: supported values: {known}")]
    Unsupported {
        /// The field.
        path: String,
        /// The value in the file.
        value: String,
        /// The supported values, as a text.
        known: String,
    },
    /// There is no plugin of this name.
    #[error("{path}: plugin {name:?} does not exist")]
    UnknownPlugin {
        /// The field.
        path: String,
        /// The name.
        name: String,
    },
    /// A plugin of upstream that is not part of this scheduler.
    #[error("{path}: plugin {name:?} exists in kube-scheduler, but not in allot")]
    MissingPlugin {
        /// The field.
        path: String,
        /// The name.
        name: String,
    },
    /// A plugin at an extension point that it does not support, listed twice, or missing.
    #[error("{path}: {text}")]
    Plugin {
        /// The field.
        path: String,
        /// The error.
        text: String,
    },
    /// Two profiles for one scheduler name, or two lists of arguments for one plugin.
    #[error("{path}: Duplicate value: {name:?}")]
    Duplicate {
        /// The field.
        path: String,
        /// The duplicate value.
        name: String,
    },
    /// A setting of a feature that is off.
    #[error("{path}: Forbidden: {text}")]
    Forbidden {
        /// The field.
        path: String,
        /// The reason why it is rejected.
        text: String,
    },
}

fn invalid(path: &str, value: impl std::fmt::Display, text: &str) -> ConfigError {
    ConfigError::Invalid {
        path: path.to_owned(),
        value: value.to_string(),
        text: text.to_owned(),
    }
}

fn required(path: &str, text: &str) -> ConfigError {
    ConfigError::Required {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn unsupported(path: &str, value: &str, known: &[&str]) -> ConfigError {
    let known: Vec<String> = known.iter().map(|k| format!("{k:?}")).collect();
    ConfigError::Unsupported {
        path: path.to_owned(),
        value: value.to_owned(),
        known: known.join(", "),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    parallelism: Option<i64>,
    #[serde(default)]
    leader_election: Option<LeaderElection>,
    #[serde(default)]
    client_connection: Option<ClientConnection>,
    #[serde(default)]
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    pod_initial_backoff_seconds: Option<i64>,
    #[serde(default)]
    pod_max_backoff_seconds: Option<i64>,
    #[serde(default)]
    profiles: Vec<FileProfile>,
    #[serde(default)]
    extenders: Vec<Value>,
    /// Accepted, without meaning here.
    #[serde(default, rename = "enableProfiling")]
    _profiling: Option<bool>,
    /// Accepted, without meaning here.
    #[serde(default, rename = "enableContentionProfiling")]
    _contention: Option<bool>,
    /// Accepted, without meaning here.
    #[serde(default, rename = "delayCacheUntilActive")]
    _delay: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaderElection {
    leader_elect: Option<bool>,
    lease_duration: Option<DurationText>,
    renew_deadline: Option<DurationText>,
    retry_period: Option<DurationText>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientConnection {
    kubeconfig: Option<String>,
    #[serde(rename = "acceptContentTypes")]
    _accept: Option<String>,
    #[serde(rename = "contentType")]
    _content: Option<String>,
    qps: Option<f32>,
    burst: Option<u32>,
}

/// Reads a configuration file. The features decide which arguments are allowed.
///
/// # Errors
/// See [`ConfigError`]; the first problem is reported.
pub fn parse(text: &str, features: allot_model::features::Features) -> Result<Config, ConfigError> {
    let file: Value =
        serde_saphyr::from_str(text).map_err(|e| ConfigError::Syntax(e.to_string()))?;
    // First, because other kinds have other fields.
    if let (Some(version), Some(kind)) = (file["apiVersion"].as_str(), file["kind"].as_str())
        && (version != API_VERSION || kind != "KubeSchedulerConfiguration")
    {
        return Err(ConfigError::Kind(version.to_owned(), kind.to_owned()));
    }
    if !file.is_object() {
        // Another file by mistake: its content is not repeated in the message.
        return Err(ConfigError::Syntax("it is not a mapping".to_owned()));
    }
    let file: File = typed("", file)?;
    let mut config = Config {
        features,
        ..Config::default()
    };
    if let Some(n) = file.parallelism.filter(|n| *n <= 0) {
        return Err(invalid(
            "parallelism",
            n,
            "should be an integer value greater than zero",
        ));
    }
    if !file.extenders.is_empty() {
        return Err(invalid(
            "extenders",
            file.extenders.len(),
            "extenders are not supported",
        ));
    }
    if let Some(seconds) = file.pod_initial_backoff_seconds {
        config.backoff.initial = backoff("podInitialBackoffSeconds", seconds)?;
    }
    if let Some(seconds) = file.pod_max_backoff_seconds {
        config.backoff.max = backoff("podMaxBackoffSeconds", seconds)?;
    }
    if config.backoff.max < config.backoff.initial {
        let text = "must be greater than or equal to PodInitialBackoffSeconds";
        return Err(invalid(
            "podMaxBackoffSeconds",
            config.backoff.max.as_secs(),
            text,
        ));
    }
    if let Some(election) = file.leader_election {
        config.leader_election = leader_election(election)?;
    }
    if let Some(connection) = file.client_connection {
        config.client_connection = super::ClientConnection {
            kubeconfig: connection.kubeconfig.filter(|k| !k.is_empty()),
            qps: connection.qps,
            burst: connection.burst,
        };
    }
    let everywhere = percentage(
        "percentageOfNodesToScore",
        file.percentage_of_nodes_to_score,
    )?;
    if !file.profiles.is_empty() {
        config.profiles = Vec::new();
    }
    for (i, profile) in file.profiles.into_iter().enumerate() {
        let path = format!("profiles[{i}]");
        let profile = read_profile(&path, profile, &config.features)?;
        if config.profiles.iter().any(|p| p.name == profile.name) {
            return Err(ConfigError::Duplicate {
                path: format!("{path}.schedulerName"),
                name: profile.name.to_string(),
            });
        }
        config.profiles.push(profile);
    }
    for profile in &mut config.profiles {
        profile.percentage_of_nodes = profile.percentage_of_nodes.or(everywhere);
    }
    Ok(config)
}

fn backoff(path: &str, seconds: i64) -> Result<Duration, ConfigError> {
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(invalid(path, seconds, "must be greater than 0")),
    }
}

fn percentage(path: &str, value: Option<i64>) -> Result<Option<u32>, ConfigError> {
    value
        .map(|n| {
            u32::try_from(n)
                .ok()
                .filter(|n| *n <= 100)
                .ok_or_else(|| invalid(path, n, "not in valid range [0-100]"))
        })
        .transpose()
}

fn leader_election(file: LeaderElection) -> Result<super::LeaderElection, ConfigError> {
    let mut out = super::LeaderElection::default();
    // Empty and zero values count as unset.
    let given = |text: Option<String>| text.filter(|t| !t.is_empty());
    out.enabled = file.leader_elect.unwrap_or(out.enabled);
    out.name = given(file.resource_name).unwrap_or(out.name);
    out.namespace = given(file.resource_namespace).unwrap_or(out.namespace);
    let times = [
        (
            &mut out.lease_duration,
            "leaseDuration",
            file.lease_duration,
        ),
        (
            &mut out.renew_deadline,
            "renewDeadline",
            file.renew_deadline,
        ),
        (&mut out.retry_period, "retryPeriod", file.retry_period),
    ];
    for (target, field, text) in times {
        let Some(DurationText(text)) = text else {
            continue;
        };
        let path = format!("leaderElection.{field}");
        if text.starts_with('-') {
            return Err(invalid(&path, text, "must be greater than zero"));
        }
        let time = go_duration(&path, &text)?;
        if !time.is_zero() {
            *target = time;
        }
    }
    if !out.enabled {
        return Ok(out);
    }
    if let Some(lock) = given(file.resource_lock).filter(|l| l != "leases") {
        let text = "resourceLock value must be \"leases\"";
        return Err(invalid(
            "leaderElection.resourceLock",
            format!("{lock:?}"),
            text,
        ));
    }
    let refuse = |field: &str, time: Duration, text: &str| {
        Err(invalid(
            &format!("leaderElection.{field}"),
            format!("{time:?}"),
            text,
        ))
    };
    if out.lease_duration <= out.renew_deadline {
        let text = "must be greater than `RenewDeadline`";
        return refuse("leaseDuration", out.lease_duration, text);
    }
    // Attempts come up to a fifth late; one must fit in.
    if out.renew_deadline <= out.retry_period.mul_f64(1.2) {
        let text = "must be greater than retryPeriod*JitterFactor";
        return refuse("renewDeadline", out.renew_deadline, text);
    }
    Ok(out)
}

/// Reads a duration as Go writes it: `10s`, `1m30s`, `1.5h`, `0`. Negative ones are errors.
fn go_duration(path: &str, text: &str) -> Result<Duration, ConfigError> {
    let wrong = || invalid(path, format!("{text:?}"), "is not a duration");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(invalid(path, text, "must be zero or positive"));
    }
    let mut total = 0f64;
    let mut rest = text.trim_start_matches('+');
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        total += number
            * match unit {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(wrong()),
            };
        rest = tail;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(total).map_err(|_| wrong())
}
