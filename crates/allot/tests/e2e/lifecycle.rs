//! A cluster in the background: its state, its log, and its end with everything that it runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::{ALLOT, Directory, PATIENCE, Up, client, directory, example};

/// A separate home directory: default directory, registry of clusters and kubeconfig are below it.
struct Home(Directory);

impl Home {
    fn new() -> Self {
        Self(directory())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The program in this home.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ALLOT);
        for variable in ["KUBECONFIG", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
            command.env_remove(variable);
        }
        command
            .args(arguments)
            .env("HOME", self.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    /// Standard output of a command that succeeds.
    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Standard error of a command that fails.
    fn stderr_of_failure(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} should fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn status(&self, flags: &[&str]) -> (bool, Value) {
        let output = self.run(&[&["status", "-o", "json"], flags].concat());
        let status = serde_json::from_slice(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        (
            output.status.success(),
            status.unwrap_or_else(|_| panic!("{error}")),
        )
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self
            .command(&["down", "--all", "--grace-period=0"])
            .output();
    }
}

/// Starts in the background on a port that the system picks, and returns its kubeconfig.
fn detach(home: &Home, flags: &[&str]) -> PathBuf {
    let started = home.stdout(&[&["up", "--detach", "--listen=127.0.0.1:0"], flags].concat());
    let line = started.lines().next().expect("a line");
    assert!(line.starts_with("ready: https://127.0.0.1:"), "{started}");
    let (_, kubeconfig) = line.split_once("KUBECONFIG=").expect("a kubeconfig");
    kubeconfig.into()
}

/// Processes with an argument that begins with that.
fn processes(prefix: &Path) -> Vec<String> {
    let prefix = prefix.to_str().expect("UTF-8");
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines
        .filter(|line| {
            line.split('\0')
                .any(|argument| argument.starts_with(prefix))
        })
        .collect()
}

/// Waits until a look at the machine says yes: what is looked for has no event that another process may wait for.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_the_background_is_asked_and_ended() {
    let home = Home::new();
    let (running, status) = home.status(&[]);
    assert!(!running && status["running"] == false, "{status}");

    let kubeconfig = detach(&home, &["--nodes=2"]);
    let data = home.path().join(".local/share/allot");
    assert_eq!(kubeconfig, data.join("kubeconfig"));
    let (running, status) = home.status(&[]);
    assert!(running, "{status}");
    assert_eq!(status["running"], true);
    assert_eq!(status["ready"], true);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["dataDir"], data.to_str().expect("UTF-8"));
    let nodes = serde_json::json!({"ready": 2, "total": 2});
    assert_eq!(status["content"]["nodes"], nodes);
    assert_eq!(
        status["content"]["drivers"],
        serde_json::json!(["gpu.example.com"])
    );
    let server = status["server"].as_str().expect("a URL");
    assert!(server.starts_with("https://127.0.0.1:"), "{server}");
    let text = home.stdout(&["status"]);
    assert!(text.contains("state       running, process "), "{text}");
    assert!(text.contains("nodes       2 of 2 ready\n"), "{text}");

    // A container, which must not outlive the cluster that is ended.
    let client = client(&kubeconfig).await;
    super::harness::create(&client, &example("example_resourceclaimtemplate.yaml")).await;
    super::harness::create(&client, &example("example_claim_po.yaml")).await;
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
    let running = kube::runtime::wait::conditions::is_pod_running();
    let running = kube::runtime::wait::await_condition(pods, "example-claim", running);
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("in time")
        .expect("watched");
    let (_, status) = home.status(&[]);
    assert_eq!(status["content"]["pods"]["running"], 1, "{status}");
    assert_eq!(
        status["containers"],
        serde_json::json!(["default/example-claim/ctr"])
    );

    let log = data.join("logs/allot.log");
    assert_eq!(status["log"], log.to_str().expect("UTF-8"));
    let mode = std::fs::metadata(&log).expect("a log").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let second = home.stderr_of_failure(&["up", "--detach", "--listen=127.0.0.1:0"]);
    assert!(second.contains("in use by another process"), "{second}");
    assert!(
        second.contains("`allot down` ends it, and --name NAME starts another"),
        "{second}"
    );
    // The refusal was the last line of the log of the cluster that ran.
    let log = std::fs::read_to_string(&log).expect("a log");
    assert!(!log.contains("in use by another process"), "{log}");

    let down = home.stdout(&["down", "--grace-period=0"]);
    assert!(down.contains("ended the server, process "), "{down}");
    assert!(
        down.contains("ended 1 container: default/example-claim/ctr\n"),
        "{down}"
    );
    assert_eq!(processes(&data), Vec::<String>::new());
    let (running, status) = home.status(&[]);
    assert!(
        !running && status["containers"] == serde_json::json!([]),
        "{status}"
    );
    let again = home.stdout(&["down"]);
    assert_eq!(again, format!("nothing runs in {}\n", data.display()));
}

#[test]
fn a_start_in_the_background_that_fails_says_why() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = home.stderr_of_failure(&["up", "--detach", "--in-memory", "--listen", &address]);
    assert!(
        error.contains(&format!(
            "error: cannot listen on {address}; choose another with --listen"
        )),
        "{error}"
    );
    let error = home.stderr_of_failure(&[
        "up",
        "--detach",
        "--in-memory",
        "--feature-gates=NoSuchGate=true",
    ]);
    assert!(error.contains("NoSuchGate"), "{error}");
    let error = home.stderr_of_failure(&["up", "--detach", "--data-dir=/dev/null/x"]);
    assert!(error.contains("/dev/null/x"), "{error}");
    assert_eq!(error.matches("error: ").count(), 1, "told once: {error}");
    let (running, _) = home.status(&["--all"]);
    assert!(!running);
}

#[test]
fn several_clusters_have_names() {
    let home = Home::new();
    let quiet = ["--nodes=0", "--no-driver"];
    let one = detach(&home, &[&["--name=one"], &quiet[..]].concat());
    let two = detach(
        &home,
        &[&["--name=two", "--in-memory"], &quiet[..]].concat(),
    );
    assert_eq!(one, home.path().join(".local/share/allot-one/kubeconfig"));
    let (running, all) = home.status(&["--all"]);
    let names: Vec<&str> = all
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(running && names == ["one", "two"], "{all}");
    assert!(home.status(&["--name=two"]).0);
    // Another one is not ended because the default one does not run.
    let none = home.run(&["down"]);
    let hint = String::from_utf8_lossy(&none.stderr);
    assert!(
        hint.contains("another cluster runs: `allot status --name one`, `allot down --name one`"),
        "{hint}"
    );
    // Both flags of `allot up` were refused together.
    let directory = one.parent().expect("a directory").display();
    let directory = format!("--data-dir={directory}");
    assert!(home.status(&["--name=one", &directory]).0);
    let other = home.stderr_of_failure(&["down", "--name=two", &directory]);
    assert!(other.contains("is called one, not two"), "{other}");
    home.stdout(&["down", "--name=one", &directory]);
    assert!(!home.status(&["--name=one"]).0);
    assert!(home.status(&["--name=two"]).0);
    home.stdout(&["down", "--all"]);
    assert!(!home.status(&["--all"]).0);
    assert!(!two.exists(), "what was in memory is gone");
    assert!(one.exists(), "what is kept stays");
    let bad = home.stderr_of_failure(&["up", "--name=../x"]);
    assert!(bad.contains("lower case letters"), "{bad}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_cluster_left_is_ended() {
    let home = Home::new();
    let data = home.path().join("data");
    let flags = ["--data-dir", data.to_str().expect("UTF-8")];
    let command = home.command(&[]);
    let up = Up::launch_by(command, &flags).await;
    up.create(PLAIN).await;
    up.running("plain").await;
    up.kill();
    let (running, status) = home.status(&flags);
    assert!(!running, "{status}");
    assert_eq!(
        status["containers"],
        serde_json::json!(["default/plain/main"])
    );
    let down = home.stdout(&[&["down", "--grace-period=0"], &flags[..]].concat());
    assert!(
        down.contains("ended 1 container: default/plain/main"),
        "{down}"
    );
    assert!(!down.contains("ended the server"), "{down}");
    eventually("the driver has ended as well", || {
        processes(&data).is_empty()
    });
}

const PLAIN: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers":
    [{"name": "main", "image": "busybox", "command": ["sh", "-c", "trap '' TERM; while true; do sleep 1000; done"]}]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_ends_names_the_containers_that_go_on() {
    let home = Home::new();
    let data = home.path().join("data");
    let flags = ["--data-dir", data.to_str().expect("UTF-8")];
    let errors = home.path().join("errors");
    let mut command = home.command(&[]);
    command.stderr(std::fs::File::create(&errors).expect("a file"));
    let up = Up::launch_by(command, &flags).await;
    up.create(PLAIN).await;
    up.running("plain").await;
    assert!(up.stop());
    let told = std::fs::read_to_string(&errors).expect("read");
    assert!(
        told.contains("stopping; once more ends at once\n"),
        "{told}"
    );
    let expected = format!(
        "1 container keeps running: default/plain/main; `allot down --data-dir {}` stops it",
        data.display()
    );
    assert!(told.contains(&expected), "{told}");

    // The directory is removed, and nothing runs of it any longer: neither the container nor later its server.
    std::fs::remove_dir_all(&data).expect("removed");
    eventually("the container has ended", || processes(&data).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_with_its_directory() {
    let home = Home::new();
    let data = home.path().join("data");
    detach(&home, &["--data-dir", data.to_str().expect("UTF-8")]);
    assert!(!processes(&data).is_empty());
    std::fs::remove_dir_all(&data).expect("removed");
    eventually("the server has ended", || processes(&data).is_empty());
}

#[test]
fn the_lock_also_holds_for_a_cluster_in_memory() {
    let home = Home::new();
    let data = home.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let quiet = ["--nodes=0", "--no-driver", "--data-dir", data];
    let kubeconfig = detach(&home, &quiet);
    let before = std::fs::read(&kubeconfig).expect("a kubeconfig");
    let error = home
        .stderr_of_failure(&[&["up", "--in-memory", "--listen=127.0.0.1:0"], &quiet[..]].concat());
    assert!(error.contains("in use by another process"), "{error}");
    assert_eq!(std::fs::read(&kubeconfig).expect("a kubeconfig"), before);
}

/// The link was printed once and nowhere else; a cluster that had ended had lost its name.
#[test]
fn regression_status_tells_the_link_and_the_name() {
    let home = Home::new();
    let up = ["up", "--detach", "--listen=127.0.0.1:0", "--name=a"];
    let started = home.stdout(&[&up[..], &["--nodes=0", "--no-driver", "--dashboard"]].concat());
    let mut lines = started.lines();
    let link = lines.find_map(|line| line.strip_prefix("dashboard: "));
    let (runs, status) = home.status(&["--name=a"]);
    assert!(runs);
    assert_eq!(status["dashboard"].as_str(), Some(link.expect("a link")));
    let record = home.path().join(".local/share/allot-a/cluster.json");
    let mode = std::fs::metadata(record).expect("a record").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "the link is a secret");
    home.stdout(&["down", "--name=a"]);
    let (runs, status) = home.status(&["--name=a"]);
    assert!(!runs);
    assert_eq!(status["name"], "a");
    assert_eq!(status["dashboard"], Value::Null);
    let error = home.stderr_of_failure(&["scheduler"]);
    assert!(
        error.contains("no cluster found: there is no $KUBECONFIG"),
        "{error}"
    );
}

#[test]
fn flags_are_read_from_a_file() {
    let home = Home::new();
    let file = home.path().join("up.yaml");
    let path = file.to_str().expect("UTF-8");
    std::fs::write(
        &file,
        "nodes: 3\nruntime: simulated\nname: fromfile\nno-driver: true\n",
    )
    .expect("written");
    detach(&home, &["--config", path, "--nodes=1"]);
    let (running, status) = home.status(&["--name=fromfile"]);
    assert!(running, "{status}");
    assert_eq!(
        status["content"]["nodes"]["total"], 1,
        "the command line wins"
    );
    assert_eq!(status["content"]["drivers"], serde_json::json!([]));
    for (text, expected) in [
        (
            "node: 3",
            "up.yaml: node: `allot up` has no flag of this name",
        ),
        (
            "nodes: many",
            "up.yaml: invalid value 'many' for '--nodes <N>'",
        ),
        ("nodes: [", "up.yaml: "),
    ] {
        std::fs::write(&file, text).expect("written");
        let error = home.stderr_of_failure(&["up", "--in-memory", "--config", path]);
        assert!(error.contains(expected), "{error}");
    }
    let error = home.stderr_of_failure(&["up", "--config", "/nowhere.yaml"]);
    assert!(
        error.contains("cannot read the configuration /nowhere.yaml"),
        "{error}"
    );
}

#[test]
fn the_context_is_merged_and_removed() {
    let home = Home::new();
    let config = home.path().join(".kube/config");
    std::fs::create_dir_all(config.parent().expect("a directory")).expect("made");
    let others = "apiVersion: v1\nkind: Config\ncurrent-context: work\ncontexts: [{name: work, context: {cluster: a, user: b}}]\n";
    std::fs::write(&config, others).expect("written");
    detach(
        &home,
        &[
            "--nodes=0",
            "--no-driver",
            "--kubeconfig-merge",
            "--name=dev",
        ],
    );
    let merged = kube::config::Kubeconfig::read_from(&config).expect("a kubeconfig");
    assert_eq!(merged.current_context.as_deref(), Some("allot-dev"));
    let names: Vec<String> = merged.contexts.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, ["work", "allot-dev"]);
    let devices = home.run(&["devices"]);
    let told = String::from_utf8_lossy(&devices.stderr);
    assert!(
        devices.status.success() && told.contains("no devices found"),
        "the context is used: {told}"
    );
    home.stdout(&["down", "--name=dev"]);
    let after = kube::config::Kubeconfig::read_from(&config).expect("a kubeconfig");
    let names: Vec<String> = after.contexts.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, ["work"]);
    assert_eq!(after.current_context.as_deref(), Some("work"));
}

#[test]
fn the_log_is_shown_and_followed() {
    use std::io::{BufRead as _, BufReader};
    let home = Home::new();
    let none = home.stderr_of_failure(&["logs"]);
    assert!(
        none.contains("allot.log does not exist: `allot up --detach` writes it"),
        "{none}"
    );
    detach(&home, &["-v", "--nodes=1"]);
    let all = home.stdout(&["logs"]);
    let scheduler = home.stdout(&["logs", "--component=scheduler"]);
    assert!(all.lines().count() > scheduler.lines().count(), "{all}");
    assert!(
        scheduler
            .lines()
            .all(|line| line.contains("allot_scheduler")),
        "{scheduler}"
    );
    let mut follow = home.command(&["logs", "--follow"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("started");
    let mut lines = BufReader::new(follow.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert_eq!(first, all.lines().next().expect("a line"));
    let pid = follow.id().to_string();
    Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .expect("kill");
    drop(lines);
    assert!(follow.wait().expect("ended").success());
}

#[test]
fn a_missing_home_is_reported() {
    let mut command = Command::new(ALLOT);
    command
        .args(["up"])
        .env("HOME", "")
        .env_remove("XDG_DATA_HOME")
        .current_dir("/");
    let output = command.output().expect("the binary starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains(
            "no home directory is known (HOME is not set or no absolute path); pass --data-dir"
        ),
        "{error}"
    );
}
