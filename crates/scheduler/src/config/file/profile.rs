//! One profile: which plugins are on at which point, with which weights.

use std::sync::Arc;

use serde::Deserialize;

use super::args::{PluginConfig, arguments};
use super::{ConfigError, invalid, percentage};
use crate::config::Profile;
use crate::framework::{Plugin, PluginSet};
use crate::plugins::points::ExtensionPoint;

/// Plugins of upstream whose functions are not in scope.
const ELSEWHERE: [&str; 2] = ["TopologyPlacementGenerator", "PodGroupPodsCount"];

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
    weight: Option<i32>,
}

impl Plugins {
    fn at(&self, point: ExtensionPoint) -> &Sets {
        match point {
            ExtensionPoint::PreFilter => &self.pre_filter,
            ExtensionPoint::Filter => &self.filter,
            ExtensionPoint::PostFilter => &self.post_filter,
            ExtensionPoint::Reserve => &self.reserve,
            ExtensionPoint::PreScore => &self.pre_score,
            ExtensionPoint::Score => &self.score,
            ExtensionPoint::PreBind => &self.pre_bind,
            ExtensionPoint::Bind => &self.bind,
            ExtensionPoint::PostBind => &self.post_bind,
            ExtensionPoint::Permit => &self.permit,
            ExtensionPoint::PreEnqueue => &self.pre_enqueue,
            ExtensionPoint::QueueSort => &self.queue_sort,
        }
    }

    /// Rejects plugins at extension points that they do not support, and duplicates.
    fn check(&self, path: &str) -> Result<(), ConfigError> {
        let refuse = |path: String, text: String| Err(ConfigError::Plugin { path, text });
        for point in ExtensionPoint::ALL.iter().copied() {
            let mut seen = PluginSet::default();
            for (i, Named { name, .. }) in self.at(point).enabled.iter().enumerate() {
                let path = format!("{path}.{}.enabled[{i}].name", point.field());
                let plugin = known(&path, name)?;
                let kind = point.interface();
                if !plugin.extends(point) {
                    return refuse(
                        path,
                        format!("plugin {name:?} does not extend {kind} plugin"),
                    );
                }
                if seen.contains(plugin) {
                    return refuse(
                        path,
                        format!("plugin {name:?} already registered as {kind:?}"),
                    );
                }
                seen.insert(plugin);
            }
        }
        let mut seen = PluginSet::default();
        for (i, Named { name, .. }) in self.multi_point.enabled.iter().enumerate() {
            let path = format!("{path}.multiPoint.enabled[{i}].name");
            let plugin = known(&path, name)?;
            // The setting at an extension point takes precedence over `multiPoint`.
            let counts = |point: &ExtensionPoint| {
                let sets = self.at(*point);
                plugin.extends(*point)
                    && !sets.enabled.iter().any(|n| n.name == *name)
                    && !sets
                        .disabled
                        .iter()
                        .any(|n| n.name == *name || n.name == "*")
            };
            if seen.contains(plugin)
                && let Some(point) = ExtensionPoint::ALL.iter().copied().find(counts)
            {
                let kind = point.interface();
                return refuse(
                    path,
                    format!("plugin {name:?} already registered as {kind:?}"),
                );
            }
            seen.insert(plugin);
        }
        Ok(())
    }
}

/// The plugin with a name; `None` for one that does not exist here.
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

/// Applies `disabled`, then `enabled`; returns the weight of each enabled plugin. A plugin that is enabled without a
/// weight gets weight 1, not its weight in the default profile.
fn apply(
    path: &str,
    sets: &Sets,
    target: &mut PluginSet,
) -> Result<Vec<(Plugin, i64)>, ConfigError> {
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
        let weight = named.weight.filter(|w| *w != 0).unwrap_or(1);
        enabled.push((plugin, i64::from(weight)));
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
    plugins.check(&format!("{path}.plugins"))?;
    let at = |point: &str| format!("{path}.plugins.{point}");
    let mut weights: Vec<(Plugin, i64)> = profile.weights.clone();
    let mut everywhere = PluginSet::all();
    let given = apply(&at("multiPoint"), &plugins.multi_point, &mut everywhere)?;
    let mut scores: PluginSet = everywhere.iter().filter(|p| p.scores()).collect();
    profile.post_filters = everywhere;
    profile.filters = everywhere;
    let own = apply(&at("score"), &plugins.score, &mut scores)?;
    for (plugin, weight) in given.into_iter().chain(own) {
        match weights.iter_mut().find(|(p, _)| *p == plugin) {
            Some(entry) => entry.1 = weight,
            None => weights.push((plugin, weight)),
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
    // Here a plugin is one unit: at these points it is on where it filters.
    let others = [
        ExtensionPoint::PreEnqueue,
        ExtensionPoint::QueueSort,
        ExtensionPoint::PreScore,
        ExtensionPoint::Reserve,
        ExtensionPoint::Permit,
        ExtensionPoint::PreBind,
        ExtensionPoint::Bind,
        ExtensionPoint::PostBind,
    ];
    for point in others {
        let mut there = everywhere.iter().filter(|p| p.extends(point)).collect();
        apply(&at(point.field()), plugins.at(point), &mut there)?;
        let name = &profile.name;
        let text = match point {
            ExtensionPoint::QueueSort if there.is_empty() => format!(
                "only one queue sort plugin required for profile with scheduler name {name:?}, but got 0"
            ),
            ExtensionPoint::Bind if there.is_empty() => format!(
                "at least one bind plugin is needed for profile with scheduler name {name:?}"
            ),
            _ => continue,
        };
        let path = at(point.field());
        return Err(ConfigError::Plugin { path, text });
    }
    let mut configured: Vec<String> = Vec::new();
    for (i, config) in file.plugin_config.into_iter().enumerate() {
        let path = format!("{path}.pluginConfig[{i}]");
        let name = config.name.clone();
        if configured.contains(&name) {
            return Err(ConfigError::Duplicate { path, name });
        }
        configured.push(name);
        arguments(&path, config, &mut profile, features)?;
    }
    Ok(profile)
}
