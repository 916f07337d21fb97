//! Takes a driver out of service: taint its devices, wait until no pod uses them, remove its slices.
//!
//! The steps are those that Kubernetes recommends before a driver is uninstalled, done by hand there. Works with every
//! scheduler, because the taint is set in the slices. Slices that the server does not accept with taints (they may have
//! fewer devices then) are removed without, as soon as no pod uses their devices.

mod hold;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hold::Next;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::kit::api::{self, Delete, Part};
use crate::kit::clock::{Clock, rfc3339};
use crate::kit::informer::Informer;
use crate::kit::meta;
use crate::kit::whole::Whole;

pub use allot_model::DRAINING as TAINT;
pub use hold::Hold;

/// The devices to drain: those of a driver, on all nodes or on one.
#[derive(Debug, Clone)]
pub struct Drain {
    /// Name of the driver.
    pub driver: String,
    /// The node whose slices are drained; `None` for all nodes.
    pub node: Option<String>,
    /// Evict pods that use the devices (taint NoExecute) instead of waiting for them to end.
    pub evict: bool,
    /// The source of time; another one in tests.
    pub clock: Clock,
    /// Continue until the driver is stopped; otherwise the slices are removed as soon as no pod uses the devices, and a
    /// running driver publishes them again.
    pub hold: Option<Hold>,
}

/// Progress, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// So many devices in so many slices are tainted.
    Tainted {
        /// Slices of the driver.
        slices: usize,
        /// Devices in them.
        devices: usize,
    },
    /// These slices cannot have taints, with the server's reason: until they are removed, pods may get their devices,
    /// and none is evicted.
    Untainted {
        /// Names of the slices.
        slices: Vec<String>,
        /// What the server said about the last one.
        why: String,
    },
    /// These claims (namespace/name) still hold devices.
    InUse(Vec<String>),
    /// No pod uses the devices, and the driver runs: it must be stopped now. The nodes on which it runs, if known. Its
    /// devices are tainted meanwhile, also those that it publishes again.
    Running(Vec<String>),
    /// So many slices were removed: done.
    Removed(usize),
}

/// Drains a driver; returns when its slices are removed or at `shutdown`.
///
/// # Errors
/// When the API server refuses a write.
pub async fn drain(
    client: Client,
    drain: Drain,
    shutdown: CancellationToken,
    tell: impl FnMut(Progress),
) -> Result<(), Error> {
    let slices = Informer::<Whole<ResourceSlice>>::new();
    let claims = Informer::<ResourceClaim>::new();
    let nodes = Informer::<Node>::new();
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    slices.on(move |_| wake.notify_one());
    let wake = changed.clone();
    claims.on(move |_| wake.notify_one());
    let wake = changed.clone();
    nodes.on(move |_| wake.notify_one());
    let stop = shutdown.child_token();
    let guard = stop.clone().drop_guard();
    let mut watches = vec![
        tokio::spawn(slices.clone().run(Api::all(client.clone()), stop.clone())),
        tokio::spawn(claims.clone().run(Api::all(client.clone()), stop.clone())),
    ];
    if drain.hold.as_ref().is_some_and(|hold| hold.sees_nodes) {
        watches.push(tokio::spawn(
            nodes.clone().run(Api::all(client.clone()), stop),
        ));
    } else {
        nodes.set_synced();
    }
    let seen = (&slices, &claims, &nodes);
    let work = work(client, drain, seen, &changed, shutdown, tell);
    let result = work.await;
    drop(guard);
    ended(watches).await;
    result
}

/// Waits for watches that were stopped: one that loses its connection first would complain.
async fn ended(watches: impl IntoIterator<Item = JoinHandle<()>>) {
    for watch in watches {
        // How it ended makes no difference any longer.
        drop(watch.await);
    }
}

async fn work(
    client: Client,
    drain: Drain,
    (slices, claims, nodes): (
        &Informer<Whole<ResourceSlice>>,
        &Informer<ResourceClaim>,
        &Informer<Node>,
    ),
    changed: &Notify,
    shutdown: CancellationToken,
    mut tell: impl FnMut(Progress),
) -> Result<(), Error> {
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = async {
            slices.wait_synced().await;
            claims.wait_synced().await;
            nodes.wait_synced().await;
        } => {}
    }
    let api: Api<Whole<ResourceSlice>> = Api::all(client);
    let mut told: Option<Progress> = None;
    let mut news = |progress: Progress| {
        if told.as_ref() != Some(&progress) {
            tell(progress.clone());
            told = Some(progress);
        }
    };
    let mut first = true;
    let mut held = hold::Held::new(drain.hold.clone());
    // Slices that cannot have taints, with the version that was tried.
    let mut refused: BTreeMap<String, Option<String>> = BTreeMap::new();
    loop {
        let mine: Vec<_> = slices
            .list()
            .into_iter()
            .filter(|s| plan::selects(&drain, s))
            .collect();
        // A driver that still runs may write its slices anew; each time they are tainted again.
        let mut why = None;
        for slice in &mine {
            let (name, version) = (meta::name(&**slice), &slice.metadata.resource_version);
            if refused.get(name).is_some_and(|tried| tried == version) {
                continue;
            }
            let now = rfc3339(drain.clock.now());
            let Some(devices) = plan::tainted(&drain, slice.at("/spec/devices"), &now) else {
                continue;
            };
            let body = json!({"metadata": api::unchanged(&**slice), "spec": {"devices": devices}});
            match api::patch(&api, name, Part::Main, &body).await {
                Ok(new) => {
                    refused.remove(name);
                    slices.assume(new);
                }
                Err(error) if error.is_invalid() => {
                    refused.insert(name.to_owned(), version.clone());
                    why = Some(error.to_string());
                }
                Err(error) if error.is_not_found() || error.is_conflict() => changed.notify_one(),
                Err(error) => return Err(error),
            }
        }
        if first {
            let tainted = mine
                .iter()
                .filter(|s| !refused.contains_key(meta::name(&***s)));
            let devices = tainted
                .clone()
                .map(|s| s.spec.devices.as_ref().map_or(0, Vec::len))
                .sum();
            news(Progress::Tainted {
                slices: tainted.count(),
                devices,
            });
            first = false;
        }
        if let Some(why) = why {
            let slices = refused.keys().cloned().collect();
            news(Progress::Untainted { slices, why });
        }
        let users = plan::users(&mine, &claims.list());
        let mut quiet = None;
        if users.is_empty() {
            match held.next(&drain.driver, &mine, &nodes.list()) {
                Next::Remove => {
                    for slice in &mine {
                        api::delete_cached(slices, &api, &**slice, Delete::default()).await?;
                    }
                    held.removed(mine.len());
                    changed.notify_one();
                }
                Next::WaitForDriver(nodes) => news(Progress::Running(nodes)),
                Next::WaitFor(time) => quiet = Some(time),
                Next::Done(removed) => {
                    news(Progress::Removed(removed));
                    return Ok(());
                }
            }
        } else {
            news(Progress::InUse(users));
        }
        let over = async {
            match quiet {
                Some(time) => tokio::time::sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = changed.notified() => {}
            () = over => {}
        }
        // Batches changes that arrive together.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The numbers of objects that reverting a drain has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RevertSummary {
    /// Existing slices of the driver.
    pub found: usize,
    /// Slices with taints of a drain.
    pub slices: usize,
    /// Devices in them that had.
    pub devices: usize,
}

/// Removes the taints of a drain from the slices of a driver, on all nodes or one of them.
///
/// # Errors
/// When the API server refuses a write.
pub async fn undo(
    client: Client,
    drain: &Drain,
    shutdown: CancellationToken,
) -> Result<RevertSummary, Error> {
    let slices = Informer::<Whole<ResourceSlice>>::new();
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    slices.on(move |_| wake.notify_one());
    let stop = shutdown.child_token();
    let guard = stop.clone().drop_guard();
    let watch = tokio::spawn(slices.clone().run(Api::all(client.clone()), stop));
    let result = tokio::select! {
        () = shutdown.cancelled() => Ok(RevertSummary::default()),
        result = take_taints_away(client, drain, &slices, &changed) => result,
    };
    drop(guard);
    ended([watch]).await;
    result
}

async fn take_taints_away(
    client: Client,
    drain: &Drain,
    slices: &Informer<Whole<ResourceSlice>>,
    changed: &Notify,
) -> Result<RevertSummary, Error> {
    let mut undone = RevertSummary::default();
    slices.wait_synced().await;
    let api: Api<Whole<ResourceSlice>> = Api::all(client);
    let mine = |s: &Arc<Whole<ResourceSlice>>| plan::selects(drain, s);
    undone.found = slices.list().iter().filter(|s| mine(s)).count();
    loop {
        let mut again = false;
        for slice in slices.list().into_iter().filter(mine) {
            let Some((devices, number)) = plan::untainted(slice.at("/spec/devices")) else {
                continue;
            };
            let body = json!({"metadata": api::unchanged(&**slice), "spec": {"devices": devices}});
            match api::patch(&api, meta::name(&**slice), Part::Main, &body).await {
                Ok(new) => {
                    slices.assume(new);
                    undone.slices += 1;
                    undone.devices += number;
                }
                // Its driver wrote it in the meantime, with the taints or without.
                Err(error) if error.is_conflict() => again = true,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        if !again {
            return Ok(undone);
        }
        changed.notified().await;
    }
}
