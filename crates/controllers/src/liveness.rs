//! Slice liveness: devices whose driver or node no longer runs are not allocated.
//!
//! Kubernetes keeps a ResourceSlice when its driver dies: the scheduler continues to bind pods to devices that cannot
//! be prepared. This controller taints such devices (NoSchedule, key [`TAINT`]) after a delay and removes the taint
//! when the driver is back. A driver counts as dead when
//! - the node of the slice does not exist or is not ready, or
//! - the node lists its drivers (annotation [`DRIVERS`], maintained by allot's node agent) and the driver is not in the
//!   list.
//!
//! The taint is set in the slice itself, where every scheduler sees it; the pool's generation does not change, because
//! the devices do not. Drivers that rewrite their slice remove it, which is right: they run again. For a slice that the
//! server does not accept with taints (it may have fewer devices then) a DeviceTaintRule for the pool is created; if
//! that is impossible too, the slice is left untainted, and an event reports it once.

mod plan;
mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{Api, Client};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::{Clock, rfc3339, until};
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::served::Served;

use rules::Rules;

/// Key of the taint on devices without a running driver.
pub const TAINT: &str = "allot.dev/driver-gone";
/// Annotation of a Node: the drivers that are registered there, separated by commas. allot's node agent maintains it; a
/// node without it reports nothing about drivers.
pub const DRIVERS: &str = "allot.dev/registered-drivers";

const BY_NODE: &str = "node";

struct Liveness {
    client: Client,
    clock: Clock,
    events: Recorder,
    slices: Informer<ResourceSlice>,
    nodes: Informer<Node>,
    /// Slices whose driver no longer runs.
    gone: Mutex<FxHashMap<Key, Gone>>,
    rules: Option<Rules>,
    delay: jiff::SignedDuration,
    queue: Queue<Key>,
}

struct Gone {
    since: Timestamp,
    /// An event has reported that the slice cannot have taints.
    told: bool,
}

fn node_of(slice: &ResourceSlice) -> Vec<String> {
    plan::nodes(slice).into_iter().collect()
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, served: &Served) -> Task {
    let this = Arc::new(Liveness {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.component("slice-liveness-controller"),
        slices: context.informer::<ResourceSlice>(),
        nodes: context.informer::<Node>(),
        gone: Mutex::default(),
        rules: Rules::new(context, served),
        delay: jiff::SignedDuration::try_from(context.config.slice_liveness_delay)
            .unwrap_or_default(),
        queue: context.queue("slice_liveness"),
    });
    this.slices.index(BY_NODE, node_of);
    let weak = Arc::downgrade(&this);
    this.slices.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        let key = key_of(&**change.object());
        if change.is_delete() {
            this.gone.lock().remove(&key);
        } else {
            this.queue.add(key);
        }
    });
    let weak = Arc::downgrade(&this);
    this.nodes.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        let node = change.object();
        let state = |n: &Node| {
            (
                plan::is_ready(n),
                meta::annotation(n, DRIVERS).map(str::to_owned),
            )
        };
        if change.old().is_some_and(|old| state(old) == state(node)) {
            return;
        }
        for slice in this.slices.by_index(BY_NODE, meta::name(&**node)) {
            this.queue.add(key_of(&*slice));
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl Liveness {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(slice) = self.slices.get(key) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let tainted: BTreeSet<usize> = plan::tainted(&slice);
        let dead = plan::dead_devices(&slice, |node| self.nodes.get(node));
        if dead.is_empty() {
            self.gone.lock().remove(key);
            if let Some(rules) = &self.rules
                && rules.remove(&slice).await?
            {
                self.report_unallocated(&slice, 0);
            }
            if tainted.is_empty() {
                return Ok(Next::Done);
            }
        } else {
            let new = || Gone {
                since: now,
                told: false,
            };
            let since = self
                .gone
                .lock()
                .entry(key.to_owned())
                .or_insert_with(new)
                .since;
            let due = since + self.delay;
            // Taints of devices that are back are removed at once; new taints wait for the delay.
            if due > now && tainted.is_subset(&dead) {
                return Ok(Next::After(until(now, due)));
            }
        }
        if dead == tainted {
            return Ok(Next::Done);
        }
        // The whole object is read only now: the cache has typed fields only, a write must keep the rest.
        let slices: Api<Whole<ResourceSlice>> = Api::all(self.client.clone());
        let Some(live) = api::get(&slices, key).await? else {
            return Ok(Next::Done);
        };
        if live.metadata.resource_version != slice.metadata.resource_version {
            // The watch is about to bring the newer state, and with it this key.
            return Ok(Next::After(Duration::from_millis(100)));
        }
        let devices = plan::with_taints(live.at("/spec/devices"), &dead, &rfc3339(now));
        let body = json!({
            "metadata": api::unchanged(&*live),
            "spec": {"devices": devices},
        });
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        match api::patch(&slices, key, Part::Main, &body).await {
            Ok(new) => self.slices.assume(new),
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) if error.is_invalid() => {
                // Asking again is of no use before the slice changes.
                match &self.rules {
                    Some(rules) if rules.make(&slice, &rfc3339(now)).await? => {
                        if self.is_news(key) {
                            self.report_unallocated(&slice, dead.len());
                        }
                    }
                    _ => self.report_rejected(key, &slice, &error),
                }
                return Ok(Next::Done);
            }
            Err(error) => return Err(error),
        }
        if let Some(rules) = &self.rules {
            // It had one while it had more devices.
            rules.remove(&slice).await?;
        }
        self.report_unallocated(&slice, dead.len());
        Ok(Next::Done)
    }

    /// Reports how many devices are not allocated.
    fn report_unallocated(&self, slice: &ResourceSlice, dead: usize) {
        let (level, reason, message) = match dead {
            0 => (
                Level::Normal,
                "DriverBack",
                "devices can be allocated again".to_owned(),
            ),
            _ => (
                Level::Warning,
                "DriverGone",
                format!("{dead} devices are not allocated: driver or node is gone"),
            ),
        };
        self.events.event(reference(slice), level, reason, message);
    }

    /// Whether the rejection of a slice's taints has not been reported yet.
    fn is_news(&self, key: &str) -> bool {
        let mut gone = self.gone.lock();
        let entry = gone.get_mut(key).filter(|entry| !entry.told);
        entry.map(|entry| entry.told = true).is_some()
    }

    /// Reports once that the server rejects the taints of a slice.
    fn report_rejected(&self, key: &str, slice: &ResourceSlice, error: &Error) {
        if !self.is_news(key) {
            return;
        }
        tracing::warn!(slice = key, %error, "driver or node is gone, but the devices cannot be tainted");
        let message =
            format!("devices cannot be tainted, although driver or node is gone: {error}");
        self.events
            .event(reference(slice), Level::Warning, "DriverGone", message);
    }
}
