//! The program under test, as an API server alone or as a cluster without nodes.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::report::Report;

/// The token of the administrator of [`Server::api`].
pub const TOKEN: &str = "conformance-token";

/// How long the program may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A binding timeout of some seconds, which `short-binding-timeout` promises to the scenarios.
const SCHEDULER: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 1000
  burst: 2000
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: DynamicResources
    args:
      bindingTimeout: 10s
";

/// A running program. It ends when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    directory: tempfile::TempDir,
}

impl Server {
    /// An API server that is set up like the recorded one: no controllers, scheduler or kubelet.
    pub fn api() -> Self {
        Self::start("apiserver", |directory| {
            let tokens = directory.join("tokens");
            let line = format!("{TOKEN},admin,admin,\"system:masters\"\n");
            fs::write(&tokens, line).expect("written");
            vec![
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true"
                    .to_owned(),
            ]
        })
    }

    /// A cluster whose nodes and drivers the scenarios play.
    pub fn cluster() -> Self {
        Self::start("up", |directory| {
            let scheduler = directory.join("scheduler.yaml");
            fs::write(&scheduler, SCHEDULER).expect("written");
            vec![
                "--nodes=0".to_owned(),
                "--no-driver".to_owned(),
                "--feature-gates=DRADeviceTaintRules=true".to_owned(),
                "--runtime-config=resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true"
                    .to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--scheduler-config={}", scheduler.display()),
            ]
        })
    }

    fn start(command: &str, flags: impl FnOnce(&PathBuf) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let program = std::env::var_os("ALLOT_BIN")
            .filter(|named| !named.is_empty())
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_allot").into());
        // Relative names are relative to the top of the repository, where cargo is called.
        let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(program);
        let log = File::create(path.join("log")).expect("a log");
        let child = Command::new(&program)
            .arg(command)
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(path.join("data"))
            .arg("--kubeconfig-out")
            .arg(path.join("kubeconfig"))
            .args(flags(&path))
            // No test waits for a registry that this machine may or may not reach.
            .env("ALLOT_IMAGES", "host")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut server = Self { child, directory };
        server.await_start();
        server
    }

    /// The kubeconfig is written when the server is about to serve.
    fn await_start(&mut self) {
        let start = Instant::now();
        loop {
            if fs::metadata(self.kubeconfig()).is_ok_and(|file| file.len() > 0) {
                return;
            }
            let ended = self.child.try_wait().expect("a child").is_some();
            assert!(
                !ended && start.elapsed() < PATIENCE,
                "the server did not start:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The administrator's access.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        let text = fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        text.lines()
            .find_map(|line| line.trim().strip_prefix("server: "))
            .expect("the kubeconfig names the server")
            .to_owned()
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Ends it. That it ended by itself before is a failure.
    pub fn stop(mut self, report: &mut Report) {
        if let Ok(Some(status)) = self.child.try_wait() {
            let error = format!("it ended early, {status}:\n{}", self.log());
            report.fail("server", error);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
