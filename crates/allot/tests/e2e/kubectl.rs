//! What a user types, with the real kubectl where it is installed.

use std::process::{Command, Stdio};

use super::harness::Up;

/// Runs kubectl in `examples/` and returns what it printed; it must succeed.
async fn kubectl(up: &Up, line: &str) -> String {
    let (success, text, error) = run(up, line).await;
    assert!(success, "kubectl {line}: {text}{error}");
    text
}

/// Runs kubectl in `examples/`; whether it succeeded, and what it printed.
async fn run(up: &Up, line: &str) -> (bool, String, String) {
    let mut command = Command::new("kubectl");
    command
        .args(line.split_whitespace())
        .env("KUBECONFIG", &up.kubeconfig)
        // What kubectl remembers of a server that had this port before would be wrong.
        .env("HOME", up.kubeconfig.parent().expect("a file"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("no panic")
        .expect("kubectl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    (output.status.success(), printed, error)
}

fn installed() -> bool {
    let version = Command::new("kubectl")
        .args(["version", "--client"])
        .output();
    if version.is_err() {
        eprintln!("skipped: kubectl is not installed");
    }
    version.is_ok()
}

/// Lines with runs of spaces folded, and without the last column.
fn cells(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    text.lines().map(words).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seed_s_session_works_as_printed() {
    if !installed() {
        return;
    }
    let up = Up::in_memory().await;
    let slices = cells(&kubectl(&up, "get resourceslices").await);
    assert_eq!(slices[0], ["NAME", "NODE", "DRIVER", "POOL", "AGE"]);
    assert!(
        slices[1][0].starts_with("node-0-gpu.example.com-"),
        "{slices:?}"
    );
    assert_eq!(slices[1][1..4], ["node-0", "gpu.example.com", "node-0"]);
    let classes = cells(&kubectl(&up, "get deviceclasses").await);
    assert_eq!(
        (&classes[0][0], &classes[1][0]),
        (&"NAME".into(), &"gpu.example.com".into())
    );
    let description = kubectl(&up, &format!("describe resourceslice {}", slices[1][0])).await;
    for expected in ["LATEST-GPU-MODEL", "80Gi", "gpu-7", "1.0.0"] {
        assert!(
            description.contains(expected),
            "{expected} in {description}"
        );
    }

    let applied = kubectl(&up, "apply -f example_resourceclaimtemplate.yaml").await;
    assert_eq!(
        applied,
        "resourceclaimtemplate.resource.k8s.io/example created\n"
    );
    assert_eq!(
        kubectl(&up, "apply -f example_claim_po.yaml").await,
        "pod/example-claim created\n"
    );
    kubectl(
        &up,
        "wait --for=condition=Ready pod/example-claim --timeout=120s",
    )
    .await;
    let claims = cells(&kubectl(&up, "get resourceclaim").await);
    assert_eq!(claims[0], ["NAME", "STATE", "AGE"]);
    assert_eq!(claims[1][1], "allocated,reserved");
    let environment = kubectl(&up, "exec example-claim -- printenv").await;
    assert!(environment.contains("GPU_DEVICE_0=gpu-"), "{environment}");
    allot_testing::wait::until("the device is logged", || async {
        let log = kubectl(&up, "logs example-claim").await;
        log.contains("GPU_DEVICE_0=").then_some(()).ok_or(log)
    })
    .await;
    assert!(
        kubectl(&up, "describe pod example-claim")
            .await
            .contains("example-claim")
    );
    let again = kubectl(&up, "apply -f example_claim_po.yaml").await;
    assert_eq!(again, "pod/example-claim unchanged\n");
    assert_eq!(
        kubectl(&up, "delete -f example_claim_po.yaml").await,
        "pod \"example-claim\" deleted\n"
    );
    kubectl(&up, "wait --for=delete resourceclaim --all --timeout=120s").await;

    let deleted = kubectl(
        &up,
        "delete resourceslice --field-selector spec.driver=gpu.example.com",
    )
    .await;
    assert_eq!(
        deleted,
        format!(
            "resourceslice.resource.k8s.io \"{}\" deleted\n",
            slices[1][0]
        )
    );
}

const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  containers:
  - name: main
    image: host
    command: ["sleep", "1000"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_in_a_pod_finds_the_api_server() {
    if !installed() {
        return;
    }
    let up = Up::in_memory().await;
    up.create(CLIENT).await;
    up.running("client").await;
    let me = up.exec(
        "client",
        "main",
        &["kubectl", "auth", "whoami", "-o", "yaml"],
    );
    let me = me.await;
    assert!(me.contains("system:serviceaccount:default:default"), "{me}");
    assert!(me.contains("authentication.kubernetes.io/pod-name"), "{me}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_says_no_to_kubectl() {
    if !installed() {
        return;
    }
    let up = Up::in_memory().await;
    let printed = kubectl(&up, "apply -f policy/policy.yaml").await;
    assert!(printed.contains("no-whole-nodes created"), "{printed}");
    let claim = "apply -f policy/claim-of-a-whole-node.yaml";
    let (success, printed, error) = run(&up, claim).await;
    assert!(!success, "{printed}");
    let why = "resourceclaims.resource.k8s.io \"everything\" is forbidden: ValidatingAdmissionPolicy 'no-whole-nodes' \
               with binding 'no-whole-nodes' denied request: all devices of a node are not for default: gpus";
    assert!(error.contains(why), "{error}");
    kubectl(&up, "label namespace default whole-nodes=yes").await;
    let printed = kubectl(&up, claim).await;
    assert!(printed.contains("everything created"), "{printed}");
}

/// The claim that a policy refuses was among them: kubectl failed, and left the policy behind.
#[tokio::test(flavor = "multi_thread")]
async fn regression_the_examples_can_be_applied_at_once() {
    if !installed() {
        return;
    }
    let up = Up::in_memory().await;
    let printed = kubectl(&up, "apply -f .").await;
    assert!(printed.contains("pod/example-claim created"), "{printed}");
    assert!(!printed.contains("policy"), "{printed}");
}
