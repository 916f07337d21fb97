use super::*;
use crate::pod::PodInfo;
use serde_json::{Value, json};
use std::sync::Arc;

fn node(spec: Value, labels: Value) -> NodeInfo {
    let mut info = NodeInfo::new("n".into());
    let value = json!({"metadata": {"name": "n", "labels": labels}, "spec": spec, "status": {"allocatable": {"cpu": "1"}}});
    info.set_node(Arc::new(serde_json::from_value(value).expect("fixture")));
    info
}

fn pod(spec: Value) -> PodInfo {
    let mut spec = spec;
    spec["containers"] = json!([]);
    PodInfo::new(Arc::new(
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}))
            .expect("fixture"),
    ))
}

#[test]
fn only_the_change_that_a_plugin_waits_for() {
    let (plain, labelled, cordoned) = (
        node(json!({}), json!({})),
        node(json!({}), json!({"zone": "a"})),
        node(json!({"unschedulable": true}), json!({})),
    );
    let p = pod(json!({"nodeSelector": {"zone": "a"}}));
    let change = |old, new| ClusterEvent::NodeChanged { old, new };
    assert!(may_help(
        Plugin::NodeAffinity,
        &p,
        &change(&plain, &labelled)
    ));
    assert!(!may_help(
        Plugin::NodeAffinity,
        &p,
        &change(&labelled, &plain)
    ));
    assert!(may_help(
        Plugin::DynamicResources,
        &p,
        &change(&plain, &labelled)
    ));
    assert!(may_help(
        Plugin::NodeUnschedulable,
        &p,
        &change(&cordoned, &plain)
    ));
    assert!(!may_help(
        Plugin::NodeResourcesFit,
        &p,
        &change(&cordoned, &plain)
    ));
}

#[test]
fn new_nodes_help_only_pods_that_select_them() {
    let p = pod(json!({"nodeSelector": {"zone": "a"}}));
    assert!(!may_help(
        Plugin::DynamicResources,
        &p,
        &ClusterEvent::NodeAdded(&node(json!({}), json!({})))
    ));
    assert!(may_help(
        Plugin::DynamicResources,
        &p,
        &ClusterEvent::NodeAdded(&node(json!({}), json!({"zone": "a"})))
    ));
}

#[test]
fn devices_concern_only_dynamic_resources() {
    assert!(
        interested(&ClusterEvent::DevicesFreed)
            .iter()
            .eq([Plugin::DynamicResources])
    );
    assert!(
        !interested(&ClusterEvent::PodGone(&pod(json!({})))).contains(Plugin::DynamicResources)
    );
}

/// New nodes often get their labels after they have come: before that the pod did not ask them for anything.
#[test]
fn a_node_that_is_selected_only_now_helps_with_everything() {
    let (plain, labelled) = (
        node(json!({}), json!({})),
        node(json!({}), json!({"zone": "a"})),
    );
    let p = pod(json!({"nodeSelector": {"zone": "a"}}));
    let (old, new) = (&plain, &labelled);
    let event = ClusterEvent::NodeChanged { old, new };
    for plugin in [
        Plugin::NodeResourcesFit,
        Plugin::NodePorts,
        Plugin::NodeVolumeLimits,
    ] {
        assert!(may_help(plugin, &p, &event));
    }
}
