//! Wrong input gets one clear line and a failure, never a panic.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::ListParams;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::harness::{ALLOT, PATIENCE, Up, directory};

fn allot(arguments: &[&str]) -> Output {
    Command::new(ALLOT)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts")
}

/// The command fails and says `expected` on standard error.
fn refused(arguments: &[&str], expected: &str) {
    let output = allot(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} should fail");
    assert!(error.contains(expected), "{arguments:?}: {error}");
    assert!(!error.contains("panicked"), "{arguments:?}: {error}");
}

#[test]
fn regression_numbers_that_are_far_too_large_are_refused() {
    let between = "it must be between 0 and 5000";
    refused(&["up", "--nodes", "100000000"], between);
    refused(&["node", "--node-name", "n", "--nodes", "5001"], between);
    refused(
        &["apiserver", "--request-timeout", "1000h"],
        "it must be longer than 0s and at most 24h",
    );
    refused(
        &[
            "apiserver",
            "--in-memory",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
        ],
        "needs seats to share out",
    );
}

#[test]
fn unknown_flags_and_values_are_named() {
    refused(&["up", "--frobnicate"], "--frobnicate");
    refused(&["up", "--runtime", "magic"], "magic");
    refused(
        &["up", "--in-memory", "--feature-gates", "NoSuchGate=true"],
        "NoSuchGate",
    );
    refused(
        &["up", "--in-memory", "--emulated-version", "1.2"],
        "\"1.2\" is not known; choose one of 1.26, 1.27,",
    );
    refused(
        &["up", "--in-memory", "--controllers", "nonsense"],
        "nonsense",
    );
    refused(
        &["up", "--in-memory", "--disable-admission-plugins=Nonsense"],
        "--disable-admission-plugins: plugin \"Nonsense\" is unknown",
    );
    refused(
        &[
            "up",
            "--in-memory",
            "--listen=127.0.0.1:0",
            "--emulated-version=1.30",
            "--dra",
            "--driver=gpu",
        ],
        "error: this release does not serve the kinds that the GPU driver needs; pass --dra",
    );
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    refused(&["up", "--in-memory", "--listen", &address], &address);
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    refused(
        &["up", "--listen", "127.0.0.1:0", "--data-dir", "/dev/null/x"],
        "/dev/null/x",
    );
    let files = directory();
    let file = files.path().join("file");
    std::fs::write(&file, "").expect("written");
    let file = file.to_str().expect("UTF-8");
    let flags = ["up", "--listen", "127.0.0.1:0", "--data-dir", file];
    refused(
        &flags,
        &format!("error: cannot open {file}: it is no directory\n"),
    );
}

#[test]
fn regression_flags_and_names_that_do_nothing_are_refused() {
    let flags = [
        "up",
        "--in-memory",
        "--listen=127.0.0.1:0",
        "--drivername=x",
    ];
    refused(
        &flags,
        "error: --drivername is the name of the test driver: give --driver test as well\n",
    );
    for other in ["--no-driver", "--runtime=simulated", "--hardware=h100"] {
        let flags = [
            "up",
            "--in-memory",
            "--listen=127.0.0.1:0",
            "--gpu-partitions=2",
            other,
        ];
        refused(
            &flags,
            "are for the GPU driver: give --driver gpu as well\n",
        );
    }
    let files = directory();
    let file = files.path().join("empty.json");
    std::fs::write(&file, r#"{"kind": "List", "items": []}"#).expect("written");
    let file = file.to_str().expect("UTF-8");
    let workload =
        "error: deployment/web is no pod: name one of its pods, or give its manifest with -f\n";
    refused(&["explain", "deployment/web", "--from", file], workload);
    for command in ["convert", "lint", "explain"] {
        let other = files.path().join("other.yaml");
        std::fs::write(&other, "nodes: []\n").expect("written");
        let other = other.to_str().expect("UTF-8");
        let expected = format!("error: {other}:1: no manifest: it has no apiVersion and kind\n");
        refused(&[command, "-f", other], &expected);
    }
    let missing = "error: cannot read kubeconfig nowhere: No such file or directory (os error 2)\n";
    refused(&["devices", "--kubeconfig", "nowhere"], missing);
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_who_reads_a_part_of_a_dump_has_enough() {
    let data = directory();
    let up = Up::start(data.path(), &["--nodes", "0"]).await;
    assert!(up.stop());
    let mut dump = Command::new(ALLOT)
        .args(["store", "dump", "--data-dir"])
        .arg(data.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(dump.stdout.take());
    let output = dump.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// A kubeconfig of a server that does not answer.
fn unreachable(directory: &Path) -> String {
    let text = "{apiVersion: v1, kind: Config, current-context: a, users: [{name: a}],
        contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: http://127.0.0.1:1}}]}";
    let file = directory.join("kubeconfig");
    std::fs::write(&file, text).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

/// The error named a socket and said "No such file or directory".
#[test]
fn a_driver_without_a_kubelet_says_what_is_missing() {
    let directory = directory();
    let kubeconfig = format!("--kubeconfig={}", unreachable(directory.path()));
    let root = directory.path().join("kubelet").display().to_string();
    let flags = ["--node-name=a", &format!("--kubelet-dir={root}")];
    refused(
        &[
            "driver",
            "gpu",
            &kubeconfig,
            flags[0],
            flags[1],
            "--kubelet-timeout=0",
        ],
        &format!("{root}/plugins_registry: no such directory. In it a kubelet"),
    );
}

/// It waited without a word, and said when interrupted that devices stay tainted.
#[test]
fn regression_a_driver_is_not_drained_without_an_api_server() {
    let directory = directory();
    refused(
        &[
            "drain-driver",
            "a",
            "--kubeconfig",
            &unreachable(directory.path()),
        ],
        "the API server does not answer: http://127.0.0.1:1: ",
    );
}

/// It went on trying to delete the slices of an earlier run.
#[tokio::test]
async fn regression_a_node_ends_before_its_api_server_answers() {
    let directory = directory();
    let mut node = tokio::process::Command::new(ALLOT)
        .args(["node", "--node-name=a", "--runtime=simulated", "--root-dir"])
        .arg(directory.path().join("node"))
        .args(["--kubeconfig", &unreachable(directory.path())])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts");
    let mut log = BufReader::new(node.stderr.take().expect("piped")).lines();
    let line = log.next_line().await.expect("a line").expect("a line");
    assert!(line.contains("Connection refused"), "{line}");
    let pid = node.id().expect("running").to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.expect("kill").success());
    let ended = tokio::time::timeout(PATIENCE, node.wait()).await;
    assert!(ended.expect("in time").expect("waited").success());
}

/// What could not be logged was told on standard error, which was closed.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_closed_log_causes_no_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(ALLOT);
    command.stderr(writer);
    // It warns that the GPU driver is not started.
    let up = Up::launch_by(command, &["--in-memory", "--emulated-version=1.30"]).await;
    assert!(up.stop());
}

#[test]
fn a_corrupt_store_is_named_with_the_way_to_check_it() {
    let directory = directory();
    let path = directory.path().to_str().expect("UTF-8");
    std::fs::write(directory.path().join("store.redb"), b"this is no store").expect("written");
    refused(
        &["up", "--listen", "127.0.0.1:0", "--data-dir", path],
        "store.redb",
    );
    refused(
        &["up", "--listen", "127.0.0.1:0", "--data-dir", path],
        "allot store check",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_inside_of_a_store_is_reported_without_a_panic() {
    use std::os::unix::fs::FileExt;
    let directory = directory();
    let up = Up::start(directory.path(), &["--nodes", "0", "--no-driver"]).await;
    assert!(up.stop(), "stops cleanly");
    let file = directory.path().join("store.redb");
    let file = std::fs::OpenOptions::new().write(true).open(file);
    // All pages but the first, which tells how long the file is: the database itself panics on them.
    let file = file.expect("a store");
    let length = file.metadata().expect("a length").len();
    let garbage: Vec<u8> = (0..length - 4096).map(|i| (i * 131 % 251) as u8).collect();
    file.write_all_at(&garbage, 4096).expect("written");
    let path = directory.path().to_str().expect("UTF-8").to_owned();
    let commands = tokio::task::spawn_blocking(move || {
        refused(
            &["up", "--listen", "127.0.0.1:0", "--data-dir", &path],
            "allot store check",
        );
        refused(&["store", "check", "--data-dir", &path], "restore a copy");
        refused(&["store", "dump", "--data-dir", &path], "damaged");
    });
    commands.await.expect("refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_a_directory_is_refused() {
    let directory = directory();
    let up = Up::start(directory.path(), &["--nodes", "0", "--no-driver"]).await;
    let path = directory.path().to_str().expect("UTF-8").to_owned();
    let second = tokio::task::spawn_blocking(move || {
        refused(
            &["up", "--listen", "127.0.0.1:0", "--data-dir", &path],
            "in use",
        );
    });
    second.await.expect("refused");
    assert!(up.stop(), "the first stops cleanly");
}

#[test]
fn every_command_has_help_and_shells_complete() {
    for command in [
        "up",
        "demo",
        "apiserver",
        "scheduler",
        "controllers",
        "node",
        "driver",
        "allocate",
        "cel",
        "store",
        "bench",
    ] {
        assert!(allot(&[command, "--help"]).status.success(), "{command}");
    }
    let script = allot(&["completion", "bash"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("_allot"));
}

/// The output when the reader closes it.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Command::new(ALLOT)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("the binary starts")
}

#[test]
fn a_closed_output_causes_no_panic() {
    let commands: [&[&str]; 5] = [
        &["completion", "bash"],
        &["cel", "true"],
        &["cel", "true &&", "-o", "json"],
        &["bench", "scheduling", "--workload", "list"],
        &["demo"],
    ];
    for arguments in commands {
        let output = unread(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        // The demo's components may warn about something while they are stopped, which may be a client's error.
        let error = String::from_utf8_lossy(&output.stderr);
        let told = |line: &str| line.contains("panicked") || line.starts_with("error: ");
        let told = error.lines().any(told);
        assert!(!told, "{arguments:?}: {error}");
    }
}

/// The first line that it printed ended the command, and the devices stayed tainted.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_is_drained_although_the_output_is_closed() {
    let cluster = Up::in_memory().await;
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    assert_eq!(
        slices
            .list(&ListParams::default())
            .await
            .expect("slices")
            .items
            .len(),
        1
    );
    let kubeconfig = cluster.kubeconfig.to_str().expect("UTF-8").to_owned();
    let drained = tokio::task::spawn_blocking(move || {
        unread(&[
            "drain-driver",
            "gpu.example.com",
            "--no-hold",
            "--kubeconfig",
            &kubeconfig,
        ])
    });
    let output = drained.await.expect("the command ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}

/// Nothing said what a problem looks like.
#[test]
fn regression_the_problem_in_the_help_is_one() {
    let help = allot(&["allocate", "--help"]);
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let from = help.find("  {\"nodes\"").expect("an example");
    let problem = help[from..].split("\n\n").next().expect("an example");
    let directory = directory();
    let file = directory.path().join("problem.json");
    std::fs::write(&file, problem).expect("written");
    let path = file.to_str().expect("UTF-8");
    let answer = allot(&["allocate", "--explain", "-o", "text", path]);
    assert_eq!(
        String::from_utf8_lossy(&answer.stdout),
        "a: claim c, request gpus needs 2 devices, 1 seen; the node has no more\n"
    );
}

#[test]
fn json_that_is_no_problem_to_solve_is_refused() {
    let directory = directory();
    let file = directory.path().join("problems");
    let path = file.to_str().expect("UTF-8");
    for other in ["{}", "[]", "{\"kind\": \"Pod\"}"] {
        std::fs::write(&file, other).expect("written");
        refused(&["allocate", path], "problem 1 asks nothing");
    }
    std::fs::write(&file, "{\"claims\": 3}").expect("written");
    refused(&["allocate", path], "problem 1 cannot be read");
}
