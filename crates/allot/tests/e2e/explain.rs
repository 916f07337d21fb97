//! Looking at a cluster, and at a snapshot of one: `explain`, `devices`, `snapshot`.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::Value;

use super::harness::{ALLOT, Up, directory};

/// What a command prints on standard output.
pub fn allot(arguments: &[&str]) -> String {
    exits(0, arguments)
}

/// What a command prints on standard output that ends with a status.
pub fn exits(status: i32, arguments: &[&str]) -> String {
    let output = Command::new(ALLOT).args(arguments).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "allot {arguments:?}: {error}"
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a command prints on standard output that ends with 0 or 1, as an answer.
pub fn printed(arguments: &[&str]) -> String {
    let output = Command::new(ALLOT).args(arguments).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    let answered = matches!(output.status.code(), Some(0 | 1));
    assert!(answered, "allot {arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What a command that fails prints on standard error.
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(ALLOT).args(arguments).output().expect("runs");
    assert!(!output.status.success(), "allot {arguments:?} succeeded");
    String::from_utf8(output.stderr).expect("UTF-8")
}

pub fn text(path: &Path) -> &str {
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
    let told = exits(
        1,
        &[&["explain", "-f", text(&ninth)][..], &cluster].concat(),
    );
    for part in [
        "pod default/ninth fits on none of 1 node\n",
        "  1 node: cannot allocate all claims (node-0)\n",
        "    claim default/ninth-example, request gpu needs 1 device:\n",
        "      8 seen\n",
        "      0 not in use\n",
        "      in use: 1 by pod default/pod-",
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

    // Without a name, all that wait.
    let waiting = exits(1, &[&["explain"][..], &from].concat());
    let one = waiting.starts_with("1 pod: ") && waiting.ends_with("  default/ninth\n");
    assert!(one, "{waiting}");

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
    let told = exits(1, &[&["explain", "ninth"][..], &files, &from].concat());
    let taint = "  1 node: node(s) had untolerated taint {dedicated: gpu} (added)\n";
    assert!(told.contains(taint), "{told}");

    exits(3, &[&["explain", "nobody"][..], &from].concat());
    let none = refused(&[&["explain", "nobody"][..], &from].concat());
    assert!(
        none.starts_with("as of ") && none.ends_with("error: there is no pod default/nobody\n"),
        "{none}"
    );
    // What is not compressed may also be what kubectl writes as YAML.
    let file = allot(&["devices", "-o", "name", "--from", text(&node)]);
    assert_eq!(file, "gpu.example.com/added/gpu-0\n");
    std::fs::write(&node, "a: [").expect("written");
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
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: x, resources: {limits: {cpu: '10000'}}}]}
";
    std::fs::write(&file, deployment).expect("written");
    let told = exits(1, &[&["explain", "-f", text(&file)][..], &cluster].concat());
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
    let told = exits(1, &[&["explain", "-f", text(&file)][..], &cluster].concat());
    let has =
        "  it already has\n    claim default/shared, request gpu: gpu.example.com/node-1/gpu-0\n";
    assert!(told.contains(has), "{told}");
    let here = "  1 node: resourceclaim not available on the node (node-2)\n    claim default/shared is allocated on node node-1, and";
    assert!(told.contains(here), "{told}");
}

/// A kubeconfig for the token of the service account `default` in the namespace `default`.
pub async fn as_account(up: &Up, directory: &Path) -> std::path::PathBuf {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(up.client.clone());
    let (request, params) = (TokenRequest::default(), PostParams::default());
    let token = accounts.create_token_request("default", &params, &request);
    let token = token.await.expect("a token").status.expect("issued").token;
    let mut config = Kubeconfig::read_from(&up.kubeconfig).expect("a kubeconfig");
    for user in &mut config.auth_infos {
        user.auth_info = Some(AuthInfo {
            token: token.clone().map(Into::into),
            ..AuthInfo::default()
        });
    }
    let file = directory.join("account.json");
    std::fs::write(&file, serde_json::to_vec(&config).expect("JSON")).expect("written");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_without_a_right_what_is_still_true_is_said() {
    let up = Up::in_memory().await;
    let pod = up.eight_gpu_pods().await;
    let files = directory();
    let account = as_account(&up, files.path()).await;
    let cluster = ["--kubeconfig", text(&account)];
    let nothing = refused(&[&["explain", "pod-0"][..], &cluster].concat());
    let lists = "the API server shows nothing: the user has no right to list resourceclaims.";
    assert!(nothing.contains(lists), "{nothing}");

    // The permissions of a user of one namespace.
    let subjects = "subjects: [{kind: ServiceAccount, name: default, namespace: default}]";
    let role = |kind: &str, name: &str, to: &str| {
        format!(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {to}}}
{subjects}
"
        )
    };
    up.create(&role("RoleBinding", "own", "view")).await;
    let on = allot(&[&["explain", "pod-0"][..], &cluster].concat());
    assert!(on.contains("pod default/pod-0 is on node node-0\n    claim default/pod-0-example-"));
    let ninth = files.path().join("ninth.yaml");
    std::fs::write(&ninth, pod.replace("name: example-claim", "name: ninth")).expect("written");
    let ninth = [&["explain", "-f", text(&ninth)][..], &cluster].concat();
    let error = refused(&ninth);
    let rights = "error: pod default/ninth is on no node, and why cannot be said without the right to list \
        resourceslices.resource.k8s.io, deviceclasses.resource.k8s.io, nodes\n";
    assert!(error.ends_with(&rights.replace("        ", "")), "{error}");
    let error = refused(&[&["devices"][..], &cluster].concat());
    assert!(
        error.contains("error: devices are in resourceslices.resource.k8s.io"),
        "{error}"
    );

    // With devices and nodes: that it does not fit is true whatever others have.
    let rules = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: devices}
rules:
- {apiGroups: ['', resource.k8s.io], resources: [nodes, resourceslices, deviceclasses], verbs: [list]}
";
    up.create(rules).await;
    up.create(&role("ClusterRoleBinding", "devices", "devices"))
        .await;
    let told = exits(1, &ninth);
    assert!(
        told.contains("pod default/ninth fits on none of 1 node\n"),
        "{told}"
    );
    let devices = allot(&[&["devices", "--state", "in-use"][..], &cluster].concat());
    assert_eq!(devices.lines().count(), 9, "{devices}");

    // The same from a file; what would fit is a maybe.
    let snapshot = files.path().join("seen.json");
    allot(&[&["snapshot", "--out", text(&snapshot)][..], &cluster].concat());
    let from = ["--from", text(&snapshot)];
    let plain = files.path().join("plain.yaml");
    let manifest = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x}]}}";
    std::fs::write(&plain, manifest).expect("written");
    let told = allot(&[&["explain", "-f", text(&plain)][..], &from].concat());
    let maybe = "pod default/p may fit on 1 of 1 node: not all is known of resourceclaims.resource.k8s.io, ";
    assert!(told.starts_with(maybe), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_snapshot_has_its_time_and_the_gates_of_its_cluster() {
    let gates = "DRADeviceTaints=false,DRADeviceTaintRules=false";
    let up = Up::in_memory_with(&["--feature-gates", gates]).await;
    let cluster = ["--kubeconfig", text(&up.kubeconfig)];
    let file: Value =
        serde_json::from_str(&allot(&[&["snapshot"][..], &cluster].concat())).expect("JSON");
    let about = &file["snapshot"];
    assert_eq!(about["release"], "1.36", "{about}");
    assert_eq!(about["featureGates"]["DRADeviceTaints"], false, "{about}");
    assert_eq!(
        about["featureGates"]["DRAConsumableCapacity"], true,
        "{about}"
    );
    assert!(
        about["time"].as_str().is_some_and(|t| t.ends_with('Z')),
        "{about}"
    );

    // A taint of a disabled feature keeps no pod away, neither now nor from a file; unless a flag enables it.
    let files = directory();
    let (pod, slice) = (
        files.path().join("pod.yaml"),
        files.path().join("slice.yaml"),
    );
    std::fs::write(
        &slice,
        "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: tainted}
spec:
  driver: other.example.com
  nodeName: node-0
  pool: {name: other, generation: 1, resourceSliceCount: 1}
  devices: [{name: a, taints: [{key: broken, effect: NoSchedule}]}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: other}
spec: {selectors: [{cel: {expression: device.driver == 'other.example.com'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: other}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: other}}]}}
",
    )
    .expect("written");
    std::fs::write(
        &pod,
        "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: x}], resourceClaims: [{name: c, resourceClaimName: other}]}
",
    )
    .expect("written");
    let stored = files.path().join("stored.json");
    std::fs::write(&stored, file.to_string()).expect("written");
    let asked = ["explain", "-f", text(&pod), "-f", text(&slice)];
    for source in [&cluster, &["--from", text(&stored)]] {
        let told = allot(&[&asked[..], source].concat());
        assert!(
            told.starts_with("pod default/p fits on 1 of 1 node"),
            "{told}"
        );
        let told = exits(
            1,
            &[
                &asked[..],
                source,
                &["--feature-gates", "DRADeviceTaints=true"],
            ]
            .concat(),
        );
        assert!(
            told.contains("nearest: other/a: taint broken:NoSchedule is not tolerated"),
            "{told}"
        );
    }
}
