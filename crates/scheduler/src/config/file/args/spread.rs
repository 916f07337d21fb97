//! Arguments of PodTopologySpread.

use allot_apimachinery::names;
use serde::Deserialize;
use serde_json::Value;

use super::super::{ConfigError, invalid, required, unsupported};
use crate::plugins::spread::{DefaultConstraint, Defaults};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SpreadFile {
    #[serde(default)]
    default_constraints: Vec<SpreadConstraint>,
    #[serde(default)]
    defaulting_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpreadConstraint {
    #[serde(default)]
    max_skew: i32,
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    when_unsatisfiable: String,
    label_selector: Option<Value>,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    /// Without effect, as in upstream: the pods to count follow from the pod's controller.
    #[serde(rename = "matchLabelKeys")]
    _match_label_keys: Option<Vec<String>>,
}

/// How pods without constraints are spread.
pub(super) fn spread(path: &str, file: SpreadFile) -> Result<Defaults, ConfigError> {
    let kind = format!("{path}.args.defaultingType");
    match &*file.defaulting_type {
        "" | "System" if file.default_constraints.is_empty() => return Ok(Defaults::system()),
        "" | "System" => {
            let text = "when .defaultConstraints are not empty";
            return Err(invalid(&kind, "\"System\"", text));
        }
        "List" => {}
        other => return Err(unsupported(&kind, other, &["System", "List"])),
    }
    let list = format!("{path}.args.defaultConstraints");
    let mut constraints: Vec<DefaultConstraint> = Vec::new();
    for (i, file) in file.default_constraints.into_iter().enumerate() {
        let path = format!("{list}[{i}]");
        let constraint = constraint(&path, file)?;
        let same =
            |c: &DefaultConstraint| c.key == constraint.key && c.required == constraint.required;
        if constraints.iter().any(same) {
            let when = if constraint.required {
                "DoNotSchedule"
            } else {
                "ScheduleAnyway"
            };
            let name = format!("{{{}, {when}}}", constraint.key);
            return Err(ConfigError::Duplicate { path, name });
        }
        constraints.push(constraint);
    }
    Ok(Defaults {
        constraints,
        system: false,
    })
}

fn constraint(path: &str, file: SpreadConstraint) -> Result<DefaultConstraint, ConfigError> {
    if file.max_skew <= 0 {
        let path = format!("{path}.maxSkew");
        return Err(invalid(&path, file.max_skew, "not in valid range (0, inf)"));
    }
    let key = format!("{path}.topologyKey");
    if file.topology_key.is_empty() {
        return Err(required(&key, "can not be empty"));
    }
    if let Some(text) = names::qualified_name(&file.topology_key).first() {
        return Err(invalid(&key, format!("{:?}", file.topology_key), text));
    }
    let when = format!("{path}.whenUnsatisfiable");
    let required = match &*file.when_unsatisfiable {
        "" => return Err(required(&when, "can not be empty")),
        "DoNotSchedule" => true,
        "ScheduleAnyway" => false,
        other => {
            return Err(unsupported(
                &when,
                other,
                &["DoNotSchedule", "ScheduleAnyway"],
            ));
        }
    };
    if file.label_selector.is_some() {
        return Err(ConfigError::Forbidden {
            path: format!("{path}.labelSelector"),
            text: "constraint must not define a selector, as they deduced for each pod".to_owned(),
        });
    }
    let honors = |field: &str, policy: Option<&str>, otherwise: bool| match policy {
        None => Ok(otherwise),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => Err(unsupported(
            &format!("{path}.{field}"),
            other,
            &["Honor", "Ignore"],
        )),
    };
    Ok(DefaultConstraint {
        max_skew: file.max_skew,
        key: file.topology_key,
        required,
        min_domains: file
            .min_domains
            .map_or(1, |n| usize::try_from(n).unwrap_or(0)),
        honor_affinity: honors(
            "nodeAffinityPolicy",
            file.node_affinity_policy.as_deref(),
            true,
        )?,
        honor_taints: honors(
            "nodeTaintsPolicy",
            file.node_taints_policy.as_deref(),
            false,
        )?,
    })
}
