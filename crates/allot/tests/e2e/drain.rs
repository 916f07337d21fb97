//! `drain-driver`: who is in the way, and the way back.

use std::process::{Command, Output};

use super::harness::{ALLOT, Up};

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

/// It gave up before it had looked, tainted nothing, and named nobody.
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
        "error: driver gpu.example.com has no slices on node elsewhere\n"
    );
}
