//! Failures in the annotation of a Node, for drivers that heed it. They outlive the driver and its ResourceSlices.

use allot_driver::{INJECTED_FAILURES, InjectedFailure, InjectedFailures};
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::TRIES;

/// The failures of a node.
fn read(node: &PartialObjectMeta<Node>) -> anyhow::Result<InjectedFailures> {
    match node.annotations().get(INJECTED_FAILURES) {
        None => Ok(InjectedFailures::new()),
        Some(text) => serde_json::from_str(text)
            .with_context(|| format!("cannot read annotation {INJECTED_FAILURES}")),
    }
}

/// Notes failures of a node.
///
/// # Errors
/// There is no such node, or it cannot be changed.
pub(super) async fn note(
    nodes: &Api<Node>,
    name: &str,
    add: impl FnMut(&mut InjectedFailures),
) -> anyhow::Result<()> {
    anyhow::ensure!(
        change(nodes, name, add).await?,
        "there is no Node {name}, on which its drivers read what has failed: start its node agent, which registers it, or \
         restore the Node"
    );
    Ok(())
}

/// Changes the failures of a node, if the function changes something. Whether the node exists.
pub(super) async fn change(
    nodes: &Api<Node>,
    name: &str,
    mut change: impl FnMut(&mut InjectedFailures),
) -> anyhow::Result<bool> {
    for _ in 0..TRIES {
        let node = nodes.get_metadata_opt(name).await;
        let Some(node) = node.context("cannot read the node")? else {
            return Ok(false);
        };
        let before = read(&node)?;
        let mut failures = before.clone();
        change(&mut failures);
        failures.retain(|_, devices| !devices.is_empty());
        if failures == before {
            return Ok(true);
        }
        let text = match failures.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&failures)?),
        };
        let patch = json!({"metadata": {
            "resourceVersion": node.resource_version(),
            "annotations": {INJECTED_FAILURES: text},
        }});
        let params = PatchParams::default();
        match nodes
            .patch_metadata(name, &params, &Patch::Merge(patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(false),
            result => return result.map(|_| true).context("cannot change the node"),
        }
    }
    anyhow::bail!("node {name} changes all the time")
}

/// Adds a failure to the failures of a device.
pub(super) fn add(
    failures: &mut InjectedFailures,
    driver: &str,
    device: &str,
    wrong: &InjectedFailure,
) {
    let devices = failures.entry(driver.to_owned()).or_default();
    let known = devices.entry(device.to_owned()).or_default();
    known.unplugged |= wrong.unplugged;
    if wrong.taint.is_some() {
        known.taint.clone_from(&wrong.taint);
    }
    if wrong.unhealthy.is_some() {
        known.unhealthy.clone_from(&wrong.unhealthy);
    }
}

/// Removes the failures of one device or of all, of one driver or of all, and returns the devices.
pub(super) fn remove(
    failures: &mut InjectedFailures,
    driver: Option<&str>,
    device: Option<&str>,
) -> Vec<String> {
    let mut removed = Vec::new();
    for (name, devices) in failures {
        if driver.is_some_and(|driver| driver != name) {
            continue;
        }
        devices.retain(|name, _| {
            let stays = device.is_some_and(|device| device != name);
            if !stays {
                removed.push(name.clone());
            }
            stays
        });
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command said that the device had failed, and nothing had changed.
    #[tokio::test]
    async fn regression_failures_of_a_node_that_is_missing_are_an_error() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async move {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            });
            let response = http::Response::builder().status(404);
            let body = kube::client::Body::from(status.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(response.body(body).expect("a response"))
        });
        let nodes = Api::all(kube::Client::new(service, "default"));
        let hot = InjectedFailure::default();
        let noted = note(&nodes, "n", |all| add(all, "a", "gpu-0", &hot)).await;
        let error = noted.expect_err("there is no such node").to_string();
        assert!(error.starts_with("there is no Node n"), "{error}");
        // A Node that does not exist has no failures to remove.
        let taken = change(&nodes, "n", |all| drop(remove(all, None, None))).await;
        assert!(!taken.expect("no error"));
    }

    #[test]
    fn failures_add_up_and_are_removed_by_device_and_driver() {
        let mut failures = InjectedFailures::new();
        let taint = |effect: &str| InjectedFailure {
            taint: Some(effect.to_owned()),
            ..InjectedFailure::default()
        };
        let hot = InjectedFailure {
            unhealthy: Some("hot".to_owned()),
            ..InjectedFailure::default()
        };
        add(&mut failures, "a", "gpu-0", &taint("NoSchedule"));
        add(&mut failures, "a", "gpu-0", &hot);
        add(&mut failures, "a", "gpu-0", &taint("NoExecute"));
        let both = InjectedFailure {
            taint: Some("NoExecute".to_owned()),
            ..hot.clone()
        };
        assert_eq!(failures["a"]["gpu-0"], both);
        add(&mut failures, "a", "gpu-1", &hot);
        add(&mut failures, "b", "gpu-1", &hot);
        let all = failures.clone();
        let mut check = |driver, device, expected: &[&str]| {
            failures.clone_from(&all);
            assert_eq!(remove(&mut failures, driver, device), expected);
            let left: usize = failures.values().map(|devices| devices.len()).sum();
            assert_eq!(left, 3 - expected.len());
        };
        check(None, None, &["gpu-0", "gpu-1", "gpu-1"]);
        check(Some("a"), None, &["gpu-0", "gpu-1"]);
        check(None, Some("gpu-1"), &["gpu-1", "gpu-1"]);
        check(Some("b"), Some("gpu-0"), &[]);
        check(Some("c"), None, &[]);
    }
}
