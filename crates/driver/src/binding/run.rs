//! The controller: a watch of claims, and a task for each device that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allot_reflector::{Collection, Observed, reflect};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::{ReportError, Say};
use super::{Binder, BindingConditions, Readiness, WaitingDevice};

/// Delay of the first repetition; each further one doubles it.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Identifies a device in one allocation of a claim. In the order in which devices are made ready.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    allocated: Option<Timestamp>,
    /// Differs from allocation to allocation also when the time, which has whole seconds, is the same.
    number: u64,
    uid: String,
    pool: String,
    device: String,
    share: Option<String>,
}

impl Key {
    fn of(device: &WaitingDevice, number: u64) -> Self {
        let result = device.result();
        Self {
            allocated: device.allocated_at(),
            number,
            uid: device.claim().reference().uid.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share: result.share_id.clone(),
        }
    }
}

/// A claim with devices that wait.
struct WaitingClaim {
    /// Another one after the claim waited for nothing, as without an allocation.
    number: u64,
    devices: Vec<WaitingDevice>,
}

impl WaitingClaim {
    fn keys(&self) -> impl Iterator<Item = Key> {
        self.devices
            .iter()
            .map(|device| Key::of(device, self.number))
    }
}

/// The claims with devices that wait, as the watch has shown them, by UID.
#[derive(Default)]
struct Seen {
    claims: Mutex<BTreeMap<String, WaitingClaim>>,
    next: AtomicU64,
    /// Notified when a device waits that did not before, or no longer. Most claims of a cluster wait for nothing.
    changed: Notify,
}

impl Seen {
    fn observe(&self, conditions: &BindingConditions, observed: Observed<ResourceClaim>) {
        let mut claims = self.claims.lock();
        let changed = match observed {
            Observed::Listed { items, .. } => {
                let exist: BTreeSet<String> = items.iter().filter_map(ResourceExt::uid).collect();
                let before = claims.len();
                claims.retain(|uid, _| exist.contains(uid));
                let gone = claims.len() < before;
                let set = |changed, claim| changed | self.set(&mut claims, conditions, claim);
                items.iter().fold(gone, set)
            }
            Observed::Applied(claim) => self.set(&mut claims, conditions, &claim),
            Observed::Deleted(claim) => claims.remove(&claim.uid().unwrap_or_default()).is_some(),
        };
        drop(claims);
        if changed {
            self.changed.notify_one();
        }
    }

    /// Records which devices of a claim wait. Returns whether they are others than before.
    fn set(
        &self,
        claims: &mut BTreeMap<String, WaitingClaim>,
        conditions: &BindingConditions,
        claim: &ResourceClaim,
    ) -> bool {
        let uid = claim.uid().unwrap_or_default();
        let devices = conditions.waiting(claim);
        if devices.is_empty() {
            return claims.remove(&uid).is_some();
        }
        let before = claims.get(&uid).map(|before| before.number);
        let number = before.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let new = WaitingClaim { number, devices };
        let keys: Vec<Key> = new.keys().collect();
        let before = claims.insert(uid, new);
        before.is_none_or(|before| !before.keys().eq(keys))
    }

    fn waiting(&self) -> BTreeMap<Key, WaitingDevice> {
        let claims = self.claims.lock();
        let devices = claims
            .values()
            .flat_map(|claim| claim.keys().zip(claim.devices.iter().cloned()));
        devices.collect()
    }
}

impl BindingConditions {
    /// Makes devices ready as they are allocated, and reports it. Never returns; dropping the future ends everything. Nothing needs to
    /// be stored: after a restart the devices that still wait are made ready again.
    pub async fn run(&self, binder: impl Binder) {
        let seen = Seen::default();
        let claims = Api::<ResourceClaim>::all(self.api.client().clone());
        let keep = |of: &str, field: &str| (of, field) != ("ObjectMeta", "managedFields");
        let watch = reflect::<ResourceClaim, _>(
            Collection::new(claims, None),
            keep,
            CancellationToken::new(),
            |observed| {
                seen.observe(self, observed);
                true
            },
        );
        let tasks = Tasks {
            conditions: self.clone(),
            binder: Arc::new(binder),
            running: JoinSet::new(),
            active: BTreeMap::new(),
            later: BTreeMap::new(),
        };
        tokio::select! {
            () = watch => {}
            () = tasks.work(&seen) => {}
        }
    }
}

struct Tasks<B> {
    conditions: BindingConditions,
    binder: Arc<B>,
    /// Whether the device was made ready, or failed, and that was reported.
    running: JoinSet<bool>,
    active: BTreeMap<Key, AbortHandle>,
    /// Devices that are done, or were tried so many times without success: they are not tried before the time, while they wait.
    later: BTreeMap<Key, (u32, Instant)>,
}

impl<B: Binder> Tasks<B> {
    async fn work(mut self, seen: &Seen) {
        loop {
            self.start(&seen.waiting());
            let now = Instant::now();
            let due = self.later.values().map(|(_, due)| *due);
            // Those of the past wait for a place among the active ones.
            let due = due.filter(|due| *due > now).min();
            let timer = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = seen.changed.notified() => {}
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
                () = timer => {}
            }
        }
    }

    /// Ends what is no longer waited for, and starts what is.
    fn start(&mut self, waiting: &BTreeMap<Key, WaitingDevice>) {
        self.active.retain(|key, task| {
            let goes_on = waiting.contains_key(key);
            if !goes_on {
                task.abort();
            }
            goes_on
        });
        self.later.retain(|key, _| waiting.contains_key(key));
        let now = Instant::now();
        for (key, device) in waiting {
            if self.active.len() >= self.conditions.parallel {
                break;
            }
            let is_later = self.later.get(key).is_some_and(|(_, due)| *due > now);
            if is_later || self.active.contains_key(key) {
                continue;
            }
            let (conditions, binder) = (self.conditions.clone(), Arc::clone(&self.binder));
            let device = device.clone();
            let task = async move { make_ready(&conditions, &*binder, &device).await };
            self.active.insert(key.clone(), self.running.spawn(task));
        }
    }

    fn ended(&mut self, ended: Result<(Id, bool), JoinError>) {
        let (id, is_done) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "making a device ready panicked");
                }
                (error.id(), false)
            }
        };
        // One that was aborted is not there any longer.
        let Some(key) = self.active.iter().find(|(_, task)| task.id() == id) else {
            return;
        };
        let key = key.0.clone();
        self.active.remove(&key);
        let before = self.later.get(&key).map_or(0, |(attempts, _)| *attempts);
        // The watch shows soon that a reported device waits no longer. If it does not, another client has taken the report back.
        let (attempts, delay) = match is_done {
            true => (0, RETRY_MAX),
            false => (
                before + 1,
                RETRY_MIN.saturating_mul(1 << before.min(6)).min(RETRY_MAX),
            ),
        };
        self.later.insert(key, (attempts, Instant::now() + delay));
    }
}

/// Whether the device was made ready, or failed, and that is reported, or is of no interest any longer.
async fn make_ready(
    conditions: &BindingConditions,
    binder: &impl Binder,
    device: &WaitingDevice,
) -> bool {
    let (claim, result) = (device.claim().reference(), device.result());
    let made = binder.make_ready(device).await;
    let text = made
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    let say = match &made {
        Ok(readiness) => Say::Is(readiness),
        Err(_) => Say::Trouble(&text),
    };
    let is_over = match &made {
        Ok(Readiness::Ready) => true,
        Ok(Readiness::Failed { .. }) => conditions.failures(result).next().is_some(),
        Err(_) => false,
    };
    if !is_over {
        tracing::warn!(%claim, device = result.device, error = text, "the device is not ready yet");
    }
    match conditions.report(device, say).await {
        Ok(()) => is_over,
        Err(ReportError::Gone) => {
            tracing::debug!(%claim, device = result.device, "the device is no longer allocated");
            true
        }
        Err(error) => {
            tracing::warn!(%claim, device = result.device, %error, "the binding conditions cannot be reported");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kube::Client;
    use serde_json::{Value, json};

    use super::*;

    const DRIVER: &str = "fabric.example.com";

    fn claim(uid: &str, driver: &str, devices: &[&str], status: &Value) -> ResourceClaim {
        let result = |device: &&str| {
            json!({"request": "r", "driver": driver, "pool": "p", "device": device,
                "bindingConditions": ["attached"]})
        };
        let results: Vec<Value> = devices.iter().map(result).collect();
        let object = json!({
            "metadata": {"name": uid, "namespace": "default", "uid": uid},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}, "devices": status},
        });
        serde_json::from_value(object).expect("a claim")
    }

    /// Every change of every claim in the cluster was a reason to compare all that wait with all that is under way.
    #[tokio::test]
    async fn regression_claims_that_wait_for_nothing_are_no_reason_to_wake() {
        let uri = http::Uri::from_static("http://localhost");
        let client = Client::try_from(kube::Config::new(uri)).expect("a client");
        let (conditions, seen) = (BindingConditions::new(client, DRIVER), Seen::default());
        let check = |observed, wakes: bool, what: &str| {
            seen.observe(&conditions, observed);
            let woken = seen.changed.notified().now_or_never().is_some();
            assert_eq!(woken, wakes, "{what}");
        };
        let none = json!([]);
        let applied = |claim| Observed::Applied(Box::new(claim));
        let listed = |items| Observed::Listed {
            items,
            version: "1".to_owned(),
        };
        let ours = || claim("ours", DRIVER, &["a", "b"], &none);
        let other = || claim("other", "other.example.com", &["a"], &none);
        check(applied(other()), false, "another driver's");
        check(applied(ours()), true, "one that waits");
        let not_yet = json!([{"driver": DRIVER, "pool": "p", "device": "a", "conditions": [{
            "type": "attached", "status": "False", "reason": "NotReady", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]);
        let reported = claim("ours", DRIVER, &["a", "b"], &not_yet);
        check(applied(reported), false, "its own report");
        check(listed(vec![other(), ours()]), false, "a list of the same");
        let fewer = claim("ours", DRIVER, &["b"], &none);
        check(applied(fewer), true, "a device waits no longer");
        check(listed(vec![other()]), true, "it is gone");
        check(Observed::Deleted(Box::new(other())), false, "deleted");
        check(applied(ours()), true, "it waits again");
        check(Observed::Deleted(Box::new(ours())), true, "deleted");
    }
}
