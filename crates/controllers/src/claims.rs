//! Resource claims: created from templates, reserved, released, deleted.
//!
//! Behaviour is that of upstream's resourceclaim-controller (1.36). The scheduler allocates and
//! reserves; this controller creates the claims that pods need, drops reservations of consumers
//! that are gone, deallocates when the last one is gone, and deletes generated claims of pods that
//! are done.

mod metrics;
mod plan;

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};
use kube::Api;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use crate::Error;
use crate::kit::api::{self, Delete, Part};
use crate::kit::context::Context;
use crate::kit::events::{Level, Recorder, reference};
use crate::kit::informer::{Change, Informer, Key, key, key_of, split_key};
use crate::kit::meta;
use crate::kit::queue::{Next, Queue};
use crate::kit::whole::Whole;
use crate::registry::Task;

use plan::{ClaimStep, Consumer};

/// The finalizer that protects an allocated claim.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of a generated claim: which entry of the pod's `spec.resourceClaims` it is for.
pub(crate) const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Annotation of the claim that the scheduler makes for extended resources.
pub(crate) const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// Pods that were deleted lately and may still be in a reservation (as many as upstream remembers).
const REMEMBERED_PODS: usize = 500;

const BY_CLAIM: &str = "claim";
const BY_TEMPLATE: &str = "template";
const BY_OWNER: &str = "owner";

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Pod(Key),
    Claim(Key),
}

type Template = Whole<ResourceClaimTemplate>;

/// UIDs of pods that are surely gone; the oldest are forgotten.
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
    events: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    templates: Informer<Template>,
    deleted: Mutex<Deleted>,
    metrics: metrics::ClaimMetrics,
    queue: Queue<Work>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let controller = Arc::new(Claims {
        client: context.client.clone(),
        events: context.events.component("resource_claim"),
        pods: context.informer::<Pod>(),
        claims: context.informer::<ResourceClaim>(),
        templates: context.informer::<Template>(),
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
    keys.extend(plan::extended_claim(pod).map(|n| key(Some(namespace), n)));
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
            let Some(this) = this.upgrade() else { return };
            if !change.is_delete() {
                for pod in this.pods.by_index(BY_TEMPLATE, &key_of(&**change.object())) {
                    this.pod_changed(&pod, false);
                }
            }
        });
    }

    fn pod_changed(&self, pod: &Pod, deleted: bool) {
        if plan::pod_claims(pod).next().is_none() && plan::extended_claim(pod).is_none() {
            return;
        }
        if deleted {
            self.deleted.lock().add(meta::uid(pod));
        }
        if deleted || plan::is_done(pod) {
            for claim in claims_of_pod(pod) {
                self.queue.add(Work::Claim(claim));
            }
        } else if plan::needs_work(pod, |name| self.claims.find(meta::namespace(pod), name)) {
            self.queue.add(Work::Pod(key_of(pod)));
        }
    }

    fn claim_changed(&self, change: &Change<ResourceClaim>) {
        let claim = change.object();
        self.metrics.count(change);
        if !change.is_delete() {
            self.queue.add(Work::Claim(key_of(&**claim)));
        }
        for pod in self.pods.by_index(BY_CLAIM, &key_of(&**claim)) {
            self.pod_changed(&pod, false);
        }
    }

    async fn sync(&self, work: Work) -> Result<Next, Error> {
        match work {
            Work::Pod(key) => self.sync_pod(&key).await?,
            Work::Claim(key) => self.sync_claim(&key).await?,
        }
        Ok(Next::Done)
    }

    async fn sync_pod(&self, key: &str) -> Result<(), Error> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(());
        };
        if meta::deleting(&*pod) || plan::is_done(&pod) {
            return Ok(());
        }
        let mut names: Vec<(String, String)> = Vec::new();
        for pod_claim in plan::pod_claims(&pod) {
            let Some(template) = &pod_claim.resource_claim_template_name else {
                continue;
            };
            match self.claim_for(&pod, pod_claim, template).await {
                Ok(Some(name)) => names.push((pod_claim.name.clone(), name)),
                Ok(None) => {}
                Err(error) if error.is_namespace_terminating() => return Ok(()),
                Err(error) => {
                    self.events.event(
                        reference(&*pod),
                        Level::Warning,
                        "FailedResourceClaimCreation",
                        format!("PodResourceClaim {}: {error}", pod_claim.name),
                    );
                    return Err(error);
                }
            }
        }
        if !names.is_empty() {
            self.record(&pod, &names).await?;
        }
        if !meta::node_name(&pod).is_empty() {
            self.reserve(&pod, &names).await?;
        }
        Ok(())
    }

    /// Finds or makes the claim for an entry of the pod; `None` if the pod knows it already.
    async fn claim_for(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        template: &str,
    ) -> Result<Option<String>, Error> {
        let namespace = meta::namespace(pod);
        if let Some(name) = plan::claim_name(pod, pod_claim)
            && let Some(claim) = self.claims.find(namespace, name)
        {
            if plan::is_for_pod(&claim, pod) {
                return Ok(None);
            }
            tracing::error!(
                pod = meta::name(pod),
                claim = name,
                "claim does not belong to the pod; another one is made"
            );
        }
        let owned = self.claims.by_index(BY_OWNER, meta::uid(pod));
        if let Some(claim) = plan::generated_claim(&owned, namespace, &pod_claim.name) {
            return Ok(Some(meta::name(&**claim).to_owned()));
        }
        let Some(found) = self.templates.find(namespace, template) else {
            return Err(Error::Invalid(format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            )));
        };
        let body = plan::new_claim(pod, &pod_claim.name, found.at("/spec"));
        let admin = plan::asks_for_admin_access(&body);
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let created = api::create(&self.client, &claims, &body).await;
        self.metrics.created(created.is_ok(), admin);
        let claim = created.map_err(|error| match error {
            Error::Api(_) if !error.is_namespace_terminating() => {
                Error::Invalid(format!("create ResourceClaim : {error}"))
            }
            other => other,
        })?;
        let name = meta::name(&claim).to_owned();
        self.claims.assume(claim);
        Ok(Some(name))
    }

    /// Writes the names of generated claims into the pod's status.
    async fn record(&self, pod: &Pod, names: &[(String, String)]) -> Result<(), Error> {
        let statuses = plan::claim_statuses(pod, names);
        let body = json!({
            "metadata": api::same(pod),
            "status": {"resourceClaimStatuses": statuses},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(pod));
        match api::patch(&pods, meta::name(pod), Part::Status, &body).await {
            Ok(pod) => {
                self.pods.assume(pod);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reserves allocated claims for a pod that was bound without a scheduler.
    async fn reserve(&self, pod: &Pod, new: &[(String, String)]) -> Result<(), Error> {
        let namespace = meta::namespace(pod);
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        for pod_claim in plan::pod_claims(pod) {
            let new = new
                .iter()
                .find(|(n, _)| *n == pod_claim.name)
                .map(|(_, c)| c.as_str());
            let Some(claim) = new
                .or_else(|| plan::claim_name(pod, pod_claim))
                .and_then(|name| self.claims.find(namespace, name))
            else {
                continue;
            };
            if pod_claim.resource_claim_template_name.is_some() && !plan::is_for_pod(&claim, pod) {
                return Err(Error::Invalid(format!(
                    "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{} (Pod is not owner)",
                    meta::name(&*claim),
                    meta::name(pod)
                )));
            }
            if !plan::wants_reservation(&claim, pod) {
                continue;
            }
            let mut reserved = plan::reserved_for(&claim).to_vec();
            reserved.push(plan::pod_reference(pod));
            let body = json!({
                "metadata": api::unchanged(&*claim),
                "status": {"reservedFor": reserved},
            });
            let updated = api::patch(&claims, meta::name(&*claim), Part::Status, &body).await?;
            self.claims.assume(updated);
        }
        Ok(())
    }

    /// Whether a consumer still needs the claim, asking the API server where the cache can not tell.
    async fn is_needed(
        &self,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
    ) -> Result<bool, Error> {
        if !plan::is_pod(consumer) {
            return Ok(true);
        }
        let cached = self.pods.find(namespace, &consumer.name);
        let gone = self.deleted.lock().uids.contains(&consumer.uid);
        match plan::consumer(consumer, cached.as_deref(), gone) {
            Consumer::Needs => Ok(true),
            Consumer::Gone => Ok(false),
            Consumer::AskServer => {
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
                let live = pods.get_opt(&consumer.name).await?;
                Ok(live.is_some_and(|pod| meta::uid(&pod) == consumer.uid))
            }
        }
    }

    async fn sync_claim(&self, key: &str) -> Result<(), Error> {
        let Some(mut claim) = self.claims.get(key) else {
            return Ok(());
        };
        let (namespace, name) = split_key(key);
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut needed = Vec::new();
        for consumer in plan::reserved_for(&claim) {
            if self.is_needed(namespace, consumer).await? {
                needed.push(consumer.clone());
            }
        }
        for step in plan::release(&claim, &needed) {
            let (part, body) = match step {
                ClaimStep::Status(status) => (Part::Status, json!({"status": status})),
                ClaimStep::RemoveFinalizer(rest) => {
                    (Part::Main, json!({"metadata": {"finalizers": rest}}))
                }
            };
            let body = with_precondition(body, &claim);
            match api::patch(&claims, name, part, &body).await {
                Ok(new) => {
                    self.claims.assume(new.clone());
                    claim = Arc::new(new);
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if needed.is_empty()
            && let Some(owner) = meta::controller_of(&claim.metadata)
            && owner.api_version == "v1"
            && owner.kind == "Pod"
            && !meta::deleting(&*claim)
            && let Some(pod) = self.pods.find(namespace, &owner.name)
            && (meta::uid(&*pod) != owner.uid || plan::is_done(&pod))
        {
            api::delete(&claims, name, meta::uid(&*claim), Delete::default()).await?;
        }
        Ok(())
    }
}

fn with_precondition(mut body: Value, claim: &ResourceClaim) -> Value {
    body["metadata"]["uid"] = json!(meta::uid(claim));
    body["metadata"]["resourceVersion"] = json!(claim.metadata.resource_version);
    body
}
