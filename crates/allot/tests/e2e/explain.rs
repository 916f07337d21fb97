//! Looking at a cluster, and at a snapshot of one: `explain`, `devices`, `snapshot`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::harness::{ALLOT, Up, directory};

/// What a command prints on standard output.
fn allot(arguments: &[&str]) -> String {
    let output = Command::new(ALLOT).args(arguments).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "allot {arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a command that fails prints on standard error.
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(ALLOT).args(arguments).output().expect("runs");
    assert!(!output.status.success(), "allot {arguments:?} succeeded");
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_device_is_explained_on_the_cluster_and_on_a_snapshot() {
    let up = Up::in_memory().await;
    let pod = up.eight_gpu_pods().await;
    let files = directory();
    let ninth = files.path().join("ninth.yaml");
    let manifest = pod.replace("name: example-claim", "name: ninth");
    std::fs::write(&ninth, &manifest).expect("written");
    let cluster = ["--kubeconfig", text(&up.kubeconfig)];

    // A pod that is not there yet.
    let told = allot(&[&["explain", "-f", text(&ninth)][..], &cluster].concat());
    for part in [
        "pod default/ninth fits on none of 1 node\n",
        "  1 node: cannot allocate all claims (node-0)\n",
        "    claim default/ninth-example, request gpu needs 1 device:\n",
        "      8 seen\n",
        "      0 not in use\n",
        " by default/pod-",
    ] {
        assert!(told.contains(part), "{part:?} in:\n{told}");
    }

    // The same pod, waiting; from a file, without the cluster.
    up.create(&manifest).await;
    let snapshot = files.path().join("now.json.gz");
    allot(&[&["snapshot", "--out", text(&snapshot)][..], &cluster].concat());
    let from = ["--from", text(&snapshot)];
    drop(up);
    let devices = allot(&[&["devices", "-o", "json"][..], &from].concat());
    let devices: Vec<Value> = devices
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(devices.len(), 8);
    for device in &devices {
        assert_eq!(device["state"], "in-use", "{device}");
        let pod = device["claims"][0]["reservedFor"][0].as_str();
        assert!(pod.is_some_and(|p| p.starts_with("pod-")), "{device}");
    }
    let free = allot(&[&["devices", "--state", "free"][..], &from].concat());
    assert_eq!(free, "");
    let running = allot(&[&["explain", "pod-0"][..], &from].concat());
    let on = "pod default/pod-0 is on node node-0\n    claim default/pod-0-example-";
    assert!(running.starts_with(on), "{running}");
    assert!(
        running.contains("request gpu: gpu.example.com/node-0/gpu-"),
        "{running}"
    );

    // What if there were one more node?
    let node = files.path().join("node.yaml");
    let more = "\
apiVersion: v1
kind: Node
metadata: {name: added}
status: {allocatable: {cpu: '4', memory: 8Gi, pods: '10'}}
---
apiVersion: resource.k8s.io/v1beta2
kind: ResourceSlice
metadata: {name: added}
spec:
  driver: gpu.example.com
  nodeName: added
  pool: {name: added, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
";
    std::fs::write(&node, more).expect("written");
    // Its claim may have been made or not when the snapshot was taken: the pod of the file replaces it.
    let files = ["-f", text(&node), "-f", text(&ninth)];
    let told = allot(&[&["explain", "ninth", "-o", "json"][..], &files, &from].concat());
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["wouldGoTo"]["node"], "added", "{told}");
    let got = &told["wouldGoTo"]["claims"][0];
    assert_eq!(got["claim"], "default/ninth-example");
    assert_eq!(got["devices"][0]["device"], "gpu-0");

    // The taint is named that keeps it away.
    let taints = "spec: {taints: [{key: dedicated, value: gpu, effect: NoSchedule}]}\nstatus:";
    std::fs::write(&node, more.replacen("status:", taints, 1)).expect("written");
    let told = allot(&[&["explain", "ninth"][..], &files, &from].concat());
    let taint = "  1 node: node(s) had untolerated taint {dedicated: gpu} (added)\n";
    assert!(told.contains(taint), "{told}");

    let none = refused(&[&["explain", "nobody"][..], &from].concat());
    assert_eq!(none, "error: there is no pod default/nobody\n");
    let file = refused(&["devices", "--from", text(&node)]);
    assert!(
        file.starts_with("error: ") && file.contains("is no JSON"),
        "{file}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_more_nodes_than_driver_processes_come_up_with_their_devices() {
    let up = Up::in_memory_with(&["--nodes", "9", "--runtime", "simulated"]).await;
    let cluster = ["--kubeconfig", text(&up.kubeconfig)];
    let devices = allot(&[&["devices", "-o", "json"][..], &cluster].concat());
    assert_eq!(devices.lines().count(), 72);
    // A workload counts as one pod of it, with what the server would fill in.
    let files = directory();
    let file = files.path().join("deployment.yaml");
    let deployment = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec: {containers: [{name: c, image: x, resources: {limits: {cpu: '10000'}}}]}
";
    std::fs::write(&file, deployment).expect("written");
    let told = allot(&[&["explain", "-f", text(&file)][..], &cluster].concat());
    let expected = "\
pod default/web fits on none of 9 nodes
  9 nodes: Insufficient cpu (node-0, node-1, node-2, node-3, node-4 and 4 more)
";
    assert_eq!(told, expected);

    // A claim that is used elsewhere says where.
    let claim = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
";
    let pod = |name: &str, node: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers: [{{name: c, image: x, command: [x], resources: {{claims: [{{name: g}}]}}}}]
  resourceClaims: [{{name: g, resourceClaimName: shared}}]
"
        )
    };
    up.create(claim).await;
    up.create(&pod("first", "node-1")).await;
    up.running("first").await;
    std::fs::write(&file, pod("second", "node-2")).expect("written");
    let told = allot(&[&["explain", "-f", text(&file)][..], &cluster].concat());
    let has =
        "  it already has\n    claim default/shared, request gpu: gpu.example.com/node-1/gpu-0\n";
    assert!(told.contains(has), "{told}");
    let here = "  1 node: resourceclaim not available on the node (node-2)\n";
    assert!(told.contains(here), "{told}");
}
