//! The end of a node.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::pods;
use crate::runtime::Runtime;

/// How long a node waits for a container runtime or plugins, at its start and at its end. What is away keeps what it has.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// Ends the tasks, and what an ephemeral node runs.
pub(crate) async fn end(
    config: &Config,
    runtime: &dyn Runtime,
    sandboxes: &pods::Sandboxes,
    mut tasks: JoinSet<()>,
    workers: TaskTracker,
) {
    /// How long a worker may take with what it has begun, such as the start of a container.
    const BEGUN: Duration = Duration::from_secs(2);
    tasks.shutdown().await;
    if config.ephemeral {
        workers.close();
        let _ = tokio::time::timeout(BEGUN, workers.wait()).await;
        stop_all(runtime).await;
        let directory = config.root_dir.join("pods");
        let known = sandboxes.known();
        let detaching = known.iter().map(|uid| {
            let directory = directory.join(uid);
            async move {
                if let Err(error) = sandboxes.detach(uid, &directory).await {
                    tracing::warn!(pod = uid, %error, "the network of a pod was not removed");
                }
            }
        });
        let detached = tokio::time::timeout(LONGEST, futures::future::join_all(detaching)).await;
        if detached.is_err() {
            tracing::warn!("networks of pods were not removed: plugins did not end in time");
        }
        let pods = std::fs::read_dir(directory);
        for pod in pods.into_iter().flatten().flatten() {
            pods::unmount_all(&pod.path());
            if let Some(uid) = pod.file_name().to_str() {
                runtime.forget_pod(uid).await;
            }
        }
    }
}

/// Stops every container.
async fn stop_all(runtime: &dyn Runtime) {
    const GRACE: Duration = Duration::from_secs(2);
    let Ok(found) = tokio::time::timeout(LONGEST, runtime.recover()).await else {
        return tracing::warn!("containers were not stopped: the container runtime is away");
    };
    let stops = found.into_iter().map(|container| async move {
        runtime.stop(container.running.id.clone(), GRACE).await;
        runtime.remove(&container.running.id);
    });
    futures::future::join_all(stops).await;
    if tokio::time::timeout(LONGEST, runtime.settled())
        .await
        .is_err()
    {
        tracing::warn!("containers that had ended were not all removed");
    }
    if let Some(complete) = runtime.complete() {
        let known = complete.known();
        let closing = known.iter().map(|uid| complete.close(uid));
        let closed = tokio::time::timeout(LONGEST, futures::future::join_all(closing)).await;
        if closed.is_err() {
            tracing::warn!("pods were not ended: the container runtime is away");
        }
    }
}
