//! One profile: which plugins are on at which point, with which weights.

use std::sync::Arc;

use serde::Deserialize;

use super::args::{PluginConfig, arguments};
use super::{ConfigError, invalid, percentage};
use crate::config::Profile;
use crate::plugins::{Plugin, PluginSet};

/// Plugins of upstream's default profile that deal with things that are not in scope.
const ELSEWHERE: [&str; 1] = ["NodeDeclaredFeatures"];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    plugins: Plugins,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
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

/// The plugin with a name, as far as it is one of ours.
pub(super) fn known(path: &str, name: &str) -> Result<Plugin, ConfigError> {
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

/// Reads one profile; `path` is its place in the file.
pub(super) fn read_profile(
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
