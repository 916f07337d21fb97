//! A cluster of the real binary and a shell in front of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use allot_testing::wait::PATIENCE;

/// What a command printed.
#[derive(Debug)]
pub struct Printed {
    pub success: bool,
    pub out: String,
    pub err: String,
}

/// A running `allot up`, stopped when dropped.
pub struct Cluster {
    up: Child,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Starts a cluster in memory with the flags; `None`, and a notice, where kubectl is not installed.
    pub fn up(flags: &str) -> Option<Self> {
        let probe = Command::new("kubectl")
            .args(["version", "--client"])
            .output();
        if probe.is_err() {
            eprintln!("skipped: kubectl is not installed");
            return None;
        }
        let mut up = Command::new(env!("CARGO_BIN_EXE_allot"))
            .args(["up", "--in-memory", "--listen", "127.0.0.1:0"])
            .args(flags.split_whitespace())
            // No test waits for a registry that this machine may or may not reach.
            .env("ALLOT_IMAGES", "host")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = Lines::of(up.stdout.take().expect("piped"));
        let ready = lines.next("a line that says ready");
        let (_, kubeconfig) = ready
            .split_once("KUBECONFIG=")
            .unwrap_or_else(|| panic!("unexpected first line {ready:?}"));
        Some(Self {
            up,
            kubeconfig: PathBuf::from(kubeconfig),
        })
    }

    /// Where the cluster has its files until it stops.
    pub fn directory(&self) -> &Path {
        self.kubeconfig.parent().expect("a file in a directory")
    }

    /// Writes a file that lives as long as the cluster.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.directory().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            // What kubectl remembers of a server that had this port before would be wrong.
            .env("HOME", self.directory())
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))
            .stdin(Stdio::null());
        command
    }

    /// Runs `kubectl ARGUMENTS` in `examples/`.
    pub fn run(&self, arguments: &str) -> Printed {
        printed(&self.command(arguments).output().expect("kubectl runs"))
    }

    /// Runs kubectl, which must succeed, and returns what it printed.
    pub fn ok(&self, arguments: &str) -> String {
        let printed = self.run(arguments);
        assert!(printed.success, "kubectl {arguments}: {printed:?}");
        printed.out
    }

    /// Runs kubectl, which must fail, and returns its complaint.
    pub fn fails(&self, arguments: &str) -> String {
        let printed = self.run(arguments);
        assert!(!printed.success, "kubectl {arguments}: {printed:?}");
        printed.err
    }

    /// `kubectl create -f -` with a manifest.
    pub fn create(&self, manifest: &str) -> Printed {
        let mut command = self.command("create -f -");
        let mut kubectl = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let mut stdin = kubectl.stdin.take().expect("piped");
        stdin.write_all(manifest.as_bytes()).expect("taken");
        drop(stdin);
        printed(&kubectl.wait_with_output().expect("ended"))
    }

    /// The rows of `kubectl get …`, the header first, without the age.
    pub fn rows(&self, arguments: &str) -> Vec<Vec<String>> {
        rows(&self.ok(arguments))
    }

    /// Follows the claims of the default namespace. An unused claim of that version is created first: once it is
    /// listed, no later change is missed. Returns the header as well.
    pub fn follow_claims(&self, version: &str, spec: &str) -> (Follow, Vec<String>) {
        let unused = format!(
            "
apiVersion: resource.k8s.io/{version}
kind: ResourceClaim
metadata: {{name: unused}}
spec: {spec}
"
        );
        let created = self.create(&unused);
        assert!(created.success, "{created:?}");
        let watch = self.follow("get resourceclaim -w");
        let header = watch.next();
        assert_eq!(watch.next()[0], "unused");
        (watch, header)
    }

    /// Follows a long-running command, like `get -w`.
    pub fn follow(&self, arguments: &str) -> Follow {
        let mut kubectl = self
            .command(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let lines = Lines::of(kubectl.stdout.take().expect("piped"));
        Follow { kubectl, lines }
    }

    /// Runs a component beside the cluster.
    pub fn allot(&self, arguments: &[&str]) -> Component {
        let started = Command::new(env!("CARGO_BIN_EXE_allot"))
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .spawn();
        Component(started.expect("the binary starts"))
    }

    /// Waits until the pod has come to an end that is well.
    pub fn completed(&self, pod: &str) {
        self.ok(&format!(
            "wait --for=jsonpath={{.status.phase}}=Succeeded pod/{pod} --timeout=120s"
        ));
    }

    /// Waits until the pod is ready.
    pub fn ready(&self, pod: &str) {
        self.ok(&format!(
            "wait --for=condition=Ready pod/{pod} --timeout=120s"
        ));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pid = self.up.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.up.wait();
    }
}

/// A component beside the cluster, stopped when dropped.
pub struct Component(Child);

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A long-running command, ended when dropped.
pub struct Follow {
    kubectl: Child,
    lines: Lines,
}

impl Follow {
    /// The next line, its words.
    pub fn next(&self) -> Vec<String> {
        words(&self.lines.next("another line of the watch"))
    }

    /// Reads lines until one contains a text.
    pub fn read_until(&self, text: &str) {
        let what = format!("line with {text:?}");
        while !self.lines.next(&what).contains(text) {}
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// Lines of a process as they come.
struct Lines(mpsc::Receiver<String>);

impl Lines {
    fn of(stdout: ChildStdout) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            for line in reader.by_ref().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    // The output is no longer needed, but the process must not block on a full pipe.
                    let _ = std::io::copy(&mut reader, &mut std::io::sink());
                    return;
                }
            }
        });
        Self(receiver)
    }

    fn next(&self, what: &str) -> String {
        let line = self.0.recv_timeout(PATIENCE);
        line.unwrap_or_else(|_| panic!("no {what} came"))
    }
}

/// A claim `cat` of that version and a pod that uses it, as the documents of classic DRA write them; `placed` is more of
/// the pod's spec.
pub fn pod_with_cat(version: &str, pod: &str, placed: &str) -> String {
    format!(
        "
apiVersion: resource.k8s.io/{version}
kind: ResourceClaim
metadata: {{name: cat}}
spec: {{resourceClassName: example}}
---{}",
        pod_for_cat(pod, placed)
    )
}

/// The pod of [`pod_with_cat`].
pub fn pod_for_cat(pod: &str, placed: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {pod}}}
spec:
  {placed}
  containers:
  - {{name: c, image: busybox, command: [sleep, '9999'], resources: {{claims: [{{name: cat}}]}}}}
  resourceClaims: [{{name: cat, source: {{resourceClaimName: cat}}}}]
"
    )
}

fn printed(output: &std::process::Output) -> Printed {
    Printed {
        success: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A table's cells, without the column AGE, which is the last.
pub fn rows(table: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = table.lines().map(words).collect();
    let aged = rows
        .first()
        .and_then(|header| header.last())
        .is_some_and(|last| last == "AGE");
    if aged {
        for row in &mut rows {
            row.pop();
        }
    }
    rows
}

/// A name whose last, random part is replaced by `*`.
pub fn masked(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((stem, suffix)) if suffix.len() == 5 => format!("{stem}-*"),
        _ => name.to_owned(),
    }
}
