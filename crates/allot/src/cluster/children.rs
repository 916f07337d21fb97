//! The driver's processes, started again when they end: one for each node, and one for the cluster if the driver has
//! a controller.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gpus;

/// Beyond this many nodes the drivers share this process: a process each would weigh more than
/// the cluster.
const MOST_PROCESSES: usize = 8;

/// Pause before a driver that ended is started again; doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Registration directory of drivers, below a node's directory.
const PLUGINS_REGISTRY: &str = "plugins_registry";

/// How long a driver may take to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Which driver to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Driver {
    Gpu(gpus::Flags),
    Test {
        name: String,
        /// What a node has for the scheduler to allocate.
        instances: usize,
    },
    /// The classic network driver.
    Net,
    /// The network driver for `resource.k8s.io/v1`.
    Interfaces,
}

/// The drivers to run.
pub(super) struct Drivers {
    driver: Driver,
    kubeconfig: PathBuf,
    nodes: Vec<(String, PathBuf)>,
    cdi_dir: Option<PathBuf>,
}

impl Drivers {
    /// A driver for each node, given by name and directory. CDI files go into `cdi_dir`, or below the node's directory.
    pub(super) fn new(
        driver: Driver,
        kubeconfig: &Path,
        nodes: Vec<(String, PathBuf)>,
        cdi_dir: Option<PathBuf>,
    ) -> Self {
        Self {
            cdi_dir,
            driver,
            kubeconfig: kubeconfig.to_owned(),
            nodes,
        }
    }

    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let program = std::env::current_exe().context("cannot find this program")?;
        let many = self.nodes.len() > MOST_PROCESSES;
        // Drivers look for the kubelet's directory, and may start before the node agents.
        for (_, root) in &self.nodes {
            let registry = root.join(PLUGINS_REGISTRY);
            std::fs::create_dir_all(&registry)
                .with_context(|| format!("cannot create {}", registry.display()))?;
        }
        let mut commands = Vec::new();
        if let Some(arguments) = self.driver.controller() {
            commands.push(("controller".to_owned(), arguments));
        }
        if !many {
            let nodes = self.nodes.iter();
            commands.extend(nodes.enumerate().map(|(index, (name, root))| {
                let mut arguments = self.driver.on_node(index, name, root);
                // The network driver has no files.
                if let Some(cdi) = self.cdi_dir.as_ref().filter(|_| self.driver != Driver::Net) {
                    arguments.extend(["--cdi-dir".into(), cdi.into()]);
                }
                (name.clone(), arguments)
            }));
        }
        for (name, arguments) in commands {
            let mut command = Command::new(&program);
            command
                .args(["driver"])
                .args(arguments)
                .arg("--exit-with-parent")
                .arg("--kubeconfig")
                .arg(&self.kubeconfig)
                // The test driver prefers the variable, as it always did.
                .env("KUBECONFIG", &self.kubeconfig)
                .env(
                    "RUST_LOG",
                    std::env::var("RUST_LOG").unwrap_or("warn".into()),
                )
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .kill_on_drop(true);
            tasks.spawn(keep_running(name, command, stop.clone()));
        }
        if many {
            let client = crate::component::client(Some(&self.kubeconfig), "allot-driver").await?;
            for (index, node) in self.nodes.into_iter().enumerate() {
                let work = self
                    .driver
                    .clone()
                    .here(client.clone(), index, node, stop.clone());
                tasks.spawn(work);
            }
        }
        while let Some(joined) = tasks.join_next().await {
            joined??;
        }
        stop.cancelled().await;
        Ok(())
    }
}

impl Driver {
    /// Arguments of the process for the cluster, if there is one.
    fn controller(&self) -> Option<Vec<OsString>> {
        match self {
            Self::Gpu(_) | Self::Interfaces => None,
            // The API server is on the same machine and limits its clients itself.
            Self::Test { name, .. } => Some(vec![
                "test".into(),
                "controller".into(),
                "--drivername".into(),
                name.into(),
                "--kube-api-qps".into(),
                "0".into(),
            ]),
            Self::Net => Some(vec!["net".into(), "controller".into()]),
        }
    }

    /// Arguments of the process for a node.
    fn on_node(&self, index: usize, node: &str, root: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = match self {
            Self::Gpu(flags) => {
                let mut arguments = vec!["gpu".into()];
                arguments.extend(flags.arguments());
                arguments
            }
            Self::Test { name, instances } => vec![
                "test".into(),
                "kubelet-plugin".into(),
                "--drivername".into(),
                name.into(),
                "--num-resource-instances".into(),
                instances.to_string().into(),
            ],
            Self::Interfaces => {
                let mut arguments = vec!["net".into(), "node".into()];
                if let Ok(program) = std::env::current_exe() {
                    arguments.extend(["--hook".into(), program.into()]);
                }
                arguments
            }
            Self::Net => vec![
                "net".into(),
                "kubelet-plugin".into(),
                "--interface".into(),
                modelled_interface(index).into(),
            ],
        };
        arguments.extend(["--node-name".into(), node.into()]);
        arguments.extend(["--kubelet-dir".into(), root.into()]);
        arguments
    }

    /// The same in this process.
    async fn here(
        self,
        client: kube::Client,
        index: usize,
        (node, root): (String, PathBuf),
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        match self {
            Self::Gpu(flags) => {
                let mut config = allot_driver_gpu::Config::new(node, root);
                flags.configure(&mut config);
                Ok(allot_driver_gpu::run(client, config, stop).await?)
            }
            Self::Test { name, instances } => {
                let mut config = allot_driver_test::plugin::Config::new(&name, &node, &root);
                config.instances = instances;
                Ok(allot_driver_test::plugin::run(config, stop).await?)
            }
            Self::Interfaces => {
                let mut config = allot_driver_net::v1::Config::new(node, root);
                config.hook = std::env::current_exe().ok();
                Ok(allot_driver_net::v1::run(client, config, stop).await?)
            }
            Self::Net => {
                let mut config = allot_driver_net::plugin::Config::new(node, root);
                let interface = modelled_interface(index).parse();
                config.interfaces = vec![interface.map_err(anyhow::Error::msg)?];
                Ok(allot_driver_net::plugin::run(client, config, stop).await?)
            }
        }
    }
}

/// The interface of a modelled node, in the network of Spiderpool's documents.
fn modelled_interface(index: usize) -> String {
    format!("eth0=172.18.{}.{}/16", index / 250, index % 250 + 2)
}

/// Runs a command again whenever it ends.
async fn keep_running(
    name: String,
    mut command: Command,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        // The file is rotated when it is full, which another process would not notice.
        if crate::logging::file::is_used() {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().context("cannot start the driver")?;
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log(stderr));
        }
        // Held outside, because waiting for a child closes its standard input.
        let stdin = child.stdin.take();
        let ended = tokio::select! {
            ended = child.wait() => ended?,
            () = stop.cancelled() => {
                drop(stdin);
                return end(child).await;
            }
        };
        if started.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(name, %ended, "the driver ended and is started again in {pause:?}");
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Longest line of a driver's log.
const LONGEST_LINE: usize = 64 << 10;

/// Writes what a driver logs into the log file.
async fn log(stderr: tokio::process::ChildStderr) {
    let mut stderr = tokio::io::BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut stderr)
        .take(LONGEST_LINE as u64)
        .read_until(b'\n', &mut line)
        .await
    {
        let _ = crate::logging::file::write(&line);
        line.clear();
    }
}

/// Waits for a driver that was asked to stop.
async fn end(mut child: Child) -> anyhow::Result<()> {
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}
