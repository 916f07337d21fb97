//! Finding the cluster, old versions of it, and the binary as a plugin of kubectl.

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStderr, ChildStdout};

use super::explain::{exits, text};
use super::harness::{ALLOT, PATIENCE, Up, directory, example};

/// Runs a program with an environment that knows of no cluster but what is given.
fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)], home: &Path) -> Output {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("XDG_DATA_HOME")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", home);
    command
        .envs(environment.iter().copied())
        .output()
        .expect("runs")
}

fn stdout(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_is_found_as_kubectl_finds_it_and_the_plugin_is_the_same_binary() {
    let up = Up::in_memory().await;
    let files = directory();
    let home = files.path();
    let names = ["devices", "-o", "name", "--state", "free"];
    let expected: String = (0..8)
        .map(|n| format!("gpu.example.com/node-0/gpu-{n}\n"))
        .collect();
    let allot = Path::new(ALLOT);

    // Nothing to be found.
    let none = run(allot, &names, &[], home);
    let error = String::from_utf8_lossy(&none.stderr);
    assert!(error.starts_with("error: no cluster found: "), "{error}");
    let none = run(allot, &["explain"], &[], home);
    assert_eq!(none.status.code(), Some(2));

    // What `allot up` leaves in its directory, when there is nothing else.
    let own = home.join(".local/share/allot");
    std::fs::create_dir_all(&own).expect("a directory");
    std::fs::copy(&up.kubeconfig, own.join("kubeconfig")).expect("copied");
    let found = run(allot, &names, &[], home);
    assert_eq!(stdout(&found), expected);
    let told = String::from_utf8_lossy(&found.stderr);
    assert!(told.starts_with("no kubeconfig found: using "), "{told}");

    // The environment, and a context in it.
    let kubeconfig = text(&up.kubeconfig);
    let environment = [("KUBECONFIG", kubeconfig)];
    assert_eq!(stdout(&run(allot, &names, &environment, home)), expected);
    let context = [&names[..], &["--context", "missing"]].concat();
    let error = run(allot, &context, &environment, home);
    let error = String::from_utf8_lossy(&error.stderr);
    assert!(
        error.starts_with("error: there is no context \"missing\""),
        "{error}"
    );

    // A namespace that does not exist is no namespace in which nothing waits, and one that cannot exist no path.
    let in_namespace = |name: &str| {
        let asked = run(allot, &["explain", "-n", name], &environment, home);
        let error = String::from_utf8_lossy(&asked.stderr).into_owned();
        (asked.status.code(), error)
    };
    let (status, error) = in_namespace("defualt");
    let meant = "error: there is no namespace defualt; did you mean default?\n";
    assert_eq!((status, error.as_str()), (Some(3), meant));
    let (status, error) = in_namespace("../../nodes");
    assert!(
        status == Some(2) && error.contains("RFC 1123 label"),
        "{error}"
    );

    // A link makes it a plugin.
    let plugin = home.join("kubectl-dra");
    std::os::unix::fs::symlink(ALLOT, &plugin).expect("linked");
    assert_eq!(stdout(&run(&plugin, &names, &environment, home)), expected);
    let help = stdout(&run(&plugin, &["drain", "--help"], &environment, home));
    assert!(help.contains("kubectl dra drain gpu.example.com"), "{help}");
    let completion = home.join("kubectl_complete-dra");
    std::os::unix::fs::symlink(ALLOT, &completion).expect("linked");
    let words = stdout(&run(&completion, &["exp"], &environment, home));
    assert!(
        words.starts_with("explain\t") && words.ends_with("\n:4\n"),
        "{words}"
    );
    let nodes = stdout(&run(
        &completion,
        &["devices", "--node", ""],
        &environment,
        home,
    ));
    assert_eq!(nodes, "node-0\n:4\n");
    let drivers = stdout(&run(&completion, &["drain", "gpu"], &environment, home));
    assert_eq!(drivers, "gpu.example.com\n:4\n");

    // Selectors on what the cluster has.
    let selected = run(
        allot,
        &["cel", "--class", "gpu.example.com", "-o", "json"],
        &environment,
        home,
    );
    let line: Value = serde_json::from_str(&stdout(&selected)).expect("JSON");
    assert_eq!(line["devices"].as_array().map(Vec::len), Some(8), "{line}");
    assert_eq!(line["devices"][0]["matches"], true, "{line}");
    let mistyped = run(
        allot,
        &["cel", "--class", "gqu.example.com"],
        &environment,
        home,
    );
    let error = String::from_utf8_lossy(&mistyped.stderr);
    assert!(error.contains("did you mean gpu.example.com?"), "{error}");
    let sums = stdout(&run(
        allot,
        &["devices", "--by", "class", "-o", "csv"],
        &environment,
        home,
    ));
    assert!(
        sums.contains("gpu.example.com,8,8,0,8 on node-0\n"),
        "{sums}"
    );
    let claim = files.path().join("claim.yaml");
    let manifest = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gqu.example.com}}]}}
";
    std::fs::write(&claim, manifest).expect("written");
    let lint = run(
        allot,
        &["lint", "--cluster", "-f", text(&claim)],
        &environment,
        home,
    );
    let told = String::from_utf8_lossy(&lint.stdout);
    let missing = "missing: ResourceClaim c: spec.devices.requests[0].exactly.deviceClassName: \
        there is no DeviceClass gqu.example.com; did you mean gpu.example.com?";
    assert!(told.contains(missing) && !lint.status.success(), "{told}");
}

/// Servers that have devices in an older version only.
#[tokio::test(flavor = "multi_thread")]
async fn devices_of_older_releases_are_listed_and_explained() {
    // Each with a version of the API that it has.
    for (release, version) in [
        ("1.31", "v1alpha3"),
        ("1.32", "v1beta1"),
        ("1.33", "v1beta1"),
    ] {
        let flags = ["--emulated-version", release, "--dra"];
        let up = Up::in_memory_with(&flags).await;
        let cluster = ["--kubeconfig", text(&up.kubeconfig)];
        let names = exits(0, &[&["devices", "-o", "name"][..], &cluster].concat());
        assert_eq!(names.lines().count(), 8, "{release}: {names}");
        let files = directory();
        let file = files.path().join("pod.yaml");
        let claim = "
kind: ResourceClaim
metadata: {name: nine}
spec: {devices: {requests: [{name: r, deviceClassName: gpu.example.com, count: 9}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: x, resources: {claims: [{name: g}]}}]
  resourceClaims: [{name: g, resourceClaimName: nine}]
";
        let manifest = format!("apiVersion: resource.k8s.io/{version}{claim}");
        std::fs::write(&file, manifest).expect("written");
        let told = exits(1, &[&["explain", "-f", text(&file)][..], &cluster].concat());
        assert!(
            told.contains("request r needs 9 devices:\n      8 seen\n"),
            "{release}: {told}"
        );
    }
}

/// A pod that is there, as kubectl writes it.
#[tokio::test(flavor = "multi_thread")]
async fn what_kubectl_writes_is_taken_and_mistyped_manifests_are_not() {
    let up = Up::in_memory().await;
    up.eight_gpu_pods().await;
    let files = directory();
    let cluster = ["--kubeconfig", text(&up.kubeconfig)];
    let mut pods = up
        .pods()
        .list(&kube::api::ListParams::default())
        .await
        .expect("pods");
    let list = |pods: &[Pod]| {
        let items: Vec<Value> = pods
            .iter()
            .map(|pod| {
                let mut pod = serde_json::to_value(pod).expect("JSON");
                pod["apiVersion"] = "v1".into();
                pod["kind"] = "Pod".into();
                pod
            })
            .collect();
        serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    };
    pods.items.truncate(2);
    let file = files.path().join("pods.yaml");
    std::fs::write(&file, list(&pods.items)).expect("written");
    let asked = [&["explain", "-f", text(&file)][..], &cluster].concat();
    let told = exits(0, &asked);
    assert_eq!(told.matches(" is on node node-0\n").count(), 2, "{told}");

    let manifest = "
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containrs: [{name: c, image: x}]
";
    std::fs::write(&file, manifest).expect("written");
    exits(2, &asked);
    let output = Command::new(ALLOT).args(&asked).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    let place = "pods.yaml:6: Pod p: spec.containrs: unknown field \"spec.containrs\"; did you mean containers?";
    assert!(error.contains(place), "{error}");
}

/// `allot devices --watch`, which ends with it.
struct DeviceWatch {
    _child: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Lines<BufReader<ChildStderr>>,
}

impl DeviceWatch {
    fn start(kubeconfig: &Path) -> Self {
        let mut child = tokio::process::Command::new(ALLOT)
            .args(["devices", "--watch", "-o", "json", "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        Self {
            lines: BufReader::new(child.stdout.take().expect("piped")).lines(),
            errors: BufReader::new(child.stderr.take().expect("piped")).lines(),
            _child: child,
        }
    }

    /// The next change of a device.
    async fn next(&mut self) -> Value {
        serde_json::from_str(&line(&mut self.lines).await).expect("JSON")
    }
}

/// The next line of an output.
async fn line(lines: &mut Lines<impl AsyncBufRead + Unpin>) -> String {
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    line.expect("in time").expect("read").expect("a line")
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_change_are_printed_while_they_are_watched() {
    let up = Up::in_memory().await;
    let mut watch = DeviceWatch::start(&up.kubeconfig);
    for _ in 0..8 {
        assert_eq!(watch.next().await["state"], "free");
    }
    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    up.create(&example("example_claim_po.yaml")).await;
    let changed = watch.next().await;
    assert_eq!(changed["state"], "in-use", "{changed}");
    assert_eq!(
        changed["claims"][0]["class"], "gpu.example.com",
        "{changed}"
    );
}

/// A forwarder to the API server: while it is aborted, the server is away.
fn forward(listener: tokio::net::TcpListener, target: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut from, _)) = listener.accept().await {
            let target = target.clone();
            connections.spawn(async move {
                if let Ok(mut to) = tokio::net::TcpStream::connect(target).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    })
}

/// It ended with an error when the server was started again, although it is to go on until it is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_watch_outlasts_a_server_that_is_away() {
    let up = Up::in_memory().await;
    let config = std::fs::read_to_string(&up.kubeconfig).expect("a kubeconfig");
    let server = config.split_once("https://").expect("a server").1;
    let server = server.lines().next().expect("an address").to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    let files = directory();
    let file = files.path().join("kubeconfig");
    std::fs::write(&file, config.replace(&server, &address.to_string())).expect("written");
    let there = forward(listener, server.clone());
    let mut watch = DeviceWatch::start(&file);
    for _ in 0..8 {
        assert_eq!(watch.next().await["state"], "free");
    }
    there.abort();
    let _ = there.await;
    let told = line(&mut watch.errors).await;
    assert!(told.ends_with("; it is tried again"), "{told}");
    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    up.create(&example("example_claim_po.yaml")).await;
    up.running("example-claim").await;
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .expect("the port again");
    let _there = forward(listener, server);
    assert_eq!(watch.next().await["state"], "in-use");
}

/// The first signal was not listened to.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_command_that_waits_for_a_silent_server_can_be_interrupted() {
    let files = directory();
    let file = files.path().join("kubeconfig");
    for arguments in [
        &["explain"][..],
        &["devices"],
        &["snapshot"],
        &["cel", "true", "--cluster"],
        &["drain-driver", "gpu.example.com"],
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, users: [{{name: a, user: {{}}}}], \
              contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
              clusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]}}"
        );
        std::fs::write(&file, config).expect("written");
        let child = tokio::process::Command::new(ALLOT)
            .args(arguments)
            .args(["--kubeconfig", text(&file)])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        // It waits for an answer now.
        let accepted = tokio::time::timeout(PATIENCE, listener.accept()).await;
        let connection = accepted.expect("in time").expect("accepted");
        let pid = child.id().expect("it runs").to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.expect("runs").success());
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let ended = ended.expect("in time").expect("waited");
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(error, "error: interrupted\n", "{arguments:?}");
        drop(connection);
    }
}
