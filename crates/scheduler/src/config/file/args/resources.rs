//! Arguments of NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::sync::Arc;

use allot_apimachinery::names;
use serde::Deserialize;

use super::super::{ConfigError, invalid, required, unsupported};
use crate::plugins::fit::{FitArgs, Strategy};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FitFile {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    #[serde(default)]
    weight: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    #[serde(default)]
    shape: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Point {
    #[serde(default)]
    utilization: i32,
    #[serde(default)]
    score: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct BalancedFile {
    #[serde(default)]
    resources: Vec<ResourceSpec>,
}

/// Resources with weights.
type Weights = Vec<(Arc<str>, i64)>;

/// Names with weights; no weight, or 0, is 1.
fn weighed(list: Vec<ResourceSpec>) -> Weights {
    let weight = |w| if w == 0 { 1 } else { w };
    list.into_iter()
        .map(|r| (Arc::from(r.name), weight(r.weight)))
        .collect()
}

/// The resources of NodeResourcesBalancedAllocation; `None` when there are no others than by default.
pub(super) fn balanced(path: &str, file: BalancedFile) -> Result<Option<Weights>, ConfigError> {
    let resources = weighed(file.resources);
    for (i, (name, weight)) in resources.iter().enumerate() {
        let path = format!("{path}.args.resources[{i}]");
        if resources[..i].iter().any(|(other, _)| other == name) {
            return Err(ConfigError::Duplicate {
                path: format!("{path}.name"),
                name: name.to_string(),
            });
        }
        if *weight != 1 {
            return Err(invalid(&format!("{path}.weight"), weight, "must be 1"));
        }
    }
    Ok((!resources.is_empty()).then_some(resources))
}

/// The arguments of NodeResourcesFit.
pub(super) fn fit(path: &str, file: FitFile) -> Result<FitArgs, ConfigError> {
    let path = format!("{path}.args");
    label_names(
        &format!("{path}.ignoredResources"),
        &file.ignored_resources,
        |_| None,
    )?;
    label_names(
        &format!("{path}.ignoredResourceGroups"),
        &file.ignored_resource_groups,
        |group| {
            group
                .contains('/')
                .then_some("resource group name can't contain '/'")
        },
    )?;
    let mut out = FitArgs {
        ignored_resources: file.ignored_resources,
        ignored_groups: file.ignored_resource_groups,
        ..FitArgs::default()
    };
    if let Some(strategy) = file.scoring_strategy {
        scoring(&format!("{path}.scoringStrategy"), strategy, &mut out)?;
    }
    Ok(out)
}

/// Checks names of resources; `other` is what else may be wrong with one.
fn label_names(
    path: &str,
    list: &[String],
    other: impl Fn(&str) -> Option<&'static str>,
) -> Result<(), ConfigError> {
    for (i, name) in list.iter().enumerate() {
        let problem = other(name).map(str::to_owned);
        let problem = problem.or_else(|| names::qualified_name(name).into_iter().next());
        if let Some(text) = problem {
            return Err(invalid(&format!("{path}[{i}]"), format!("{name:?}"), &text));
        }
    }
    Ok(())
}

fn scoring(path: &str, file: ScoringStrategy, out: &mut FitArgs) -> Result<(), ConfigError> {
    const RATIO: &str = "RequestedToCapacityRatio";
    let known = ["LeastAllocated", "MostAllocated", RATIO];
    if !known.contains(&&*file.kind) {
        return Err(unsupported(&format!("{path}.type"), &file.kind, &known));
    }
    let resources = weighed(file.resources);
    for (i, (name, weight)) in resources.iter().enumerate() {
        if !(1..=100).contains(weight) {
            let text = format!("resource weight of {name} not in valid range (0, 100]");
            let path = format!("{path}.resources[{i}].weight");
            return Err(invalid(&path, weight, &text));
        }
    }
    if !resources.is_empty() {
        out.resources = resources;
    }
    let path = format!("{path}.requestedToCapacityRatio");
    out.strategy = match (&*file.kind, file.requested_to_capacity_ratio) {
        (RATIO, None) => {
            let text = "must be specified when type is RequestedToCapacityRatio";
            return Err(required(&path, text));
        }
        (RATIO, Some(ratio)) => {
            Strategy::RequestedToCapacityRatio(shape(&format!("{path}.shape"), &ratio.shape)?)
        }
        (_, Some(_)) => {
            let text = "must be nil when type is not RequestedToCapacityRatio".to_owned();
            return Err(ConfigError::Forbidden { path, text });
        }
        ("MostAllocated", None) => Strategy::MostAllocated,
        (_, None) => Strategy::LeastAllocated,
    };
    out.is_stated = true;
    Ok(())
}

/// Checks the points of a function from utilization to score.
fn shape(path: &str, points: &[Point]) -> Result<Vec<(i64, i64)>, ConfigError> {
    if points.is_empty() {
        return Err(required(path, "at least one point must be specified"));
    }
    for (i, pair) in points.windows(2).enumerate() {
        let next = pair[1].utilization;
        if pair[0].utilization >= next {
            let path = format!("{path}[{}].utilization", i + 1);
            let text = "values must be sorted in increasing order";
            return Err(invalid(&path, next, text));
        }
    }
    for (i, point) in points.iter().enumerate() {
        for (field, value, most) in [
            ("utilization", point.utilization, 100),
            ("score", point.score, 10),
        ] {
            if !(0..=most).contains(&value) {
                let text = format!("not in valid range [0, {most}]");
                return Err(invalid(&format!("{path}[{i}].{field}"), value, &text));
            }
        }
    }
    let read = |p: &Point| (i64::from(p.utilization), i64::from(p.score));
    Ok(points.iter().map(read).collect())
}
