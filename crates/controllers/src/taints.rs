//! Eviction of pods from devices with NoExecute taints, and the status of DeviceTaintRules.
//!
//! Behaviour is that of upstream's device-taint-eviction-controller (1.36): taints come from the
//! newest generation of the slices and from rules; only tolerations with effect NoExecute in the
//! allocation result protect; a pod is evicted at the earliest of its claims' times.

mod plan;
mod rules;
mod state;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::well_known::is_terminal_phase;
use allot_resourceclaim::{consumers, is_pod_group};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1beta2::{DeviceTaintRuleSpec, DeviceTaintRuleStatus};
use kube::Api;
use kube::core::discovery::ApiResource;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::{Value, json};

use crate::Error;
use crate::claims::groups::{self, BY_GROUP};
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::{Clock, since, until};
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Change, Informer, Key, key, key_of, split_key};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::served::Served;
use crate::workload::disruption_target;

use plan::{Eviction, Reason};
use state::State;
use status::meta_name;

/// A DeviceTaintRule in the served version; the versions do not differ.
pub(crate) type Rule = kube::core::Object<DeviceTaintRuleSpec, DeviceTaintRuleStatus>;

const BY_POOL: &str = "pool";
/// Shortest time between two updates of a rule's status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Pod(Key),
    Rule(String),
}

struct Controller {
    client: kube::Client,
    clock: Clock,
    events: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    slices: Informer<ResourceSlice>,
    rule_resource: Option<ApiResource>,
    state: Mutex<State>,
    queue: Queue<Work>,
    deletions: Counter,
    latency: Histogram,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, served: &Served) -> Task {
    let deletions = Counter::default();
    let buckets = [
        0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0,
    ];
    let latency = Histogram::new(buckets);
    context.metrics.register(
        "device_taint_eviction_controller_pod_deletions",
        "Pods deleted because of device taints",
        deletions.clone(),
    );
    context.metrics.register(
        "device_taint_eviction_controller_pod_deletion_duration_seconds",
        "Time from when a pod should be deleted until it is",
        latency.clone(),
    );
    let this = Arc::new(Controller {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.component("device-taint-eviction-controller"),
        pods: context.informer::<Pod>(),
        claims: context.informer::<ResourceClaim>(),
        slices: context.informer::<ResourceSlice>(),
        rule_resource: served.taint_rules(),
        state: Mutex::default(),
        queue: context.queue("device_taint_eviction"),
        deletions,
        latency,
    });
    this.watch(context);
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, work| async move { this.sync(work).await },
    )
}

fn pool_of(slice: &ResourceSlice) -> Vec<String> {
    vec![plan::pool_key(&slice.spec.driver, &slice.spec.pool.name)]
}

fn pools_of_claim(claim: &ResourceClaim) -> Vec<String> {
    let pools: BTreeSet<String> = plan::results(claim)
        .map(|r| plan::pool_key(&r.driver, &r.pool))
        .collect();
    pools.into_iter().collect()
}

impl Controller {
    fn watch(self: &Arc<Self>, context: &Context) {
        self.claims.index(BY_POOL, pools_of_claim);
        self.slices.index(BY_POOL, pool_of);
        self.pods.index(BY_GROUP, groups::of_pod);

        let weak = Arc::downgrade(self);
        self.pods.on(move |change| {
            if let Some(this) = weak.upgrade() {
                this.pod_changed(change);
            }
        });
        let weak = Arc::downgrade(self);
        self.claims.on(move |change| {
            if let Some(this) = weak.upgrade() {
                this.claim_changed(change);
            }
        });
        let weak = Arc::downgrade(self);
        self.slices.on(move |change| {
            if let Some(this) = weak.upgrade() {
                let pools: BTreeSet<String> = change
                    .old()
                    .into_iter()
                    .chain([change.object()])
                    .flat_map(|s| pool_of(s))
                    .collect();
                for pool in pools {
                    this.pool_changed(&pool);
                }
            }
        });
        if let Some(resource) = &self.rule_resource {
            let rules: Informer<Rule> = context.informer_with(resource);
            let all = rules.clone();
            let weak = Arc::downgrade(self);
            rules.on(move |change| {
                if let Some(this) = weak.upgrade() {
                    this.rule_changed(&all, change);
                }
            });
        }
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        if !plan::has_claims(pod) {
            return;
        }
        if change.is_delete() {
            self.forget(&key_of(&**pod), meta::uid(&**pod));
            return;
        }
        let same = change.old().is_some_and(|old| {
            let statuses = |p: &Pod| {
                let status = p.status.as_ref();
                status.map(|s| {
                    (
                        s.resource_claim_statuses.clone(),
                        s.extended_resource_claim_status.clone(),
                    )
                })
            };
            meta::uid(&**old) == meta::uid(&**pod)
                && meta::node_name(old) == meta::node_name(pod)
                && statuses(old) == statuses(pod)
                && meta::deleting(&**old) == meta::deleting(&**pod)
                && meta::is_finished(old) == meta::is_finished(pod)
        });
        if !same {
            self.evaluate([&**pod]);
        }
    }

    fn claim_changed(&self, change: &Change<ResourceClaim>) {
        {
            let state = self.state.lock();
            if state.tainted.is_empty() && state.rules.is_empty() && state.pending.is_empty() {
                return;
            }
        }
        self.evaluate_users(change.old().into_iter().chain([change.object()]));
    }

    /// The pods that a claim is reserved for, alone or as a group.
    fn users(&self, claim: &ResourceClaim) -> Vec<(Key, Arc<Pod>)> {
        let namespace = meta::namespace(claim);
        let mut pods = Vec::new();
        for consumer in consumers(claim) {
            if is_pod_group(consumer) {
                let group = key(Some(namespace), &consumer.name);
                pods.extend(self.pods.by_index(BY_GROUP, &group));
            } else if consumer.resource == "pods" {
                pods.extend(self.pods.find(namespace, &consumer.name));
            }
        }
        pods.into_iter().map(|p| (key_of(&*p), p)).collect()
    }

    fn pool_changed(&self, pool: &str) {
        let slices = self.slices.by_index(BY_POOL, pool);
        let changed = self.state.lock().tainted.set_pool(pool, &slices);
        if changed {
            self.evaluate_users(&self.claims.by_index(BY_POOL, pool));
        }
    }

    fn rule_changed(&self, all: &Informer<Rule>, change: &Change<Rule>) {
        let mut rules = all.list();
        rules.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        self.state.lock().rules = rules;
        // Status updates (ours) do not matter.
        let spec_changed = change
            .old()
            .is_none_or(|old| old.spec != change.object().spec);
        if spec_changed {
            let mut claims = self.claims.list();
            claims.retain(|c| plan::results(c).next().is_some());
            self.evaluate_users(&claims);
            if !change.is_delete() {
                self.queue.add(Work::Rule(meta_name(change.object())));
            }
        }
    }

    fn evaluate_users<'a>(&self, claims: impl IntoIterator<Item = &'a Arc<ResourceClaim>>) {
        let users = claims.into_iter().flat_map(|c| self.users(c));
        let pods: BTreeMap<Key, Arc<Pod>> = users.collect();
        self.evaluate(pods.values().map(|p| &**p));
    }

    /// Computes whether and when the pods must be evicted, and schedules that: for all of them
    /// before the first is evicted, so that the status of a rule has their number.
    fn evaluate<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) {
        let now = self.clock.now();
        let mut due = Vec::new();
        let mut state = self.state.lock();
        for pod in pods {
            let key = key_of(pod);
            let claim = |name: &str| self.claims.find(meta::namespace(pod), name);
            let evicted = state.evicted_uids.contains(meta::uid(pod));
            let new =
                plan::eviction(pod, claim, &state.tainted, &state.rules, now).filter(|_| !evicted);
            let old = match &new {
                Some(new) => state.pending.insert(key.clone(), new.clone()),
                None => state.pending.remove(&key),
            };
            if old == new {
                continue;
            }
            self.rules_affected(&state, old.as_ref().into_iter().chain(new.as_ref()));
            match (&old, &new) {
                (_, Some(new)) => due.push((key, new.at)),
                (Some(_), None) if !meta::deleting(pod) && !evicted => self.events.event(
                    reference(pod),
                    Level::Normal,
                    "DeviceTaintManagerEviction",
                    "Cancelling deletion".to_owned(),
                ),
                _ => {}
            }
        }
        drop(state);
        for (key, at) in due {
            self.queue.add_after(Work::Pod(key), until(now, at));
        }
    }

    fn was_evicted(&self, pod: &Pod) -> bool {
        self.state.lock().evicted_uids.contains(meta::uid(pod))
    }

    fn rules_affected<'a>(&self, state: &State, evictions: impl Iterator<Item = &'a Eviction>) {
        let names: BTreeSet<&str> = evictions.flat_map(Eviction::rules).collect();
        for name in names {
            self.plan_status(state, name);
        }
    }

    /// Plans an update of a rule's status, not too soon after the one before.
    fn plan_status(&self, state: &State, name: &str) {
        let wait = state.written.get(name).map_or(Duration::ZERO, |(at, _)| {
            STATUS_INTERVAL.saturating_sub(since(self.clock.now(), *at))
        });
        self.queue.add_after(Work::Rule(name.to_owned()), wait);
    }

    /// Drops the eviction of a pod, but not that of its successor of the same name.
    fn forget(&self, key: &str, uid: &str) {
        let mut state = self.state.lock();
        if let Some(old) = state.take_pending(key, uid) {
            self.rules_affected(&state, std::iter::once(&old));
        }
    }

    async fn sync(&self, work: Work) -> Result<Next, Error> {
        match work {
            Work::Pod(key) => self.sync_pod(&key).await,
            Work::Rule(name) => self.sync_rule(&name).await,
        }
    }

    async fn sync_pod(&self, key: &str) -> Result<Next, Error> {
        let Some(eviction) = self.state.lock().pending.get(key).cloned() else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        if eviction.at > now {
            return Ok(Next::After(until(now, eviction.at)));
        }
        let (namespace, name) = split_key(key);
        let pods: Api<Whole<Pod>> = Api::namespaced(self.client.clone(), namespace);
        let live = api::get(&pods, name).await?;
        let goes = |pod: &Whole<Pod>| {
            let phase = pod.at("/status/phase");
            let done = phase.as_str().is_some_and(is_terminal_phase);
            meta::uid(pod) == eviction.uid && !done
        };
        let Some(live) = live.filter(goes) else {
            self.forget(key, &eviction.uid);
            return Ok(Next::Done);
        };
        if meta::deleting(&live) {
            // Another client was faster. As in upstream that counts as well.
            self.evicted(key, &eviction);
            return Ok(Next::Done);
        }
        if !self.was_evicted(&live) {
            self.events.event(
                reference(&*live),
                Level::Normal,
                "DeviceTaintManagerEviction",
                "Marking for deletion".to_owned(),
            );
        }
        let conditions = disruption_target(
            &live,
            "DeletionByDeviceTaintManager",
            "Device Taint manager: deleting due to NoExecute taint",
            None,
            now,
        );
        if json!(conditions) != *live.at("/status/conditions") {
            let body =
                json!({"metadata": api::unchanged(&live), "status": {"conditions": conditions}});
            match api::patch(&pods, name, Part::Status, &body).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        match api::delete(&pods, name, &eviction.uid, Delete::default()).await {
            Ok(_) => self.evicted(key, &eviction),
            // Replaced by another pod of that name.
            Err(error) if error.is_conflict() => self.forget(key, &eviction.uid),
            Err(error) => return Err(error),
        }
        Ok(Next::Done)
    }

    fn evicted(&self, key: &str, eviction: &Eviction) {
        let mut state = self.state.lock();
        state.take_pending(key, &eviction.uid);
        if state.remember(&eviction.uid) {
            self.deletions.inc();
            self.latency
                .observe(since(self.clock.now(), eviction.at).as_secs_f64());
            for reason in &eviction.reasons {
                if let Reason::Rule { uid, .. } = reason {
                    *state.counts.entry(uid.clone()).or_default() += 1;
                }
            }
        }
        self.rules_affected(&state, std::iter::once(eviction));
    }
}
