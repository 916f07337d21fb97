//! The remains of pods that were deleted while no agent ran, or whose removal failed: containers, sandboxes, networks,
//! claims and directories.
//!
//! The manifest of a static pod may be put back at any time, and then its pod has the same UID and the same directories as
//! before. What is removed is first made unreachable under its name, while no pod can start.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Node, remove_tree, unmount_all};
use crate::events::Kind;
use crate::runtime::Found;

/// How often remains are looked for.
const PERIOD: Duration = Duration::from_secs(60);
/// Containers that are stopped get this long.
const GRACE: Duration = Duration::from_secs(2);
/// Directories that are being removed begin with this.
const REMOVED: &str = ".removed-";

/// Removes remains until the agent ends. `orphans` are containers of pods that are not there any more. Static
/// pods are left alone for as long as they are not known.
pub(super) async fn collect(node: Arc<Node>, orphans: HashMap<String, Vec<Found>>) {
    let stops = orphans.into_values().flatten().map(|container| {
        let node = Arc::clone(&node);
        async move {
            tracing::info!(
                pod = container.owner.pod_name,
                "stopping a container whose pod is gone"
            );
            let id = container.running.id;
            node.runtime.stop(id.clone(), GRACE).await;
            node.remove_containers(vec![id]).await;
        }
    });
    futures::future::join_all(stops).await;
    let all = async {
        // Each waits for others: the runtime, the file system, drivers.
        tokio::join!(
            check_networks(&node),
            repeated(|| sandboxes(&node)),
            // The network of a pod is removed by what its directory holds, and before its claims are given back.
            repeated(|| async {
                networks(&node).await;
                tokio::join!(directories(&node), claims(&node));
            }),
        )
    };
    tokio::select! {
        _ = all => {}
        () = node.shutdown.cancelled() => {}
    }
}

async fn repeated<F: Future<Output = ()>>(work: impl Fn() -> F) {
    loop {
        work().await;
        tokio::time::sleep(PERIOD).await;
    }
}

/// Whether nothing runs of a pod, and nothing will.
fn is_gone(node: &Node, uid: &str) -> bool {
    !node.may_be_static(uid) && !node.pods.lock().contains_key(uid)
}

async fn sandboxes(node: &Node) {
    let Some(complete) = node.runtime.complete() else {
        return;
    };
    for uid in complete.known() {
        if !is_gone(node, &uid) {
            continue;
        }
        complete.close(&uid).await;
        let pods = node.pods.lock();
        if !pods.contains_key(&uid) {
            complete.forget(&uid);
        }
    }
}

/// Reports pods whose networks are not as an earlier agent left them.
async fn check_networks(node: &Node) {
    for uid in node.sandboxes.earlier() {
        let entry = node.pods.lock().get(uid).cloned();
        let Some(entry) = entry else { continue };
        if let Err(error) = node.sandboxes.check(uid).await {
            let pod = Arc::clone(&entry.update.borrow().pod);
            let events = &node.events;
            let message = error.to_string();
            events.pod(&pod, None, Kind::Warning, "FailedPodNetworkCheck", message);
        }
    }
}

/// Detaches deleted pods from their networks. What fails is tried again in the next round.
async fn networks(node: &Node) {
    // Plugins take what is theirs out of a network before it is removed.
    for (nri, uid) in node
        .nri
        .iter()
        .flat_map(|nri| nri.pods().into_iter().map(move |uid| (nri, uid)))
    {
        if is_gone(node, &uid) {
            nri.forget_pod(&uid).await;
        }
    }
    for uid in node.sandboxes.known() {
        if !is_gone(node, &uid) {
            continue;
        }
        let directory = node.pod_dir(&uid);
        let still_gone = || is_gone(node, &uid);
        let detached = node.sandboxes.detach_gone(&uid, &directory, still_gone);
        if let Err(error) = detached.await {
            tracing::warn!(
                pod = uid,
                %error,
                "the network of a deleted pod is not removed yet"
            );
        }
    }
}

async fn directories(node: &Node) {
    // The directory of logs is named after namespace, name and UID; none of them has an underscore.
    let of_logs = |name: &str| name.rsplit('_').next().unwrap_or_default().to_owned();
    let root = &node.config.root_dir;
    sweep(node, &root.join("pods"), str::to_owned).await;
    sweep(node, &root.join("logs"), of_logs).await;
}

async fn sweep(node: &Node, parent: &Path, uid_of: impl Fn(&str) -> String) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Of an agent that ended meanwhile.
        if name.starts_with(REMOVED) {
            remove(&entry.path()).await;
            continue;
        }
        let uid = uid_of(&name);
        if !is_gone(node, &uid) || node.sandboxes.is_known(&uid) {
            continue;
        }
        let aside = parent.join(format!("{REMOVED}{name}"));
        let moved = {
            let pods = node.pods.lock();
            // It may have been started since.
            (!pods.contains_key(&uid)).then(|| std::fs::rename(entry.path(), &aside))
        };
        if moved.is_some() {
            node.runtime.forget_pod(&uid).await;
        }
        match moved {
            None => {}
            Some(Ok(())) => remove(&aside).await,
            Some(Err(error)) => {
                tracing::warn!(directory = %entry.path().display(), %error, "was not removed");
            }
        }
    }
}

async fn remove(directory: &Path) {
    unmount_all(directory);
    remove_tree(directory.to_owned()).await;
}

async fn claims(node: &Node) {
    for uid in node.claims.pods() {
        // Interfaces of claims are out of the network of the pod when their driver is asked to put them back.
        if node.pods.lock().contains_key(&uid) || node.sandboxes.is_known(&uid) {
            continue;
        }
        if let Err(error) = node.claims.unprepare(&uid).await {
            tracing::warn!(pod = uid, %error, "claims of a deleted pod are not unprepared yet");
        }
    }
}
