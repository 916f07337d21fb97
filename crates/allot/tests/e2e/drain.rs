//! `drain-driver`: which pods still use a driver, and how to revert a drain.

use std::process::{Command, Output};

use super::explain::{allot, as_account, text};
use super::harness::{ALLOT, PATIENCE, Up, directory};

fn drain(up: &Up, more: &[&str]) -> Output {
    let kubeconfig = up.kubeconfig.to_str().expect("UTF-8");
    let arguments = [
        &[
            "drain-driver",
            "gpu.example.com",
            "--kubeconfig",
            kubeconfig,
        ],
        more,
    ];
    let output = Command::new(ALLOT).args(arguments.concat()).output();
    output.expect("runs")
}

/// It gave up before it had checked, tainted nothing, and named no pod.
#[tokio::test(flavor = "multi_thread")]
async fn regression_who_uses_a_driver_is_named_without_waiting() {
    let up = Up::in_memory().await;
    up.eight_gpu_pods().await;
    let late = drain(&up, &["--timeout", "0"]);
    assert!(!late.status.success());
    let (told, error) = (
        String::from_utf8_lossy(&late.stdout),
        String::from_utf8_lossy(&late.stderr),
    );
    assert!(
        told.starts_with("tainted: 8 devices in 1 slice\nin use by 8 claims: default/pod-0-"),
        "{told}"
    );
    let named =
        "error: devices of gpu.example.com are still in use after 0 s by 8 claims: default/pod-0-";
    let undo =
        " and 3 more; they stay tainted, until `allot drain-driver gpu.example.com --undo`\n";
    assert!(error.contains(named) && error.ends_with(undo), "{error}");

    for expected in [
        "no longer tainted: 8 devices in 1 slice\n",
        "nothing is tainted\n",
    ] {
        let undone = drain(&up, &["--undo"]);
        assert!(undone.status.success());
        assert_eq!(String::from_utf8_lossy(&undone.stdout), expected);
    }
    let unknown = drain(&up, &["--undo", "--node", "elsewhere"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(
        error,
        "error: driver gpu.example.com has no slices on node elsewhere; there are: node-0\n"
    );
}

/// Standard output and standard error.
fn output_texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The driver that ran published its devices again without taints.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_driver_that_runs_is_held_until_it_is_stopped() {
    let up = Up::in_memory().await;
    let late = drain(&up, &["--timeout", "1"]);
    let (told, error) = output_texts(&late);
    assert!(!late.status.success());
    let stop = "no claim uses it: stop the driver now on node-0; what it publishes until then is tainted\n";
    assert!(told.ends_with(stop), "{told}");
    let runs = "error: driver gpu.example.com still runs on node-0 after 1 s; its devices stay tainted, until ";
    assert!(error.starts_with(runs), "{error}");
    let free = [
        "devices",
        "--state",
        "free",
        "--kubeconfig",
        text(&up.kubeconfig),
    ];
    assert_eq!(allot(&free), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_keeps_a_driver_tainted_until_it_is_taken_back() {
    let gates = ["--feature-gates", "DRADeviceTaintRules=true"];
    let up = Up::in_memory_with(&gates).await;
    let drained = drain(&up, &[]);
    let (told, error) = output_texts(&drained);
    assert!(drained.status.success(), "{error}");
    let rule = "tainted by 1 rule: allot-draining-gpu.example.com\n";
    let stays = "removed: 1 slice; stop the driver now: its devices stay tainted, until ";
    assert!(told.starts_with(rule) && told.contains(stays), "{told}");
    // It publishes again at once.
    let state = |state: &str| {
        let kubeconfig = ["--kubeconfig", text(&up.kubeconfig)];
        let arguments = ["devices", "--state", state, "-o", "name"];
        allot(&[&arguments[..], &kubeconfig].concat())
            .lines()
            .count()
    };
    wait_until(|| state("tainted") == 8).await;
    assert_eq!(state("free"), 0);
    let undone = drain(&up, &["--undo"]);
    let (told, _) = self::output_texts(&undone);
    assert!(told.starts_with("removed: 1 rule\n"), "{told}");
    wait_until(|| state("free") == 8).await;
}

/// Polls until a condition holds.
async fn wait_until(holds: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < end,
            "the condition never held"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// A watch that was refused was tried again and again.
#[tokio::test(flavor = "multi_thread")]
async fn regression_rights_that_are_missing_are_named() {
    let up = Up::in_memory().await;
    let files = directory();
    let account = as_account(&up, files.path()).await;
    let arguments = [
        "drain-driver",
        "gpu.example.com",
        "--kubeconfig",
        text(&account),
    ];
    let refused = Command::new(ALLOT).args(arguments).output().expect("runs");
    let (_, error) = output_texts(&refused);
    assert!(!refused.status.success());
    let rights = "error: the user has no right to list resourceslices.resource.k8s.io, \
        watch resourceslices.resource.k8s.io, patch resourceslices.resource.k8s.io, \
        delete resourceslices.resource.k8s.io, list resourceclaims.resource.k8s.io, \
        watch resourceclaims.resource.k8s.io\n";
    assert_eq!(error, rights);
}
