//! Tolerations of pods: the plugins PodTolerationRestriction and ExtendedResourceToleration.

use std::collections::BTreeSet;

use allot_apimachinery::well_known;
use allot_kinds::pods::qos_class;
use allot_model::validate::is_extended_resource_name;
use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, annotations_of, writes_whole_pod};
use crate::config;
use crate::error::{ApiError, Result};
use crate::object::{at, child_entry, child_mut, items, text};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const PERMITTED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// With more tolerations those that others include are left: to find them takes the square of this.
const MOST_COMPARED: usize = 1000;
/// After how many checked tolerations other requests have a turn.
const CHECKED_AT_ONCE: usize = 100;

/// A toleration as it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Toleration<'a> {
    key: &'a str,
    operator: &'a str,
    value: &'a str,
    effect: &'a str,
    seconds: Option<i64>,
}

impl<'a> Toleration<'a> {
    fn of(value: &'a Value) -> Self {
        let text = |key| text(value, &[key]);
        Toleration {
            key: text("key"),
            operator: text("operator"),
            value: text("value"),
            effect: text("effect"),
            seconds: value["tolerationSeconds"].as_i64(),
        }
    }

    /// Whether it tolerates all that the other one tolerates, by upstream's rules.
    fn includes(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let any_key = self.key.is_empty() && self.operator == "Exists";
        if self.key != other.key && !any_key {
            return false;
        }
        // No effect is any.
        if self.effect != other.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == "NoExecute"
            && let Some(seconds) = self.seconds
            && other.seconds.is_none_or(|other| other > seconds)
        {
            return false;
        }
        match self.operator {
            "Equal" | "" => other.operator == "Equal" && self.value == other.value,
            "Exists" => true,
            _ => false,
        }
    }
}

/// Adds the tolerations of the namespace to those of a new pod, and one for memory pressure unless the pod asks for nothing.
///
/// # Errors
/// 500, as upstream, if the result is not permitted, or what the namespace says cannot be read.
pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    if !writes_whole_pod(attributes) {
        return Ok(());
    }
    let annotations = annotations_of(core, attributes.namespace).await?;
    let mut added = Vec::new();
    if attributes.operation == Operation::Create {
        let own = of_namespace(&annotations, DEFAULTS)?;
        added = own.unwrap_or_else(|| {
            config::Toleration::values(&core.config.admission.tolerations.added)
        });
    }
    if qos_class(pod) != "BestEffort" {
        added.push(json!({
            "key": well_known::TAINT_NODE_MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule",
        }));
    }
    if !added.is_empty() {
        let mut all = items(at(pod, &["spec", "tolerations"])).to_vec();
        all.append(&mut added);
        let spec = child_mut(pod, "spec");
        spec.insert("tolerations".to_owned(), merge(all).into());
    }
    permit(core, &annotations, pod).await
}

/// Refuses tolerations that are not permitted, which a webhook may have added.
///
/// # Errors
/// As for [`restrict`].
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    if !writes_whole_pod(attributes) {
        return Ok(());
    }
    let annotations = annotations_of(core, attributes.namespace).await?;
    permit(core, &annotations, pod).await
}

async fn permit(core: &Admission, annotations: &Value, pod: &Value) -> Result<()> {
    let tolerations = items(at(pod, &["spec", "tolerations"]));
    if tolerations.is_empty() {
        return Ok(());
    }
    let own = of_namespace(annotations, PERMITTED)?;
    let (permitted, scope) = match own {
        Some(own) => (own, "namespace"),
        None => {
            let permitted = &core.config.admission.tolerations.permitted;
            (config::Toleration::values(permitted), "cluster")
        }
    };
    if permitted.is_empty() {
        return Ok(());
    }
    let permitted: Vec<Toleration<'_>> = permitted.iter().map(Toleration::of).collect();
    for some in tolerations.chunks(CHECKED_AT_ONCE) {
        let mut some = some.iter().map(Toleration::of);
        if !some.all(|it| permitted.iter().any(|permitted| permitted.includes(&it))) {
            return Err(ApiError::unknown(format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
            )));
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// What an annotation of the namespace lists; `None` without it.
fn of_namespace(annotations: &Value, key: &str) -> Result<Option<Vec<Value>>> {
    let Some(written) = annotations[key].as_str() else {
        return Ok(None);
    };
    if written.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let listed: Option<Vec<config::Toleration>> =
        serde_json::from_str(written).map_err(|error| ApiError::unknown(error.to_string()))?;
    let listed = listed.unwrap_or_default();
    Ok(Some(config::Toleration::values(&listed)))
}

/// Tolerations without those that others include.
fn merge(all: Vec<Value>) -> Vec<Value> {
    if all.len() > MOST_COMPARED {
        return all;
    }
    let compared: Vec<Toleration<'_>> = all.iter().map(Toleration::of).collect();
    let mut kept: Vec<usize> = Vec::new();
    for (index, one) in compared.iter().enumerate() {
        let before = kept.iter().any(|&kept| compared[kept].includes(one));
        // Of equal ones the first stays.
        let mut later = compared[index + 1..].iter();
        if !before && !later.any(|other| other != one && other.includes(one)) {
            kept.push(index);
        }
    }
    kept.into_iter().map(|index| all[index].clone()).collect()
}

/// Pods tolerate taints that are named after the extended resources which their containers ask for.
pub(super) fn tolerate_resources(attributes: &Attributes<'_>, pod: &mut Value) {
    if !writes_whole_pod(attributes) {
        return;
    }
    let mut resources = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for container in items(at(pod, &["spec", list])) {
            let requests = container["resources"]["requests"].as_object();
            let names = requests.into_iter().flatten().map(|(name, _)| name);
            resources.extend(
                names
                    .filter(|name| is_extended_resource_name(name))
                    .cloned(),
            );
        }
    }
    if resources.is_empty() {
        return;
    }
    let tolerations = child_entry(child_entry(pod, "spec"), "tolerations");
    let mut list = items(tolerations).to_vec();
    let known: BTreeSet<String> = list
        .iter()
        .map(Toleration::of)
        .filter(|it| it.operator == "Exists" && it.effect == "NoSchedule" && it.value.is_empty())
        .map(|it| it.key.to_owned())
        .collect();
    let missing = resources.difference(&known);
    list.extend(
        missing
            .map(|resource| json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"})),
    );
    *tolerations = list.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_include_is_left_out() {
        let of = |key: &str, operator: &str, value: &str, effect: &str| json!({"key": key, "operator": operator, "value": value, "effect": effect});
        let any = of("a", "Exists", "", "");
        let one = of("a", "Equal", "x", "NoSchedule");
        let other = of("b", "Equal", "x", "NoSchedule");
        let merged = |all: &[&Value]| merge(all.iter().map(|it| (*it).clone()).collect());
        assert_eq!(merged(&[&one, &other, &any]), [other.clone(), any.clone()]);
        assert_eq!(merged(&[&one, &one]), std::slice::from_ref(&one));
        let all = of("", "Exists", "", "");
        assert_eq!(merged(&[&one, &all, &other]), std::slice::from_ref(&all));
        // Without an operator it is compared with one that has it.
        let short = of("a", "", "x", "NoSchedule");
        assert_eq!(merged(&[&short, &one]), std::slice::from_ref(&short));
        let limited = |seconds: i64| json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        assert_eq!(merged(&[&limited(5), &limited(9)]), [limited(9)]);
        let forever = json!({"key": "a", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(merged(&[&forever, &limited(9)]), [forever]);
    }

    #[test]
    fn the_time_of_a_pod_with_very_many_tolerations_is_bounded() {
        let all: Vec<Value> = (0..MOST_COMPARED + 1)
            .map(|at| json!({"key": format!("k{at}"), "operator": "Exists"}))
            .collect();
        assert_eq!(merge(all.clone()), all);
    }
}
