//! Answers for the dashboard: those of `allot explain -o json`, with nodes grouped by verdict.

use allot_model::features::Features;
use serde_json::{Value, json};

use super::cluster_objects::ClusterObjects;
use super::report::Report;
use crate::cmd::snapshot::{Kinds, Snapshot};
use crate::component::read_scheduler_config;

/// Limit of node names for each reason.
const NODES: usize = 8;
/// Limit of reasons for a pod; those of the nearest nodes are kept.
const GROUPS: usize = 12;

/// The explanation of each pod, given as namespace and name. One that cannot be explained has an `error`.
///
/// # Errors
/// The cluster cannot be read with the rights of the client.
pub async fn answers(
    client: &kube::Client,
    pods: Vec<(String, String)>,
) -> anyhow::Result<Vec<Value>> {
    let snapshot = Snapshot::take(client, Kinds::All, None).await?;
    // The search may take long, and others are served meanwhile.
    tokio::task::spawn_blocking(move || {
        let features: Features = snapshot.features();
        let config = read_scheduler_config(None, features)?;
        let namespace = snapshot.namespace.clone();
        let mut loaded = ClusterObjects::new(snapshot, namespace).load(config)?;
        let answer = |(namespace, name): (String, String)| {
            let report = Report::new(&mut loaded, &namespace, &name);
            report.and_then(grouped).unwrap_or_else(|error| {
                let pod = format!("{namespace}/{name}");
                json!({"pod": pod, "error": format!("{error:#}")})
            })
        };
        Ok(pods.into_iter().map(answer).collect())
    })
    .await?
}

/// A report with groups of nodes in place of thousands of nodes, the nearest first.
pub(super) fn grouped(mut report: Report) -> anyhow::Result<Value> {
    // How near a node comes is not in the value.
    report.order_by_nearness();
    Ok(together(serde_json::to_value(&report)?))
}

/// Groups the nodes of an answer in their order, and those of the pod that its gang leaves out.
fn together(mut report: Value) -> Value {
    if let Some(left_out) = report.pointer_mut("/gang/leftOut") {
        group_nodes(left_out);
    }
    group_nodes(&mut report);
    report
}

fn group_nodes(report: &mut Value) {
    let nodes = match report.get_mut("nodes").map(Value::take) {
        Some(Value::Array(nodes)) => nodes,
        _ => Vec::new(),
    };
    let (total, mut fitting) = (nodes.len(), Vec::new());
    // A few reasons are shared by all nodes: a search among them is short.
    let mut groups: Vec<(Value, Vec<Value>, Value)> = Vec::new();
    for mut node in nodes {
        if node["fits"] == true {
            fitting.push(node["node"].take());
            continue;
        }
        let same = shape(&node);
        let name = node["node"].take();
        match groups.iter_mut().find(|(shape, ..)| *shape == same) {
            Some((_, names, _)) => names.push(name),
            None => groups.push((same, vec![name], node)),
        }
    }
    let left_out = groups.len().saturating_sub(GROUPS);
    groups.truncate(GROUPS);
    let groups = groups.into_iter().map(|(_, names, mut node)| {
        node["count"] = json!(names.len());
        node["nodes"] = names.into_iter().take(NODES).collect();
        node
    });
    let groups: Vec<Value> = groups.collect();
    if let Some(report) = report.as_object_mut() {
        report.remove("nodes");
        let fits = json!({"count": fitting.len(), "nodes": &fitting[..fitting.len().min(NODES)]});
        report.insert("fitting".to_owned(), fits);
        report.insert("groups".to_owned(), Value::Array(groups));
        report.insert("groupsLeftOut".to_owned(), json!(left_out));
        report.insert("nodeCount".to_owned(), json!(total));
    }
}

/// The key of equal verdicts: the reason, the claims that are elsewhere, and how many devices each check leaves.
fn shape(node: &Value) -> Value {
    let requests = node["explanation"]["requests"].as_array();
    let requests = requests.into_iter().flatten();
    let funnels = requests.map(|r| {
        let stages = r["funnel"].as_array().into_iter().flatten();
        let left: Vec<&Value> = stages.map(|stage| &stage["left"]).collect();
        json!([r["claim"], r["request"], left])
    });
    let funnels: Vec<Value> = funnels.collect();
    json!([node["rejected"], node["unavailable"], funnels])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_say_the_same_are_one_group() {
        let node = |name: &str, left: i64| {
            json!({"node": name, "fits": false, "rejected": {"reason": "r"}, "explanation": {
                "requests": [{"claim": "c", "request": "r", "funnel": [{"kind": "seen", "left": left}],
                              "nearest": {"device": name}}]}})
        };
        let mut nodes: Vec<Value> = (0..100).map(|i| node(&format!("n{i}"), 0)).collect();
        nodes.push(node("other", 3));
        nodes.push(json!({"node": "good", "fits": true}));
        let report = together(json!({"pod": "a/b", "nodes": nodes}));
        assert_eq!(report["nodeCount"], 102);
        assert_eq!(report["fitting"], json!({"count": 1, "nodes": ["good"]}));
        let counts: Vec<&Value> = (report["groups"].as_array().into_iter().flatten())
            .map(|group| &group["count"])
            .collect();
        assert_eq!(counts, [100, 1]);
        let shown = report["groups"][0]["nodes"].as_array().map(Vec::len);
        assert_eq!(shown, Some(NODES));
        assert_eq!(report["nodes"], Value::Null);
    }

    #[test]
    fn the_nodes_of_a_pod_that_its_gang_leaves_out_are_grouped() {
        let node = |name: &str| json!({"node": name, "fits": false, "rejected": {"reason": "r"}});
        let nodes = [node("a"), node("b")];
        let left_out = json!({"pod": "a/c", "reason": "r", "nodes": nodes});
        let report = together(json!({"pod": "a/b", "gang": {"leftOut": left_out}}));
        let grouped = &report["gang"]["leftOut"];
        assert_eq!(grouped["groups"][0]["nodes"], json!(["a", "b"]));
        assert_eq!(grouped["nodes"], Value::Null);
    }

    #[test]
    fn nodes_for_which_different_claims_are_elsewhere_are_not_one_group() {
        let node = |name: &str, claim: &str| json!({"node": name, "fits": false, "rejected": {"reason": "r"}, "unavailable": [claim]});
        let nodes = [node("a", "x"), node("b", "y")];
        let report = together(json!({"pod": "a/b", "nodes": nodes}));
        assert_eq!(report["groups"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_report_without_nodes_stays_as_it_is() {
        let report = together(json!({"pod": "a/b", "advice": "x"}));
        assert_eq!(
            (&report["advice"], &report["nodeCount"]),
            (&json!("x"), &json!(0))
        );
    }
}
