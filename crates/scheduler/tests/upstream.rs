//! The rules that pods and nodes are judged by, compared with upstream's own libraries (component-helpers 0.36.2): what
//! a pod takes, node affinity, tolerations, label selectors.
//!
//! `upstream.jsonl` has random cases with upstream's answers, one per line; `ALLOT_UPSTREAM_CASES` names another file.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_scheduler::node::NodeInfo;
use allot_scheduler::plugins::affinity::NodeAffinity;
use allot_scheduler::plugins::taints;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::resources::{Resources, pod_requests, pod_requests_nonzero};
use allot_scheduler::selectors::Labels;
use k8s_openapi::api::core::v1::{Node, Pod, PreferredSchedulingTerm, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("an object")
}

fn node(object: &Value) -> NodeInfo {
    let node: Node = read(object);
    let mut info = NodeInfo::new(node.metadata.name.clone().unwrap_or_default().into());
    info.set_node(Arc::new(node));
    info
}

fn amounts(resources: &Resources) -> Value {
    let mut all: BTreeMap<&str, i64> = resources.scalars.iter().map(|(n, a)| (&**n, *a)).collect();
    all.insert("cpu", resources.milli_cpu);
    all.insert("memory", resources.memory);
    all.insert("ephemeral-storage", resources.ephemeral);
    all.retain(|_, amount| *amount != 0);
    json!(all)
}

/// What is said here about a case, in the form of the case.
fn answer(case: &Value) -> Value {
    if !case["requests"].is_null() {
        let pod: Pod = read(&case["requests"]);
        let (cpu, memory) = pod_requests_nonzero(&pod, false);
        return json!({
            "waiting": amounts(&pod_requests(&pod, false)),
            "running": amounts(&pod_requests(&pod, true)),
            "nonzero": {"cpu": cpu, "memory": memory},
        });
    }
    if let Value::Array(_) | Value::Null = case["tolerations"]
        && case.get("fits").is_some()
    {
        let node = node(&json!({"spec": {"taints": case["taints"]}}));
        let tolerations: Option<Vec<Toleration>> = read(&case["tolerations"]);
        let fits = taints::filter(&tolerations.unwrap_or_default(), &node).is_ok();
        return json!({"fits": fits});
    }
    if case.get("selector").is_some() {
        let selector: Option<LabelSelector> = read(&case["selector"]);
        let mut selector = Labels::new(selector.as_ref());
        let keys: Option<Vec<String>> = read(&case["matchLabelKeys"]);
        for key in keys.iter().flatten() {
            if let Some(value) = case["own"][key].as_str() {
                selector.require_in(key, value);
            }
        }
        return json!({"match": selector.matches(Some(&read(&case["labels"])))});
    }
    let node = node(&case["node"]);
    if case.get("score").is_some() {
        let terms: Option<Vec<PreferredSchedulingTerm>> = read(&case["preferred"]);
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let affinity = json!({"nodeAffinity": {preferred: terms}});
        let pod = json!({"spec": {"containers": [], "affinity": affinity}});
        let affinity = NodeAffinity::new(&PodInfo::new(Arc::new(read(&pod))));
        return json!({"score": affinity.score(&node)});
    }
    let affinity = NodeAffinity::new(&PodInfo::new(Arc::new(read(&case["pod"]))));
    json!({"match": affinity.matches(&node)})
}

#[test]
fn the_answers_are_those_of_upstream() {
    let own = include_str!("upstream.jsonl").to_owned();
    let cases = std::env::var("ALLOT_UPSTREAM_CASES").map_or(own, |path| {
        std::fs::read_to_string(path).expect("the cases")
    });
    let (mut count, mut wrong) = (0, Vec::new());
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let got = answer(&case);
        let same = got.as_object().expect("answers").iter().all(|(name, got)| {
            let mut want = case[name].clone();
            if name == "nonzero" {
                // Only those two have defaults.
                want = json!({"cpu": case[name]["cpu"], "memory": case[name]["memory"]});
            }
            *got == want
        });
        count += 1;
        if !same {
            wrong.push(format!("here {got}, upstream {line}"));
        }
    }
    assert!(count > 100, "{count} cases");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}
