//! How many volumes nodes take.

use super::*;

#[test]
fn nodes_take_only_so_many_volumes() {
    let csi = |handle: &str| json!({"spec": {"csi": {"driver": "d", "volumeHandle": handle}}});
    let driver = |node: &str, count: i32| {
        let driver = json!({"name": "d", "nodeID": node, "allocatable": {"count": count}});
        json!({"metadata": {"name": node}, "spec": {"drivers": [driver]}})
    };
    let attached = |name: &str, source: Value| {
        let spec = json!({"attacher": "d", "nodeName": "b", "source": source});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let fixture = Fixture {
        claims: vec![
            bound("x", "v1"),
            bound("y", "v2"),
            bound("z", "v3"),
            claim("new", "make", json!({})),
        ],
        volumes: vec![
            volume("v1", "1Gi", &[], csi("1")),
            volume("v2", "1Gi", &[], csi("2")),
            volume("v3", "1Gi", &[], csi("3")),
        ],
        classes: vec![class("make", "d", json!({}))],
        nodes: vec![json!({"metadata": {"name": "c"}})],
        csi_nodes: vec![driver("a", 2), driver("b", 2)],
        attachments: vec![
            attached("1", json!({"persistentVolumeName": "v1"})),
            attached("2", json!({"persistentVolumeName": "v2"})),
            attached("gone", json!({"persistentVolumeName": "v9"})),
            attached("inline", json!({"inlineVolumeSpec": {}})),
        ],
        pods: vec![(user("q", &["x"]), "a"), (user("r", &["x", "y"]), "a")],
        ..Fixture::default()
    };
    let snapshot = fixture.snapshot();
    let fits = |claims: &[&str], node: usize| {
        let pod = info(&user("p", claims));
        let found = Attachments::new(&pod, &snapshot.storage);
        found.is_none_or(|a| match a.filter(&snapshot.nodes[node]) {
            Ok(()) => true,
            Err(rejection) => {
                assert_eq!(rejection.message(), "node(s) exceed max volume count");
                false
            }
        })
    };
    assert!(fits(&["x", "y"], 0), "both are there already");
    assert!(!fits(&["z"], 0));
    assert!(!fits(&["new"], 0), "one that is not made yet counts");
    assert!(fits(&["x"], 1), "attached there already");
    assert!(
        !fits(&["z"], 1),
        "two are attached, though no pod names them"
    );
    assert!(fits(&["z", "new"], 2), "no limit there");
}
