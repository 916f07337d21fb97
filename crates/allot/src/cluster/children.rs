//! The example driver's processes, one for each node, started again when they end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Beyond this many nodes the drivers share this process: a process each would weigh more than
/// the cluster.
const MOST_PROCESSES: usize = 8;

/// Pause before a driver that ended is started again; doubled each time up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a driver may take to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The drivers to run.
pub(super) struct Drivers {
    kubeconfig: PathBuf,
    nodes: Vec<(String, PathBuf)>,
}

impl Drivers {
    /// A driver for each node, given by name and directory.
    pub(super) fn new(kubeconfig: &Path, nodes: Vec<(String, PathBuf)>) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            nodes,
        }
    }

    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        if self.nodes.len() > MOST_PROCESSES {
            let client = crate::cmd::component::client(Some(&self.kubeconfig)).await?;
            for (name, root) in self.nodes {
                let config = allot_driver_gpu::Config::new(name, root);
                let work = allot_driver_gpu::run(client.clone(), config, stop.clone());
                tasks.spawn(async move { Ok(work.await?) });
            }
        } else {
            let program = std::env::current_exe().context("cannot find this program")?;
            for (name, root) in self.nodes {
                let mut command = Command::new(&program);
                command
                    .args(["driver", "gpu", "--exit-with-parent", "--node-name", &name])
                    .arg("--kubelet-dir")
                    .arg(&root)
                    .arg("--kubeconfig")
                    .arg(&self.kubeconfig)
                    .env(
                        "RUST_LOG",
                        std::env::var("RUST_LOG").unwrap_or("warn".into()),
                    )
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .kill_on_drop(true);
                tasks.spawn(keep_running(name, command, stop.clone()));
            }
        }
        while let Some(joined) = tasks.join_next().await {
            joined??;
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// Runs a command again whenever it ends.
async fn keep_running(
    node: String,
    mut command: Command,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let mut child = command.spawn().context("cannot start the driver")?;
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
        tracing::warn!(node, %ended, "the driver ended and is started again in {pause:?}");
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Waits for a driver that was told to stop.
async fn end(mut child: Child) -> anyhow::Result<()> {
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}
