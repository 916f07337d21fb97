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
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::{Clock, rfc3339};
use crate::controller::informer::Informer;
use crate::controller::meta;
use crate::controller::whole::Whole;

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
    tell: impl FnMut(Progress),
) -> Result<(), Error> {
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = async {
            slices.wait_synced().await;
            claims.wait_synced().await;
            nodes.wait_synced().await;
        } => {}
    }
    let mut draining = Draining {
        drain: &drain,
        api: Api::all(client),
        slices,
        changed,
        refused: BTreeMap::new(),
        reported: None,
        report: tell,
    };
    let mut first = true;
    let mut held = hold::Held::new(drain.hold.clone());
    loop {
        let all = slices.list().into_iter();
        let mine: Vec<_> = all.filter(|s| plan::selects(&drain, s)).collect();
        let refusal = draining.taint(&mine).await?;
        if first {
            draining.report_tainted(&mine);
            first = false;
        }
        if let Some(why) = refusal {
            let slices = draining.refused.keys().cloned().collect();
            draining.report(Progress::Untainted { slices, why });
        }
        let users = plan::users(&mine, &claims.list());
        let mut quiet = None;
        if users.is_empty() {
            match held.next(&drain.driver, &mine, &nodes.list()) {
                Next::Remove => {
                    draining.remove(&mine).await?;
                    held.removed(mine.len());
                }
                Next::WaitForDriver(nodes) => draining.report(Progress::Running(nodes)),
                Next::WaitFor(time) => quiet = Some(time),
                Next::Done(removed) => {
                    draining.report(Progress::Removed(removed));
                    return Ok(());
                }
            }
        } else {
            draining.report(Progress::InUse(users));
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

/// A drain in progress.
struct Draining<'a, R> {
    drain: &'a Drain,
    api: Api<Whole<ResourceSlice>>,
    slices: &'a Informer<Whole<ResourceSlice>>,
    /// Notified when the state has to be looked at again.
    changed: &'a Notify,
    /// Slices that cannot have taints, with the version that was tried.
    refused: BTreeMap<String, Option<String>>,
    reported: Option<Progress>,
    report: R,
}

impl<R: FnMut(Progress)> Draining<'_, R> {
    /// Taints the devices of slices that have no taint yet. A driver that still runs may write its slices again; each time
    /// they are tainted again. Returns why the server does not accept a taint, if it refused one.
    async fn taint(&mut self, mine: &[Arc<Whole<ResourceSlice>>]) -> Result<Option<String>, Error> {
        let mut refusal = None;
        for slice in mine {
            let (name, version) = (meta::name(&**slice), &slice.metadata.resource_version);
            if self.refused.get(name).is_some_and(|tried| tried == version) {
                continue;
            }
            let now = rfc3339(self.drain.clock.now());
            let Some(devices) = plan::tainted(self.drain, slice.at("/spec/devices"), &now) else {
                continue;
            };
            let body = json!({"metadata": api::unchanged(&**slice), "spec": {"devices": devices}});
            match api::patch(&self.api, name, Part::Main, &body).await {
                Ok(new) => {
                    self.refused.remove(name);
                    self.slices.assume(new);
                }
                Err(error) if error.is_invalid() => {
                    self.refused.insert(name.to_owned(), version.clone());
                    refusal = Some(error.to_string());
                }
                Err(error) if error.is_not_found() || error.is_conflict() => {
                    self.changed.notify_one();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(refusal)
    }

    /// Deletes the slices.
    async fn remove(&self, mine: &[Arc<Whole<ResourceSlice>>]) -> Result<(), Error> {
        for slice in mine {
            api::delete_cached(self.slices, &self.api, &**slice, Delete::default()).await?;
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Reports how many slices and devices have taints now.
    fn report_tainted(&mut self, mine: &[Arc<Whole<ResourceSlice>>]) {
        let tainted = mine
            .iter()
            .filter(|s| !self.refused.contains_key(meta::name(&***s)));
        let devices = tainted.clone();
        let devices = devices.map(|s| s.spec.devices.as_ref().map_or(0, Vec::len));
        let progress = Progress::Tainted {
            devices: devices.sum(),
            slices: tainted.count(),
        };
        self.report(progress);
    }

    /// Reports progress, unless it was the last to be reported.
    fn report(&mut self, progress: Progress) {
        if self.reported.as_ref() != Some(&progress) {
            (self.report)(progress.clone());
            self.reported = Some(progress);
        }
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
