//! A cluster of the real binary, and how tests look at it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

pub use allot_testing::wait::PATIENCE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::Scope;
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Client};
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// The binary under test.
pub const ALLOT: &str = env!("CARGO_BIN_EXE_allot");

/// A running `allot up`. Stopped when dropped.
pub struct Up {
    child: Child,
    pub kubeconfig: PathBuf,
    pub client: Client,
}

impl Up {
    /// Starts a cluster that keeps nothing.
    pub async fn in_memory() -> Self {
        Self::in_memory_with(&[]).await
    }

    /// Starts a cluster that keeps nothing, with more flags.
    pub async fn in_memory_with(flags: &[&str]) -> Self {
        Self::launch(&[&["--in-memory"], flags].concat()).await
    }

    /// Starts on a directory.
    pub async fn start(directory: &Path, flags: &[&str]) -> Self {
        let directory = directory.to_str().expect("UTF-8");
        let mut arguments = vec!["--data-dir", directory];
        arguments.extend(flags);
        Self::launch(&arguments).await
    }

    /// Starts and waits for the line that says it is ready.
    async fn launch(flags: &[&str]) -> Self {
        Self::launch_by(Command::new(ALLOT), flags).await
    }

    /// Starts through a command that ends in the binary, such as one that gives up rights first.
    pub async fn launch_by(mut command: Command, flags: &[&str]) -> Self {
        let mut child = command
            .args(["up", "--listen", "127.0.0.1:0"])
            .args(flags)
            // No test waits for a registry that this machine may or may not reach.
            .env("ALLOT_IMAGES", "host")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("piped");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let line = tokio::task::spawn_blocking(move || receiver.recv_timeout(PATIENCE))
            .await
            .expect("no panic")
            .expect("a line that says ready");
        let (_, kubeconfig) = line
            .split_once("KUBECONFIG=")
            .unwrap_or_else(|| panic!("unexpected first line {line:?}"));
        let kubeconfig = PathBuf::from(kubeconfig);
        let client = client(&kubeconfig).await;
        Self {
            child,
            kubeconfig,
            client,
        }
    }

    /// Ends the process at once, as a power failure of the process would.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }

    /// Asks the process to stop, and returns whether it said it did well.
    pub fn stop(mut self) -> bool {
        self.terminate();
        self.child.wait().expect("waited").success()
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
    }

    /// Creates the objects of a manifest.
    pub async fn create(&self, manifest: &str) {
        create(&self.client, manifest).await;
    }

    /// The pods of the default namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates pod-0 to pod-7, which take all GPUs of a node, and waits until they run. Says how such a pod is written;
    /// its name is `example-claim`.
    pub async fn eight_gpu_pods(&self) -> String {
        self.create(&example("example_resourceclaimtemplate.yaml"))
            .await;
        let pod = example("example_claim_po.yaml");
        for index in 0..8 {
            self.create(&pod.replace("name: example-claim", &format!("name: pod-{index}")))
                .await;
        }
        for index in 0..8 {
            self.running(&format!("pod-{index}")).await;
        }
        pod
    }

    /// Waits until a pod runs.
    pub async fn running(&self, pod: &str) {
        self.wait_until(pod, "run", conditions::is_pod_running())
            .await;
    }

    /// Waits until a pod fulfils a condition.
    pub async fn wait_until(&self, pod: &str, what: &str, condition: impl Condition<Pod>) {
        let done = await_condition(self.pods(), pod, condition);
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(result) => drop(result.expect("watch")),
            Err(_) => panic!(
                "{pod} did not {what}: {:#?}",
                self.pods().get_opt(pod).await
            ),
        }
    }

    /// The GPUs that a container sees, by their environment.
    pub async fn gpus(&self, pod: &str, container: &str) -> Vec<String> {
        let environment = self.exec(pod, container, &["printenv"]).await;
        let mut gpus: Vec<_> = environment
            .lines()
            .filter_map(|line| line.strip_prefix("GPU_DEVICE_")?.split_once('='))
            .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
            .map(|(_, device)| device.to_owned())
            .collect();
        gpus.sort();
        gpus
    }

    /// Standard output of a command in a container.
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> String {
        let params = AttachParams::default().container(container).stderr(false);
        self.exec_with(params, pod, command).await
    }

    /// The same with other streams, or a terminal.
    pub async fn exec_with(&self, params: AttachParams, pod: &str, command: &[&str]) -> String {
        exec_in(&self.pods(), params, pod, command).await
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
            let _ = self.child.wait();
        }
    }
}

/// Standard output of a command in a container of a pod of some namespace.
pub async fn exec_in(pods: &Api<Pod>, params: AttachParams, pod: &str, command: &[&str]) -> String {
    let mut process = pods
        .exec(pod, command.iter().copied(), &params)
        .await
        .expect("exec");
    let mut output = String::new();
    let mut stdout = process.stdout().expect("piped");
    stdout.read_to_string(&mut output).await.expect("UTF-8");
    process.join().await.expect("ended");
    output
}

/// Creates the objects of a manifest, in their namespaces.
pub async fn create(client: &Client, manifest: &str) {
    write(client, manifest, false).await;
}

/// Applies the objects of a manifest, as `kubectl apply --server-side` does: an object may exist.
pub async fn apply(client: &Client, manifest: &str) {
    write(client, manifest, true).await;
}

async fn write(client: &Client, manifest: &str, apply: bool) {
    for object in objects(manifest) {
        let api = api_of(client, &object).await;
        if apply {
            let name = object.metadata.name.as_deref().expect("a name");
            api.patch(name, &PatchParams::apply("e2e"), &Patch::Apply(&object))
                .await
                .expect("applied");
        } else {
            api.create(&PostParams::default(), &object)
                .await
                .expect("created");
        }
    }
}

/// Where the server has an object of a manifest.
pub async fn api_of(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let kind = GroupVersionKind::try_from(object.types.as_ref().expect("a kind")).expect("kind");
    let (resource, capabilities) = kube::discovery::pinned_kind(client, &kind)
        .await
        .expect("served");
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// A client of a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).expect("kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options)
        .await
        .expect("config");
    Client::try_from(config).expect("client")
}

/// The objects of a manifest.
pub fn objects(manifest: &str) -> Vec<DynamicObject> {
    serde_saphyr::from_multiple::<Value>(manifest)
        .expect("YAML")
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|document| serde_json::from_value(document).expect("an object"))
        .collect()
}

/// A directory for a cluster, with a path short enough for sockets.
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// What the nodes of a cluster in it, or in its `data`, noted of their containers that run.
    fn containers(&self) -> impl Iterator<Item = Value> {
        let nodes = ["nodes", "data/nodes"].map(|nodes| self.path().join(nodes));
        let containers = nodes.into_iter().flat_map(entries);
        let states = containers.flat_map(|node| entries(node.join("containers")));
        let running = states.filter(|container| !container.join("exit.json").exists());
        running.filter_map(|container| {
            let state = std::fs::read(container.join("state.json")).ok()?;
            serde_json::from_slice(&state).ok()
        })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Containers outlive `allot up`; these must not outlive the test.
        for shim in self.containers().filter_map(|state| state["shim"].as_i64()) {
            let pid = shim.to_string();
            let mut kill = Command::new("kill");
            // It may have ended by itself.
            let _ = kill.args(["-KILL", &pid]).stderr(Stdio::null()).status();
        }
    }
}

fn entries(directory: PathBuf) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path())
}

/// A new directory for a cluster.
pub fn directory() -> Directory {
    let directory = tempfile::Builder::new().prefix("allot").tempdir_in("/tmp");
    Directory(directory.expect("temporary directory"))
}

/// A manifest of `examples/`.
pub fn example(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(file);
    std::fs::read_to_string(path).expect("an example")
}
