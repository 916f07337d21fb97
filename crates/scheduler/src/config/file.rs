//! Reading a KubeSchedulerConfiguration. Strict: what is not understood is an error, not a setting without effect.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Config, DynamicResourcesArgs, Profile};
use crate::plugins::fit::{FitArgs, Strategy};
use crate::plugins::{Plugin, PluginSet};

/// What is wrong with a configuration, with the path of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not YAML, an unknown field, or a value of the wrong type.
    #[error("{0}")]
    Syntax(String),
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
        /// Its value.
        value: String,
        /// What is wrong with it.
        text: String,
    },
    /// A plugin that nobody knows.
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
    /// Two profiles for one scheduler name.
    #[error("{path}: Duplicate value: {name:?}")]
    Duplicate {
        /// The field.
        path: String,
        /// The value that stands there twice.
        name: String,
    },
    /// A setting of a feature that is off.
    #[error("{path}: Forbidden: {text}")]
    Forbidden {
        /// The field.
        path: String,
        /// Why.
        text: String,
    },
}

/// Plugins of upstream's default profile that deal with things that are not in scope.
const ELSEWHERE: [&str; 6] = [
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "GangScheduling",
    "NodeDeclaredFeatures",
];

fn invalid(path: &str, value: impl std::fmt::Display, text: &str) -> ConfigError {
    ConfigError::Invalid {
        path: path.to_owned(),
        value: value.to_string(),
        text: text.to_owned(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
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
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
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

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    plugins: Plugins,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Plugins {
    pre_enqueue: Sets,
    queue_sort: Sets,
    pre_filter: Sets,
    filter: Sets,
    post_filter: Sets,
    pre_score: Sets,
    score: Sets,
    reserve: Sets,
    permit: Sets,
    pre_bind: Sets,
    bind: Sets,
    post_bind: Sets,
    multi_point: Sets,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sets {
    enabled: Vec<Named>,
    disabled: Vec<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    weight: Option<i64>,
}

/// Reads a configuration file. The features decide which arguments are allowed.
///
/// # Errors
/// See [`ConfigError`]; the first problem is reported.
pub fn parse(text: &str, features: allot_model::features::Features) -> Result<Config, ConfigError> {
    let file: File =
        serde_saphyr::from_str(text).map_err(|e| ConfigError::Syntax(e.to_string()))?;
    if file.api_version != "kubescheduler.config.k8s.io/v1"
        || file.kind != "KubeSchedulerConfiguration"
    {
        return Err(ConfigError::Kind(file.api_version, file.kind));
    }
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
    if let Some(lock) = file.resource_lock.filter(|l| l != "leases") {
        return Err(invalid(
            "leaderElection.resourceLock",
            lock,
            "resourceLock value must be \"leases\"",
        ));
    }
    let set = |target: &mut Duration, field: &str, value: Option<String>| {
        if let Some(text) = value {
            *target = go_duration(&format!("leaderElection.{field}"), &text)?;
        }
        Ok(())
    };
    set(
        &mut out.lease_duration,
        "leaseDuration",
        file.lease_duration,
    )?;
    set(
        &mut out.renew_deadline,
        "renewDeadline",
        file.renew_deadline,
    )?;
    set(&mut out.retry_period, "retryPeriod", file.retry_period)?;
    out.enabled = file.leader_elect.unwrap_or(out.enabled);
    out.name = file.resource_name.unwrap_or(out.name);
    out.namespace = file.resource_namespace.unwrap_or(out.namespace);
    if out.enabled && out.lease_duration <= out.renew_deadline {
        let text = "LeaseDuration must be greater than RenewDeadline";
        return Err(invalid(
            "leaderElection.leaseDuration",
            format!("{:?}", out.lease_duration),
            text,
        ));
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

fn known(path: &str, name: &str) -> Result<Plugin, ConfigError> {
    Plugin::by_name(name).ok_or_else(|| {
        let (path, name) = (path.to_owned(), name.to_owned());
        if ELSEWHERE.contains(&&*name) {
            ConfigError::MissingPlugin { path, name }
        } else {
            ConfigError::UnknownPlugin { path, name }
        }
    })
}

/// Applies `disabled`, then `enabled`; says for each enabled plugin which weight was given.
fn apply(
    path: &str,
    sets: &Sets,
    target: &mut PluginSet,
) -> Result<Vec<(Plugin, Option<i64>)>, ConfigError> {
    for plugin in &sets.disabled {
        if plugin.name == "*" {
            *target = PluginSet::default();
        } else if let Some(plugin) = Plugin::by_name(&plugin.name) {
            target.remove(plugin);
        } else if !ELSEWHERE.contains(&&*plugin.name) {
            let path = format!("{path}.disabled");
            return Err(ConfigError::UnknownPlugin {
                path,
                name: plugin.name.clone(),
            });
        }
    }
    let mut enabled = Vec::new();
    for (i, named) in sets.enabled.iter().enumerate() {
        let plugin = known(&format!("{path}.enabled[{i}].name"), &named.name)?;
        target.insert(plugin);
        enabled.push((plugin, named.weight));
    }
    Ok(enabled)
}

fn read_profile(
    path: &str,
    file: FileProfile,
    features: &allot_model::features::Features,
) -> Result<Profile, ConfigError> {
    let mut profile = Profile::default();
    if let Some(name) = file.scheduler_name {
        if name.is_empty() {
            return Err(invalid(
                &format!("{path}.schedulerName"),
                "\"\"",
                "must be set",
            ));
        }
        profile.name = Arc::from(name);
    }
    let field = format!("{path}.percentageOfNodesToScore");
    profile.percentage_of_nodes = percentage(&field, file.percentage_of_nodes_to_score)?;
    let plugins = &file.plugins;
    let at = |point: &str| format!("{path}.plugins.{point}");
    let mut weights: Vec<(Plugin, i64)> = profile.weights.clone();
    let mut everywhere = PluginSet::all();
    let given = apply(&at("multiPoint"), &plugins.multi_point, &mut everywhere)?;
    let mut scores: PluginSet = everywhere.iter().filter(|p| p.scores()).collect();
    profile.post_filters = everywhere;
    profile.filters = everywhere;
    let own = apply(&at("score"), &plugins.score, &mut scores)?;
    for (plugin, weight) in given.into_iter().chain(own) {
        if let Some(weight) = weight.filter(|w| *w != 0) {
            match weights.iter_mut().find(|(p, _)| *p == plugin) {
                Some(entry) => entry.1 = weight,
                None => weights.push((plugin, weight)),
            }
        }
    }
    profile.weights = weights
        .into_iter()
        .filter(|(p, _)| scores.contains(*p))
        .collect();
    apply(
        &at("postFilter"),
        &plugins.post_filter,
        &mut profile.post_filters,
    )?;
    apply(&at("filter"), &plugins.filter, &mut profile.filters)?;
    apply(&at("preFilter"), &plugins.pre_filter, &mut profile.filters)?;
    // A plugin of ours is one piece: at these points it is on where it filters.
    let others = [
        ("preEnqueue", &plugins.pre_enqueue),
        ("queueSort", &plugins.queue_sort),
        ("preScore", &plugins.pre_score),
        ("reserve", &plugins.reserve),
        ("permit", &plugins.permit),
        ("preBind", &plugins.pre_bind),
        ("bind", &plugins.bind),
        ("postBind", &plugins.post_bind),
    ];
    for (point, sets) in others {
        apply(&at(point), sets, &mut PluginSet::all())?;
    }
    for (i, config) in file.plugin_config.into_iter().enumerate() {
        let path = format!("{path}.pluginConfig[{i}]");
        arguments(&path, config, &mut profile, features)?;
    }
    Ok(profile)
}

fn args<T: DeserializeOwned>(path: &str, value: Value) -> Result<T, ConfigError> {
    let value = match value {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(mut map) => {
            // Every argument object may say what it is.
            map.remove("apiVersion");
            map.remove("kind");
            Value::Object(map)
        }
        other => other,
    };
    serde_json::from_value(value).map_err(|e| ConfigError::Syntax(format!("{path}.args: {e}")))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DraArgs {
    filter_timeout: Option<String>,
    binding_timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[derive(Default)]
struct FitFile {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    shape: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    utilization: i64,
    score: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BalancedFile {
    #[serde(default)]
    resources: Vec<ResourceSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InterPodFile {
    hard_pod_affinity_weight: Option<i64>,
    #[serde(rename = "ignorePreferredTermsOfExistingPods")]
    _ignore: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreemptionFile {
    #[serde(rename = "minCandidateNodesPercentage")]
    _percentage: Option<i64>,
    #[serde(rename = "minCandidateNodesAbsolute")]
    _absolute: Option<i64>,
}

fn arguments(
    path: &str,
    config: PluginConfig,
    profile: &mut Profile,
    features: &allot_model::features::Features,
) -> Result<(), ConfigError> {
    match config.name.as_str() {
        "DynamicResources" => {
            profile.dynamic_resources = dynamic_resources(path, args(path, config.args)?, features)?
        }
        "NodeResourcesFit" => profile.fit = fit(path, args(path, config.args)?)?,
        "NodeResourcesBalancedAllocation" => {
            let file: BalancedFile = args(path, config.args)?;
            if !file.resources.is_empty() {
                profile.balanced = resources(path, file.resources)?;
            }
        }
        "InterPodAffinity" => {
            let file: InterPodFile = args(path, config.args)?;
            if let Some(weight) = file.hard_pod_affinity_weight {
                if !(0..=100).contains(&weight) {
                    let path = format!("{path}.args.hardPodAffinityWeight");
                    return Err(invalid(&path, weight, "not in valid range [0, 100]"));
                }
                profile.hard_pod_affinity_weight = weight;
            }
        }
        "DefaultPreemption" => {
            let _: PreemptionFile = args(path, config.args)?;
        }
        name => {
            known(&format!("{path}.name"), name)?;
            let empty = config
                .args
                .as_object()
                .is_none_or(|m| m.keys().all(|k| k == "kind" || k == "apiVersion"));
            if !empty {
                return Err(invalid(
                    &format!("{path}.args"),
                    name,
                    "arguments of this plugin are not supported",
                ));
            }
        }
    }
    Ok(())
}

fn dynamic_resources(
    path: &str,
    file: DraArgs,
    features: &allot_model::features::Features,
) -> Result<DynamicResourcesArgs, ConfigError> {
    use allot_model::features::Feature;
    let on = |f| features.enabled(f);
    let mut out = DynamicResourcesArgs::default();
    if !on(Feature::DRASchedulerFilterTimeout) {
        out.filter_timeout = None;
    }
    if let Some(text) = file.filter_timeout {
        let path = format!("{path}.args.filterTimeout");
        if !on(Feature::DRASchedulerFilterTimeout) {
            let text = "DRASchedulingFilterTimeout feature gate is disabled".to_owned();
            return Err(ConfigError::Forbidden { path, text });
        }
        out.filter_timeout = Some(go_duration(&path, &text)?).filter(|t| !t.is_zero());
    }
    if let Some(text) = file.binding_timeout {
        let path = format!("{path}.args.bindingTimeout");
        if !on(Feature::DRADeviceBindingConditions) || !on(Feature::DRAResourceClaimDeviceStatus) {
            let text =
                "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled".to_owned();
            return Err(ConfigError::Forbidden { path, text });
        }
        out.binding_timeout = go_duration(&path, &text)?;
        if out.binding_timeout < Duration::from_secs(1) {
            return Err(invalid(&path, text, "must be at least 1 second"));
        }
    }
    Ok(out)
}

fn resources(path: &str, list: Vec<ResourceSpec>) -> Result<Vec<(Arc<str>, i64)>, ConfigError> {
    list.into_iter()
        .map(|r| match r.weight.unwrap_or(1) {
            weight @ 1..=100 => Ok((Arc::from(r.name), weight)),
            weight => Err(invalid(
                &format!("{path}.args.resources[{}].weight", r.name),
                weight,
                "not in valid range [1, 100]",
            )),
        })
        .collect()
}

fn fit(path: &str, file: FitFile) -> Result<FitArgs, ConfigError> {
    let mut out = FitArgs {
        ignored_resources: file.ignored_resources,
        ignored_groups: file.ignored_resource_groups,
        ..FitArgs::default()
    };
    let Some(strategy) = file.scoring_strategy else {
        return Ok(out);
    };
    let field = format!("{path}.args.scoringStrategy");
    out.strategy = match strategy.kind.as_deref() {
        None | Some("LeastAllocated") => Strategy::LeastAllocated,
        Some("MostAllocated") => Strategy::MostAllocated,
        Some("RequestedToCapacityRatio") => {
            let shape = strategy
                .requested_to_capacity_ratio
                .map(|r| r.shape)
                .unwrap_or_default();
            if shape.is_empty() {
                let field = format!("{field}.requestedToCapacityRatio.shape");
                return Err(invalid(
                    &field,
                    "[]",
                    "at least one point must be specified",
                ));
            }
            Strategy::RequestedToCapacityRatio(
                shape
                    .into_iter()
                    .map(|p| (p.utilization, p.score))
                    .collect(),
            )
        }
        Some(other) => {
            return Err(invalid(
                &format!("{field}.type"),
                format!("{other:?}"),
                "is not a known strategy",
            ));
        }
    };
    if !strategy.resources.is_empty() {
        out.resources = resources(path, strategy.resources)?;
    }
    Ok(out)
}
