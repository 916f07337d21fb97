//! Failures that a user injects, with `allot hardware fail`: devices behave as if their hardware had failed, so that
//! schedulers, queues and workloads can be tried without breaking any.
//!
//! They are in an annotation of the Node, which outlives the driver, its slices and the node agent. A plugin with
//! [`crate::Builder::injected_failures`] watches it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use allot_model::validate::TAINT_EFFECTS;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::health::{DeviceHealth, Health};
use crate::publisher::{Pool, Resources, Slice};
use crate::unhealthy::{Desired, MOST_TAINTS};

#[cfg(test)]
mod tests;

/// Annotation of a Node with the failures of its devices: [`InjectedFailures`] as JSON.
pub const INJECTED_FAILURES: &str = "allot.dev/hardware-failures";
/// Label of ResourceSlices whose driver heeds [`INJECTED_FAILURES`].
pub const HEEDS_INJECTED_FAILURES: &str = "allot.dev/heeds-hardware-failures";
/// Key of the taint on failed devices.
pub const FAILURE_TAINT: &str = "allot.dev/hardware-failed";

/// How long a driver waits for its Node before it publishes devices without knowing of failures.
const NODE_PATIENCE: Duration = Duration::from_secs(10);
/// The same after the API server could not be reached, or was not ready. It is longer than the longest pause between two
/// tries of the watch: slices cannot be written before the Node can be read.
const UNREACHABLE_PATIENCE: Duration = Duration::from_secs(90);

/// The failures of a node, by driver and device.
pub type InjectedFailures = BTreeMap<String, BTreeMap<String, InjectedFailure>>;

/// What is wrong with a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InjectedFailure {
    /// Effect of its taint, which has the key [`FAILURE_TAINT`]; no taint when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint: Option<String>,
    /// The message with which it is reported unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// It is not published, as after a hot unplug.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unplugged: bool,
}

/// The failures of one driver's devices.
type Failures = BTreeMap<String, InjectedFailure>;

/// Applies the failures to what a driver publishes and reports.
pub(crate) struct Injection {
    client: Client,
    node: String,
    driver: String,
    desired: watch::Receiver<Desired>,
    own_health: Option<watch::Receiver<Vec<DeviceHealth>>>,
    published: watch::Sender<Desired>,
    reported: watch::Sender<Vec<DeviceHealth>>,
}

impl Injection {
    /// `desired` is what the driver publishes, `own_health` what it reports, if it does.
    pub(crate) fn new(
        client: Client,
        node: String,
        driver: String,
        desired: watch::Receiver<Desired>,
        own_health: Option<watch::Receiver<Vec<DeviceHealth>>>,
    ) -> Self {
        Self {
            client,
            node,
            driver,
            desired,
            own_health,
            published: watch::channel(None).0,
            reported: watch::channel(Vec::new()).0,
        }
    }

    /// What is to be published in place of the driver's devices.
    pub(crate) fn published(&self) -> watch::Receiver<Desired> {
        self.published.subscribe()
    }

    /// The health of the devices. Those of a driver that reports nothing are healthy unless they failed.
    pub(crate) fn health(&self) -> watch::Receiver<Vec<DeviceHealth>> {
        self.reported.subscribe()
    }

    /// Runs until dropped, or until the driver ends.
    pub(crate) async fn run(self) {
        let (sender, failures) = watch::channel(None);
        let node = self.node.clone();
        let nodes = Api::all(self.client.clone());
        let driver = self.driver.clone();
        tokio::select! {
            () = follow(nodes, &node, &driver, &sender) => {}
            () = self.keep(failures) => {}
        }
    }

    /// Nothing is published until the failures are known: a device that failed before the driver was restarted must not
    /// be there for a moment.
    async fn keep(mut self, mut failures: watch::Receiver<Option<Failures>>) {
        let mut reports = self.own_health.is_some();
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let own = self.own_health.as_mut();
            let own = own.map(|own| own.borrow_and_update().clone());
            let known = failures.borrow_and_update().clone();
            if let (Some(failures), Some(desired)) = (known, desired) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |now| now.as_secs().cast_signed());
                self.reported
                    .send_replace(health(&desired, own, &failures, now));
                let resources = Some(Arc::new(apply(&desired, &failures)));
                self.published.send_if_modified(|before| {
                    let changed = *before != resources;
                    *before = resources;
                    changed
                });
            }
            let reported = async {
                match &mut self.own_health {
                    Some(own) => own.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return },
                // A driver that no longer monitors its devices drops the sender: its last reports stay.
                changed = reported, if reports => reports = changed,
                changed = failures.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// Watches the Node. A driver that may not do so publishes its devices as they are.
async fn follow(
    nodes: Api<PartialObjectMeta<Node>>,
    node: &str,
    driver: &str,
    failures: &watch::Sender<Option<Failures>>,
) {
    let unknown = || {
        failures.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_default();
            first
        });
    };
    let mut seen = std::pin::pin!(watcher::watch_object(nodes, node).default_backoff());
    let mut told = None;
    let mut patience = Instant::now() + NODE_PATIENCE;
    loop {
        let waits = failures.borrow().is_none();
        tokio::select! {
            event = seen.next() => match event {
                Some(Ok(of)) => {
                    let error = learn(failures, of.as_ref(), driver).err();
                    let error = error.map(|error| error.to_string());
                    // The Node changes often, the annotation seldom.
                    if told != error && let Some(error) = &error {
                        tracing::warn!(
                            node,
                            error,
                            "cannot read annotation {INJECTED_FAILURES}: devices that had failed stay so"
                        );
                    }
                    told = error;
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot watch the node for injected failures");
                    match error {
                        watcher::Error::InitialListFailed(kube::Error::Api(status))
                            if status.code < 500 && status.code != 429 =>
                        {
                            if status.code == 403 {
                                unknown();
                            }
                        }
                        _ => patience = Instant::now() + UNREACHABLE_PATIENCE,
                    }
                }
                None => return,
            },
            () = tokio::time::sleep_until(patience), if waits => unknown(),
        }
    }
}

/// Takes in what a Node says, which may be gone. What cannot be read changes nothing; in a driver that knows of no failures yet
/// there are none then.
///
/// # Errors
/// The annotation cannot be read.
fn learn(
    failures: &watch::Sender<Option<Failures>>,
    node: Option<&PartialObjectMeta<Node>>,
    driver: &str,
) -> serde_json::Result<()> {
    let read = node.map_or(Ok(Failures::default()), |node| of_node(node, driver));
    failures.send_if_modified(|known| {
        let found = match &read {
            Ok(found) => Some(found.clone()),
            Err(_) => Some(known.clone().unwrap_or_default()),
        };
        let changed = *known != found;
        *known = found;
        changed
    });
    read.map(drop)
}

/// The failures of a driver's devices in the annotation of a node. What is there for other drivers need not be readable.
fn of_node(node: &PartialObjectMeta<Node>, driver: &str) -> serde_json::Result<Failures> {
    let Some(text) = node.annotations().get(INJECTED_FAILURES) else {
        return Ok(Failures::default());
    };
    let mut all: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)?;
    let own = all.remove(driver).map(serde_json::from_value).transpose()?;
    Ok(own.unwrap_or_default())
}

/// The resources without the devices that are unplugged, and with taints on those that have one.
fn apply(resources: &Resources, failures: &Failures) -> Resources {
    let slices = |slice: &Slice| {
        let mut slice = slice.clone();
        slice.devices.retain_mut(|device| {
            let Some(failure) = failures.get(&device.name) else {
                return true;
            };
            if let Some(effect) = &failure.taint {
                taint(device, effect);
            }
            !failure.unplugged
        });
        // A slice with a tainted device holds fewer devices than one without.
        slice.split()
    };
    let pools = resources.pools.iter().map(|(name, pool)| {
        let pool = Pool {
            slices: pool.slices.iter().flat_map(slices).collect(),
            ..pool.clone()
        };
        (name.clone(), pool)
    });
    Resources {
        pools: pools.collect(),
    }
}

/// An effect that the API does not have would make it reject the slice, with all of its devices.
fn taint(device: &mut Device, effect: &str) {
    if !TAINT_EFFECTS.contains(&effect) {
        return;
    }
    let taints = device.taints.get_or_insert_default();
    if taints.len() < MOST_TAINTS {
        taints.push(DeviceTaint {
            key: FAILURE_TAINT.to_owned(),
            value: Some("true".to_owned()),
            effect: effect.to_owned(),
            ..DeviceTaint::default()
        });
    }
}

/// Longest message that a kubelet accepts, in bytes.
const MOST_MESSAGE: usize = 1024;

fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(MOST_MESSAGE)]
}

/// What the driver reports, with the failures over that.
fn health(
    resources: &Resources,
    own: Option<Vec<DeviceHealth>>,
    failures: &Failures,
    now: i64,
) -> Vec<DeviceHealth> {
    let published = resources.pools.iter().flat_map(|(pool, content)| {
        let devices = content.slices.iter().flat_map(|slice| &slice.devices);
        devices.map(move |device| (pool.as_str(), device.name.as_str()))
    });
    let report = |(pool, device): (&str, &str), health, message: &str| DeviceHealth {
        pool: pool.to_owned(),
        device: device.to_owned(),
        health,
        updated: now,
        message: message.to_owned(),
        ..DeviceHealth::default()
    };
    let failed = |device: &str| {
        let failure = failures.get(device)?;
        let unplugged = failure.unplugged.then_some("unplugged");
        failure.unhealthy.as_deref().map(shortened).or(unplugged)
    };
    let mut all: BTreeMap<(String, String), DeviceHealth> = BTreeMap::new();
    let mut add = |report: DeviceHealth| {
        let key = (report.pool.clone(), report.device.clone());
        all.insert(key, report);
    };
    let reports = own.is_some();
    own.into_iter().flatten().for_each(&mut add);
    for of in published {
        match failed(of.1) {
            Some(message) => add(report(of, Health::Unhealthy, message)),
            None if !reports => add(report(of, Health::Healthy, "")),
            None => {}
        }
    }
    all.into_values().collect()
}
