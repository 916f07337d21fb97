//! Resource claims: created from templates, reserved, released, deleted.
//!
//! Behaviour is that of upstream's resourceclaim-controller (1.36). The scheduler allocates and reserves; this
//! controller creates the claims that pods need, removes reservations of consumers that were deleted, deallocates with
//! the last one, and deletes generated claims of finished pods. If the server serves the kinds before 1.31, [`classic`]
//! does the same for those.

mod classic;
mod create;
pub(crate) mod groups;
mod metrics;
mod plan;
mod pods;
mod release;

use std::collections::VecDeque;
use std::sync::Arc;

use allot_reflector::Writes;
use allot_resourceclaim::extended_resource_claim_name;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::Error;
use crate::controller::context::{Context, Task};
use crate::controller::events::Recorder;
use crate::controller::informer::{Change, Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::served::Served;

use classic::Classic;
use groups::{BY_GROUP, Groups, PodGroup};

/// Pods that were deleted lately and may still be in a reservation (as many as upstream remembers).
const REMEMBERED_PODS: usize = 500;

const BY_CLAIM: &str = "claim";
/// As [`BY_CLAIM`], by the names that claims have up to 1.27.
const BY_EARLY_CLAIM: &str = "early-claim";
const BY_TEMPLATE: &str = "template";
const BY_OWNER: &str = "owner";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Pod(Key),
    Group(Key),
    Claim(Key),
}

type Template = Whole<ResourceClaimTemplate>;

/// UIDs of pods that are known to be deleted; the oldest are dropped.
#[derive(Default)]
struct Deleted {
    order: VecDeque<String>,
    uids: FxHashSet<String>,
}

impl Deleted {
    fn add(&mut self, uid: &str) {
        if self.uids.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
            if self.order.len() > REMEMBERED_PODS
                && let Some(oldest) = self.order.pop_front()
            {
                self.uids.remove(&oldest);
            }
        }
    }
}

struct Claims {
    client: kube::Client,
    writes: Writes,
    events: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    templates: Informer<Template>,
    classic: Option<Classic>,
    groups: Option<Groups>,
    deleted: Mutex<Deleted>,
    metrics: metrics::ClaimMetrics,
    queue: Queue<Work>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, served: &Served) -> Task {
    // Without the kinds their caches stay empty.
    let newer = served.has("resource.k8s.io/v1", "resourceclaims");
    let controller = Arc::new(Claims {
        client: context.client.clone(),
        writes: context.writes.clone(),
        events: context.events.component("resource_claim"),
        pods: context.informer::<Pod>(),
        claims: match newer {
            true => context.informer::<ResourceClaim>(),
            false => Informer::new(),
        },
        templates: match newer {
            true => context.informer::<Template>(),
            false => Informer::new(),
        },
        classic: served.classic().map(|v| Classic::new(context, v)),
        groups: served.pod_groups().map(|r| Groups::new(context, r)),
        deleted: Mutex::default(),
        metrics: metrics::ClaimMetrics::register(&context.metrics),
        queue: context.queue("resource_claim"),
    });
    controller.watch();
    let queue = controller.queue.clone();
    let shutdown = context.shutdown.clone();
    let workers = context.config.workers * 5;
    Box::pin(queue.run(workers, shutdown, move |work| {
        let controller = controller.clone();
        async move { controller.sync(work).await }
    }))
}

fn claims_of_pod(pod: &Pod) -> Vec<String> {
    let namespace = meta::namespace(pod);
    let named = plan::pod_claims(pod).filter_map(|c| plan::claim_name(pod, c));
    let mut keys: Vec<String> = named.map(|n| key(Some(namespace), n)).collect();
    keys.extend(extended_resource_claim_name(pod).map(|n| key(Some(namespace), n)));
    keys
}

fn templates_of_pod(pod: &Pod) -> Vec<String> {
    plan::pod_claims(pod)
        .filter_map(|c| c.resource_claim_template_name.as_deref())
        .map(|t| key(Some(meta::namespace(pod)), t))
        .collect()
}

fn owner_of_claim(claim: &ResourceClaim) -> Vec<String> {
    meta::controller_of(&claim.metadata)
        .map(|o| o.uid.clone())
        .into_iter()
        .collect()
}

impl Claims {
    fn watch(self: &Arc<Self>) {
        self.pods
            .index(BY_CLAIM, claims_of_pod)
            .index(BY_TEMPLATE, templates_of_pod);
        self.claims.index(BY_OWNER, owner_of_claim);

        let this = Arc::downgrade(self);
        self.pods.on(move |change| {
            if let Some(this) = this.upgrade() {
                this.pod_changed(change.object(), change.is_delete());
            }
        });
        let this = Arc::downgrade(self);
        self.claims.on(move |change| {
            if let Some(this) = this.upgrade() {
                this.claim_changed(change);
            }
        });
        let this = Arc::downgrade(self);
        self.templates.on(move |change| {
            if let Some(this) = this.upgrade()
                && !change.is_delete()
            {
                this.template_changed(&key_of(&**change.object()));
            }
        });
        if let Some(groups) = &self.groups {
            self.pods.index(BY_GROUP, groups::of_pod);
            groups
                .groups
                .index(BY_CLAIM, groups::claims_of)
                .index(BY_TEMPLATE, groups::templates_of);
            let this = Arc::downgrade(self);
            groups.groups.on(move |change| {
                if let Some(this) = this.upgrade() {
                    this.group_changed(change.object(), change.is_delete());
                }
            });
        }
        let Some(classic) = &self.classic else { return };
        if classic.is_early() {
            self.pods
                .index(BY_EARLY_CLAIM, classic::deterministic_claims);
        }
        let this = Arc::downgrade(self);
        classic.watches().on(move |change| {
            if let Some(this) = this.upgrade() {
                this.users_changed(&key_of(&**change.object()), change.is_delete());
            }
        });
        let this = Arc::downgrade(self);
        classic.templates.on(move |change| {
            if let Some(this) = this.upgrade()
                && !change.is_delete()
            {
                this.template_changed(&key_of(&**change.object()));
            }
        });
    }

    /// A PodGroup changed: its claims are created or released, and its pods, which may have waited for it, are checked.
    fn group_changed(&self, group: &PodGroup, deleted: bool) {
        if deleted {
            let uid = group.metadata.uid.as_deref().unwrap_or_default();
            self.deleted.lock().add(uid);
            for claim in groups::claims_of(group) {
                self.queue.add(Work::Claim(claim));
            }
            return;
        }
        let name = key(Some(meta::namespace(group)), groups::meta_name(group));
        for pod in self.pods.by_index(BY_GROUP, &name) {
            self.pod_changed(&pod, false);
        }
        if !groups::entries(group).is_empty() {
            self.queue.add(Work::Group(name));
        }
    }

    fn template_changed(&self, template: &str) {
        if let Some(groups) = &self.groups {
            for group in groups.groups.by_index(BY_TEMPLATE, template) {
                self.group_changed(&group, false);
            }
        }
        for pod in self.pods.by_index(BY_TEMPLATE, template) {
            self.pod_changed(&pod, false);
        }
    }

    fn pod_changed(&self, pod: &Pod, deleted: bool) {
        let ended = deleted || plan::is_done(pod);
        if ended {
            // Among them one for extended resources whose name the pod never learned.
            for claim in self.claims.by_index(BY_OWNER, meta::uid(pod)) {
                self.queue.add(Work::Claim(key_of(&*claim)));
            }
        }
        if plan::pod_claims(pod).next().is_none() && extended_resource_claim_name(pod).is_none() {
            return;
        }
        if deleted {
            self.deleted.lock().add(meta::uid(pod));
        }
        if ended {
            let early = self.classic.as_ref().filter(|c| c.is_early());
            let early = early.map_or_else(Vec::new, |_| classic::deterministic_claims(pod));
            for claim in claims_of_pod(pod).into_iter().chain(early) {
                self.queue.add(Work::Claim(claim));
            }
        } else if self.needs_work(pod) {
            self.queue.add(Work::Pod(key_of(pod)));
        }
    }

    fn claim_changed(&self, change: &Change<ResourceClaim>) {
        if classic::is_classic(&**change.object()) {
            return;
        }
        self.metrics.count(change);
        self.users_changed(&key_of(&**change.object()), change.is_delete());
    }

    /// A claim changed: check it, and the pods that use it.
    fn users_changed(&self, claim: &str, deleted: bool) {
        if !deleted {
            self.queue.add(Work::Claim(claim.to_owned()));
        }
        if let Some(groups) = &self.groups {
            for group in groups.groups.by_index(BY_CLAIM, claim) {
                self.group_changed(&group, false);
            }
        }
        for index in [BY_CLAIM, BY_EARLY_CLAIM] {
            for pod in self.pods.by_index(index, claim) {
                self.pod_changed(&pod, false);
            }
        }
    }

    /// A claim that is not a classic one.
    fn newer_claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let found = self.claims.find(namespace, name);
        found.filter(|claim| !classic::is_classic(&**claim))
    }

    /// Whether the controller has work for a pod that still needs its claims.
    fn needs_work(&self, pod: &Pod) -> bool {
        let find = |name: &str| self.newer_claim(meta::namespace(pod), name);
        !meta::deleting(pod)
            && plan::pod_claims(pod).any(|pod_claim| {
                let classic = self.classic.as_ref();
                match classic.and_then(|c| Some((c, c.claim_of(pod, pod_claim)?))) {
                    Some((classic, claim)) => classic.needs_work(pod, pod_claim, &claim),
                    None => plan::entry_needs_work(pod, pod_claim, find),
                }
            })
    }

    async fn sync(&self, work: Work) -> Result<Next, Error> {
        match work {
            Work::Pod(key) => self.sync_pod(&key).await?,
            Work::Group(key) => self.sync_group(&key).await?,
            Work::Claim(key) => self.sync_claim(&key).await?,
        }
        Ok(Next::Done)
    }
}
