//! The plugin PodNodeSelector: to which nodes the pods of a namespace are restricted.

use std::collections::BTreeMap;

use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::{Status, names};
use serde_json::Value;

use super::{Admission, Attributes, Operation, is_whole_pod};
use crate::error::{ApiError, Result};
use crate::object::{child_entry, child_mut, meta, string_map};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The entry of the configuration for namespaces without the annotation.
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

/// Adds the selector of the namespace to that of a new pod.
///
/// # Errors
/// 403 if they conflict, or the pod may not have its labels; 500 if the namespace's selector cannot be read.
pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    if !is_whole_pod(attributes, Operation::Create) {
        return Ok(());
    }
    let wanted = of_namespace(core, attributes).await?;
    compare(attributes, pod, &wanted)?;
    if !wanted.is_empty() {
        let selector = child_mut(child_entry(pod, "spec"), "nodeSelector");
        selector.extend(wanted.into_iter().map(|(key, value)| (key, value.into())));
    }
    permit(core, attributes, pod)
}

/// Refuses a pod whose selector a webhook has changed to one that conflicts.
///
/// # Errors
/// As for [`restrict`].
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    if !is_whole_pod(attributes, Operation::Create) {
        return Ok(());
    }
    let wanted = of_namespace(core, attributes).await?;
    compare(attributes, pod, &wanted)?;
    permit(core, attributes, pod)
}

/// The selector of the namespace, or the default one.
async fn of_namespace(core: &Admission, attributes: &Attributes<'_>) -> Result<Labels> {
    let annotations = super::annotations_of(core, attributes.namespace).await?;
    let default = core.config.admission.node_selectors.get(DEFAULT);
    let written = annotations[ANNOTATION].as_str();
    let written = written.or(default.map(String::as_str)).unwrap_or_default();
    parse(written).map_err(ApiError::unknown)
}

/// Refuses a pod that asks for other values than the namespace.
fn compare(attributes: &Attributes<'_>, pod: &Value, wanted: &Labels) -> Result<()> {
    let own = string_map(&pod["spec"]["nodeSelector"]);
    let conflicts = |(key, value): (&String, &String)| own.get(key).is_some_and(|it| it != value);
    if wanted.iter().any(conflicts) {
        let why = "pod node label selector conflicts with its namespace node label selector";
        return Err(refusal(attributes, pod, why));
    }
    Ok(())
}

/// Refuses labels that the configuration does not have for the namespace, if it has any.
fn permit(core: &Admission, attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    let selectors = &core.config.admission.node_selectors;
    let Some(written) = selectors.get(attributes.namespace) else {
        return Ok(());
    };
    let permitted = parse(written).map_err(ApiError::unknown)?;
    let own = string_map(&pod["spec"]["nodeSelector"]);
    if permitted.is_empty()
        || own
            .iter()
            .all(|(key, value)| permitted.get(key) == Some(value))
    {
        return Ok(());
    }
    let why = "pod node label selector labels conflict with its namespace whitelist";
    Err(refusal(attributes, pod, why))
}

fn refusal(attributes: &Attributes<'_>, pod: &Value, why: &str) -> ApiError {
    Status::forbidden(
        &attributes.resource.group_resource(),
        meta(pod, "name"),
        why,
    )
    .into()
}

/// Labels that are written as `a=b,c=d`.
fn parse(text: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    if text.is_empty() {
        return Ok(labels);
    }
    for label in text.split(',') {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = parts.as_slice() else {
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            let why = wrong.join("; ");
            return Err(format!(
                "<nil>: {}",
                Error::invalid(&Path::root(), key, why).body()
            ));
        }
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            let why = Error::invalid(&Path::root(), value, wrong.join("; ")).body();
            return Err(format!("[{key}]: {why}"));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_lists_of_equal_labels() {
        let labels = |text: &str| parse(text).map(|it| it.into_iter().collect::<Vec<_>>());
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(labels(""), Ok(Vec::new()));
        let both = vec![label("a", "b"), label("c.d/e", "")];
        assert_eq!(labels("c.d/e=, a = b"), Ok(both));
        for (text, expected) in [
            ("a", "invalid selector: [a]"),
            ("a==b", "invalid selector: [a  b]"),
            ("a=b,", "invalid selector: []"),
            (
                "-=b",
                "<nil>: Invalid value: \"-\": name part must consist of",
            ),
            (
                "a=b c",
                "[a]: Invalid value: \"b c\": a valid label must be",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
