//! `explain` about pods of gangs, and about what is missing.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::explain::{exits, printed, text};
use super::harness::{Directory, directory};

/// A file with two nodes with two devices each, and one for a gang.
fn two_nodes() -> (Directory, PathBuf, PathBuf) {
    let files = directory();
    let (cluster, gang) = (
        files.path().join("two.json"),
        files.path().join("gang.yaml"),
    );
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})
    };
    let slice = |name: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": {
            "driver": "d.example.com", "nodeName": name, "devices": [{"name": "d0"}, {"name": "d1"}],
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}}})
    };
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}});
    let items = [node("n0"), node("n1"), slice("n0"), slice("n1"), class];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&cluster, list.to_string()).expect("written");
    (files, cluster, gang)
}

/// A gang of that many pods that each want a device of the template, but the last one of another.
fn gang(min_count: usize, pods: usize, last: &str) -> String {
    let mut text = format!(
        "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: one}}
spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: c}}}}]}}}}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {{name: g}}
spec: {{schedulingPolicy: {{gang: {{minCount: {min_count}}}}}}}
"
    );
    for i in 0..pods {
        let template = if i + 1 == pods { last } else { "one" };
        text += &format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: p{i}}}
spec:
  schedulingGroup: {{podGroupName: g}}
  containers: [{{name: c, image: x, resources: {{claims: [{{name: dev}}]}}}}]
  resourceClaims: [{{name: dev, resourceClaimTemplateName: {template}}}]
"
        );
    }
    text
}

/// A pod of a gang was judged alone, regardless of the gates.
#[test]
fn regression_a_pod_of_a_gang_is_judged_with_its_gang() {
    let (files, cluster, file) = two_nodes();
    let asked = |pod: &str, more: &[&str]| {
        let asked = ["explain", pod, "--from", text(&cluster), "-f", text(&file)];
        // Each answer says whether it fits.
        printed(&[&asked[..], more].concat())
    };
    let gates = [
        "--feature-gates",
        "GenericWorkload=true,GangScheduling=true",
    ];
    std::fs::write(&file, gang(5, 5, "one")).expect("written");
    let told = asked("p0", &gates);
    let expected = "\
pod default/p0 goes to no node: its gang does not
  gang default/g: minCount 5, 5 pods are there, 0 placed
  it waits: minCount 5, 4 fit, p4 does not
  default/p4 has no place beside the others:
  2 nodes: cannot allocate all claims (n0, n1)
";
    assert!(told.starts_with(expected), "{told}");
    let told = asked("p0", &[&gates[..], &["-o", "json"]].concat());
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["fits"], false, "{told}");
    assert_eq!(told["gang"]["leftOut"]["pod"], "default/p4", "{told}");
    assert!(told["wouldGoTo"].is_null(), "{told}");
    // Where gangs are no matter, that is said.
    let told = asked("p0", &[]);
    assert!(told.contains("PodGroup default/g is a gang"), "{told}");

    std::fs::write(&file, gang(4, 4, "one")).expect("written");
    let told = asked("p3", &gates);
    let expected = "\
pod default/p3 fits, and so does its gang
  gang default/g: minCount 4, 4 pods are there, 0 placed
  it would go to n1 with
    claim default/p3-dev, request r: d.example.com/n1/d1
";
    assert_eq!(told, expected);

    // What nodes say is told once, also to a pod that fits nowhere by itself.
    std::fs::write(&file, gang(2, 3, "all")).expect("written");
    let all = "{devices: {requests: [{name: r, exactly: {deviceClassName: c, count: 3}}]}}";
    let all = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "all"}, "spec": {"spec": serde_saphyr::from_str::<Value>(all).expect("YAML")}});
    let template = files.path().join("all.json");
    std::fs::write(&template, all.to_string()).expect("written");
    let told = asked("p2", &[&gates[..], &["-f", text(&template)]].concat());
    let expected = "\
pod default/p2 fits on no node beside its gang
  gang default/g: minCount 2, 3 pods are there, 0 placed
  default/p2 has no place beside the others:
  2 nodes: cannot allocate all claims (n0, n1)
";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(told.matches("2 nodes: ").count(), 1, "{told}");

    // What it waits for, and what exists to do.
    std::fs::write(&file, gang(4, 3, "one")).expect("written");
    let expected = "\
pod default/p0 goes to no node: waiting for minCount pods from a gang to appear in scheduling queue (GangScheduling)
  gang default/g: minCount 4, 3 pods are there, 0 placed
  the gang is tried when 1 more pod of it is there
";
    assert_eq!(asked("p0", &gates), expected);
    let alone = gang(4, 1, "one").replace("{name: g}", "{name: other}");
    std::fs::write(&file, alone).expect("written");
    let expected = "\
pod default/p0 goes to no node: waiting for pod's pod group \"g\" to appear in scheduling queue (GangScheduling)
  there is no PodGroup default/g: make it, or make the pod without spec.schedulingGroup
";
    assert_eq!(asked("p0", &gates), expected);
}

/// All that was said is that the claim is not there.
#[test]
fn regression_a_template_that_is_missing_is_named() {
    let (_files, cluster, file) = two_nodes();
    std::fs::write(&file, gang(1, 2, "absent")).expect("written");
    let source = ["--from", text(&cluster), "-f", text(&file)];
    let missing = "there is no ResourceClaimTemplate default/absent, from which claim \"dev\" is to be made\n";
    let expected = format!(
        "\
pod default/p1 goes to no node: pod \"default/p1\": ResourceClaim not created yet (DynamicResources)
  {missing}"
    );
    assert_eq!(
        exits(1, &[&["explain", "p1"][..], &source].concat()),
        expected
    );
    // A gang names the pod of its that cannot be tried.
    std::fs::write(&file, gang(2, 2, "absent")).expect("written");
    let gates = [
        "--feature-gates",
        "GenericWorkload=true,GangScheduling=true",
    ];
    let told = exits(1, &[&["explain", "p0"][..], &source, &gates].concat());
    let waits = "  it waits: only 1 of 2 pods that are needed can be tried\n  default/p1: ";
    assert!(told.contains(waits) && told.ends_with(missing), "{told}");
}
