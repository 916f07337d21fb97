//! The labels of a namespace: whether they can be read, and which of its pods do not comply with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupKind;
use allot_store::{Entry, ListOptions};
use serde_json::Value;
use tokio::time::Instant;

use super::super::{Admission, Attributes};
use super::checks::{Pod, findings, reasons};
use super::{PREFIX, Policy};
use crate::config::pod_security::{Level, Standard};
use crate::error::Result;
use crate::object::{items, text};
use crate::request::Warnings;
use crate::select::extract;

/// The number of pods that are checked for a new label, as upstream.
const MOST_CHECKED: usize = 3000;
/// The time for that, as upstream.
const TIME: Duration = Duration::from_secs(1);
/// After how many pods other requests have a turn.
const CHECKED_AT_ONCE: usize = 32;

/// Rejects invalid labels, and warns about existing pods that violate a new level.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    namespace: &Value,
    warnings: &Warnings,
) -> Result<()> {
    if !attributes.subresource.is_empty() {
        return Ok(());
    }
    let configured = &core.config.admission.pod_security;
    let (policy, errors) = Policy::of(namespace, &configured.defaults);
    let before = attributes
        .old
        .map(|old| Policy::of(old, &configured.defaults));
    let known = before.as_ref().is_some_and(|(_, old)| *old == errors);
    if !errors.is_empty() && !known {
        let kind = GroupKind::new("", "Namespace");
        return Err(Status::invalid(&kind, attributes.name, &errors).into());
    }
    let is_exempt = configured.namespaces.iter().any(|it| it == attributes.name);
    let new = policy.enforce;
    if let Some((old, _)) = &before {
        let relaxed = new.minor == old.enforce.minor && new.level <= old.enforce.level;
        if new.level == Level::Privileged || relaxed {
            return Ok(());
        }
    }
    if is_exempt {
        warn_of_exemption(
            &policy,
            &configured.defaults,
            namespace,
            attributes.name,
            warnings,
        );
        return Ok(());
    }
    // A namespace that is new has no pods.
    if before.is_none() {
        return Ok(());
    }
    let options = ListOptions {
        prefix: &format!("{}/", attributes.name),
        ..ListOptions::default()
    };
    let pods = core.backend.list("pods", options).await?.entries;
    let classes = &configured.runtime_classes;
    let texts = violations(new, &pods, classes, attributes.name, TIME).await;
    texts.into_iter().for_each(|text| warnings.add(text));
    Ok(())
}

/// The warnings about pods of a namespace that do not comply with a new level. There may be many pods, and a client that
/// may label the namespace can repeat that: their number and the time are bounded.
async fn violations(
    new: Standard,
    pods: &[Arc<Entry>],
    exempt_classes: &[String],
    namespace: &str,
    time: Duration,
) -> Vec<String> {
    let end = Instant::now() + time;
    let (pods, total) = prioritized(pods, exempt_classes, end).await;
    // By violation: the first pod and the number of pods.
    let mut wrong: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for entry in pods.into_iter().take(MOST_CHECKED) {
        // What the store holds was written by this server as JSON.
        let pod: Value = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
        let shown = Pod {
            metadata: &pod["metadata"],
            spec: &pod["spec"],
        };
        let found = findings(new.level, new.minor, shown);
        if !found.is_empty() {
            let name = text(&pod, &["metadata", "name"]);
            let (first, count) = wrong.entry(reasons(&found)).or_default();
            if *count == 0 || name < first.as_str() {
                name.clone_into(first);
            }
            *count += 1;
        }
        checked += 1;
        if !others_first(checked, end).await {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !wrong.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{new}\""
        ));
    }
    let mut texts: Vec<String> = wrong
        .into_iter()
        .map(|(why, (name, count))| match count {
            1 => format!("{name}: {why}"),
            2 => format!("{name} (and 1 other pod): {why}"),
            _ => format!("{name} (and {} other pods): {why}", count - 1),
        })
        .collect();
    texts.sort_unstable();
    warnings.append(&mut texts);
    warnings
}

/// The pods that are not exempt, one of each controller first, and their number. Pods that the time does not suffice to
/// look at are counted.
async fn prioritized<'a>(
    pods: &'a [Arc<Entry>],
    exempt_classes: &[String],
    end: Instant,
) -> (Vec<&'a Entry>, usize) {
    let (mut first, mut more) = (Vec::new(), Vec::new());
    let mut controllers = BTreeSet::new();
    let mut seen = 0;
    for entry in pods {
        seen += 1;
        let parts = ["metadata.ownerReferences", "spec.runtimeClassName"];
        let pod = extract(&entry.value, &parts);
        let class = text(&pod, &["spec", "runtimeClassName"]);
        if !exempt_classes.iter().any(|it| it == class) {
            let mut owners = items(&pod["metadata"]["ownerReferences"]).iter();
            let controller = owners.find(|owner| owner["controller"] == true);
            let uid = controller.map(|owner| text(owner, &["uid"]).to_owned());
            match uid.is_none_or(|uid| controllers.insert(uid)) {
                true => first.push(&**entry),
                false => more.push(&**entry),
            }
        }
        if !others_first(seen, end).await {
            break;
        }
    }
    let total = first.len() + more.len() + pods.len() - seen;
    first.append(&mut more);
    (first, total)
}

/// Gives other requests a turn now and then; whether there is time left.
async fn others_first(done: usize, end: Instant) -> bool {
    if done.is_multiple_of(CHECKED_AT_ONCE) {
        tokio::task::yield_now().await;
    }
    Instant::now() < end
}

/// The labels of a namespace that is left out have no effect.
fn warn_of_exemption(
    policy: &Policy,
    defaults: &Policy,
    namespace: &Value,
    name: &str,
    warnings: &Warnings,
) {
    let standards = [
        ("enforce", policy.enforce),
        ("audit", policy.audit),
        ("warn", policy.warn),
    ];
    let is_privileged = |(_, standard): &(&str, Standard)| standard.level == Level::Privileged;
    if standards.iter().all(is_privileged) || policy == defaults {
        return;
    }
    let labels = &namespace["metadata"]["labels"];
    let is_set = |mode: &str| {
        let level = &labels[format!("{PREFIX}{mode}")];
        !level.is_null() || !labels[format!("{PREFIX}{mode}-version")].is_null()
    };
    let shown = standards
        .iter()
        .filter(|it| !is_privileged(it) && is_set(it.0));
    let shown: Vec<String> = shown
        .map(|(mode, standard)| format!("{mode}={standard}"))
        .collect();
    warnings.add(format!(
        "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
        allot_apimachinery::quote::quote(name),
        shown.join(", ")
    ));
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn pods(count: usize, owner: impl Fn(usize) -> Value) -> Vec<Arc<Entry>> {
        let pod = |number: usize| {
            let name = format!("p{number:05}");
            let spec = json!({"hostNetwork": true, "containers": [{"name": "c"}]});
            let pod =
                json!({"metadata": {"name": name, "ownerReferences": owner(number)}, "spec": spec});
            let value = Bytes::from(pod.to_string());
            Arc::new(Entry::new(format!("team/{name}").into(), 1, value))
        };
        (0..count).map(pod).collect()
    }

    async fn check(pods: &[Arc<Entry>], time: Duration, expected: &[&str]) {
        let new = Standard {
            level: Level::Baseline,
            minor: None,
        };
        let said = violations(new, pods, &[], "team", time).await;
        assert_eq!(said, expected);
    }

    const LONG: Duration = Duration::from_secs(3600);
    const VIOLATE: &str = "existing pods in namespace \"team\" violate the new PodSecurity enforce level \"baseline:latest\"";

    /// All pods of a namespace were decoded and checked in one go, on each change of its labels.
    #[tokio::test]
    async fn regression_a_new_label_is_checked_against_some_of_very_many_pods() {
        let many = pods(MOST_CHECKED + 7, |_| Value::Null);
        let some = "new PodSecurity enforce level only checked against the first 3000 of 3007 existing pods";
        let first = "p00000 (and 2999 other pods): host namespaces";
        check(&many, LONG, &[some, VIOLATE, first]).await;
        let none =
            "new PodSecurity enforce level only checked against the first 1 of 3007 existing pods";
        check(
            &many,
            Duration::ZERO,
            &[none, VIOLATE, "p00000: host namespaces"],
        )
        .await;
    }

    #[tokio::test]
    async fn one_pod_of_each_controller_comes_first() {
        let owner = |number: usize| match number {
            0 => json!([{"uid": "rest", "controller": true}]),
            _ => json!([{"uid": format!("u{}", number % 2), "controller": true}]),
        };
        let many = pods(9, owner);
        let end = Instant::now() + LONG;
        let (found, total) = prioritized(&many, &[], end).await;
        let keys: Vec<&str> = found.iter().map(|entry| &*entry.key).take(4).collect();
        assert_eq!(total, 9);
        assert_eq!(
            keys,
            ["team/p00000", "team/p00001", "team/p00002", "team/p00003"]
        );
        let third = pods(
            4,
            |number| json!([{"uid": if number < 2 { "a" } else { "b" }, "controller": true}]),
        );
        let (found, _) = prioritized(&third, &[], end).await;
        let keys: Vec<&str> = found.iter().map(|entry| &*entry.key).collect();
        assert_eq!(
            keys,
            ["team/p00000", "team/p00002", "team/p00001", "team/p00003"]
        );
    }
}
