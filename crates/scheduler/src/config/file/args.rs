//! Arguments of plugins.

use std::time::Duration;

use allot_allocator::Policy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::profile::known;
use super::typed::{DurationText, typed};
use super::{API_VERSION, ConfigError, go_duration, invalid};
use crate::config::{DynamicResourcesArgs, Profile};

mod affinity;
mod resources;
mod spread;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginConfig {
    pub(super) name: String,
    #[serde(default)]
    args: Value,
}

const GROUP: &str = "kubescheduler.config.k8s.io";

/// Kinds of plugin arguments. Other kinds are rejected.
const KINDS: [&str; 9] = [
    "KubeSchedulerConfiguration",
    "DefaultPreemptionArgs",
    "DynamicResourcesArgs",
    "InterPodAffinityArgs",
    "NodeAffinityArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PodTopologySpreadArgs",
    "VolumeBindingArgs",
];

/// Reads the arguments of a plugin.
fn args<T: DeserializeOwned>(path: &str, config: PluginConfig) -> Result<T, ConfigError> {
    let path = format!("{path}.args");
    let value = match config.args {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(mut map) => {
            let says = TypeMeta {
                api_version: typed(&format!("{path}.apiVersion"), take(&mut map, "apiVersion"))?,
                kind: typed(&format!("{path}.kind"), take(&mut map, "kind"))?,
            };
            says.check(&path, &config.name)?;
            Value::Object(map)
        }
        other => other,
    };
    typed(&path, value)
}

fn take(map: &mut serde_json::Map<String, Value>, field: &str) -> Value {
    map.remove(field).unwrap_or_default()
}

/// `apiVersion` and `kind` of the arguments.
struct TypeMeta {
    api_version: Option<String>,
    kind: Option<String>,
}

impl TypeMeta {
    /// Rejects arguments of another kind or version than the plugin's. Fields that are not set are allowed.
    fn check(self, path: &str, plugin: &str) -> Result<(), ConfigError> {
        let wanted = format!("{plugin}Args");
        let given = |text: Option<String>| text.filter(|t| !t.is_empty());
        let kind = given(self.kind).unwrap_or(wanted.clone());
        let version = given(self.api_version).unwrap_or(API_VERSION.to_owned());
        let text = if version != API_VERSION || !KINDS.contains(&&*kind) {
            format!(
                "no kind {kind:?} is registered for version {version:?}: want {wanted} of {API_VERSION}"
            )
        } else if kind != wanted {
            format!(
                "args for plugin {plugin} were not of type {wanted}.{GROUP}, got {kind}.{GROUP}"
            )
        } else {
            return Ok(());
        };
        Err(ConfigError::Type {
            path: path.to_owned(),
            text,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DraArgs {
    filter_timeout: Option<DurationText>,
    binding_timeout: Option<DurationText>,
    placement_policy: Option<String>,
    placement_weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingFile {
    bind_timeout_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InterPodFile {
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PreemptionFile {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

/// Applies the arguments of one plugin.
pub(super) fn arguments(
    path: &str,
    config: PluginConfig,
    profile: &mut Profile,
    features: &allot_model::features::Features,
) -> Result<(), ConfigError> {
    match config.name.as_str() {
        "DynamicResources" => {
            profile.dynamic_resources = dynamic_resources(path, args(path, config)?, features)?
        }
        "NodeResourcesFit" => profile.fit = resources::fit(path, args(path, config)?)?,
        "NodeResourcesBalancedAllocation" => {
            if let Some(balanced) = resources::balanced(path, args(path, config)?)? {
                profile.balanced = balanced;
            }
        }
        "InterPodAffinity" => {
            let file: InterPodFile = args(path, config)?;
            if let Some(weight) = file.hard_pod_affinity_weight {
                if !(0..=100).contains(&weight) {
                    let path = format!("{path}.args.hardPodAffinityWeight");
                    return Err(invalid(&path, weight, "not in valid range [0, 100]"));
                }
                profile.hard_pod_affinity_weight = weight;
            }
            profile.ignore_preferred_terms_of_existing_pods = file
                .ignore_preferred_terms_of_existing_pods
                .unwrap_or_default();
        }
        "VolumeBinding" => {
            let file: VolumeBindingFile = args(path, config)?;
            if let Some(seconds) = file.bind_timeout_seconds {
                let path = format!("{path}.args.bindTimeoutSeconds");
                let text = "invalid BindTimeoutSeconds, should not be a negative value";
                let seconds = u64::try_from(seconds).map_err(|_| invalid(&path, seconds, text))?;
                profile.volume_binding_timeout = Duration::from_secs(seconds);
            }
        }
        "NodeAffinity" => {
            profile.added_affinity = affinity::added(path, args(path, config)?)?;
        }
        "PodTopologySpread" => profile.spread = spread::spread(path, args(path, config)?)?,
        "DefaultPreemption" => {
            preemption(path, &args(path, config)?, profile)?;
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

fn preemption(path: &str, file: &PreemptionFile, profile: &mut Profile) -> Result<(), ConfigError> {
    let read = |field: &str, value: Option<i32>, most: i32, range: &str, target: &mut u32| {
        let Some(n) = value else {
            return Ok(());
        };
        match u32::try_from(n) {
            Ok(valid) if n <= most => *target = valid,
            _ => {
                let text = format!("not in valid range {range}");
                return Err(invalid(&format!("{path}.args.{field}"), n, &text));
            }
        }
        Ok(())
    };
    read(
        "minCandidateNodesPercentage",
        file.min_candidate_nodes_percentage,
        100,
        "[0, 100]",
        &mut profile.min_candidate_nodes_percentage,
    )?;
    read(
        "minCandidateNodesAbsolute",
        file.min_candidate_nodes_absolute,
        i32::MAX,
        "[0, inf)",
        &mut profile.min_candidate_nodes_absolute,
    )?;
    if profile.min_candidate_nodes_percentage == 0 && profile.min_candidate_nodes_absolute == 0 {
        let text = "cannot be zero at the same time as minCandidateNodesAbsolute";
        let path = format!("{path}.args.minCandidateNodesPercentage");
        return Err(invalid(&path, 0, text));
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
    if let Some(DurationText(text)) = file.filter_timeout {
        let path = format!("{path}.args.filterTimeout");
        if !on(Feature::DRASchedulerFilterTimeout) {
            let text = "DRASchedulingFilterTimeout feature gate is disabled".to_owned();
            return Err(ConfigError::Forbidden { path, text });
        }
        out.filter_timeout = Some(go_duration(&path, &text)?).filter(|t| !t.is_zero());
    }
    if let Some(DurationText(text)) = file.binding_timeout {
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
    if let Some(name) = file.placement_policy {
        let known = Policy::NAMED.iter().find(|(known, _)| *known == name);
        let Some((_, policy)) = known else {
            let names = Policy::NAMED
                .map(|(name, _)| format!("{name:?}"))
                .join(", ");
            let text = format!("supported values: {names}");
            let path = format!("{path}.args.placementPolicy");
            return Err(invalid(&path, format!("{name:?}"), &text));
        };
        out.placement = *policy;
    }
    if let Some(weight) = file.placement_weight {
        if !(1..=1000).contains(&weight) {
            let path = format!("{path}.args.placementWeight");
            return Err(invalid(&path, weight, "not in valid range [1, 1000]"));
        }
        out.placement_weight = weight;
    }
    Ok(out)
}
