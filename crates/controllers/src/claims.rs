//! Resource claims: created from templates, reserved, released, deleted.
//!
//! Behaviour is that of upstream's resourceclaim-controller (1.36). The scheduler allocates and
//! reserves; this controller creates the claims that pods need, drops reservations of consumers
//! that are gone, deallocates when the last one is gone, and deletes generated claims of pods that
//! are done. Where the server has the kinds of before 1.31, [`classic`] does the same for those.

mod classic;
pub(crate) mod groups;
mod metrics;
mod plan;

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodResourceClaim};
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
use crate::registry::{Served, Task};

use classic::Classic;
use groups::{BY_GROUP, Groups, PodGroup};
use plan::{Consumer, Owner};

/// The finalizer that protects an allocated claim.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of a generated claim: which entry of the pod's `spec.resourceClaims` it is for.
pub(crate) const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Annotation of the claim that the scheduler makes for extended resources.
pub(crate) const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

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

    /// A group changed: its claims are made or released, and its pods told.
    fn group_changed(&self, group: &PodGroup, deleted: bool) {
        if groups::entries(group).is_empty() {
            return;
        }
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
        self.queue.add(Work::Group(name));
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
        if plan::pod_claims(pod).next().is_none() && plan::extended_claim(pod).is_none() {
            return;
        }
        if deleted {
            self.deleted.lock().add(meta::uid(pod));
        }
        if deleted || plan::is_done(pod) {
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

    /// A claim changed: look at it, and at the pods that use it.
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

    /// Whether there is something to do for a pod that still needs its claims.
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

    /// A claim whose name a pod has. The scheduler may be using it already: that the cache does not have it (yet) must
    /// not lead to another one.
    async fn recorded(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ResourceClaim>>, Error> {
        let newer = |claim: &Arc<ResourceClaim>| !classic::is_classic(&**claim);
        if let Some(claim) = self.claims.find(namespace, name) {
            return Ok(Some(claim).filter(newer));
        }
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let Some(claim) = claims.get_opt(name).await? else {
            return Ok(None);
        };
        self.claims.assume(claim.clone());
        Ok(Some(Arc::new(claim)).filter(newer))
    }

    /// The group that an entry of a pod belongs to.
    fn group_of(&self, pod: &Pod, entry: &PodResourceClaim) -> Option<Arc<PodGroup>> {
        self.groups.as_ref()?.of(pod, entry)
    }

    /// Finds or makes the claim for an entry of the pod; `None` if the pod knows it already.
    async fn claim_for(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        template: &str,
    ) -> Result<Option<String>, Error> {
        let namespace = meta::namespace(pod);
        if let Some(group) = self.group_of(pod, pod_claim) {
            // The pod follows its group.
            let name = groups::claim_name(&group, pod_claim);
            let news = name.filter(|n| plan::claim_name(pod, pod_claim) != Some(n));
            return Ok(news.map(str::to_owned));
        }
        if let Some(classic) = &self.classic
            && let Some(found) = classic.template(namespace, template)
        {
            return classic.claim_for(pod, pod_claim, &found).await;
        }
        if let Some(classic) = &self.classic
            && classic
                .claim_of(pod, pod_claim)
                .is_some_and(|c| classic::is_for_pod(&c, pod))
        {
            // Its template is gone; the claim is there.
            return Ok(None);
        }
        if let Some(name) = plan::claim_name(pod, pod_claim)
            && let Some(claim) = self.recorded(namespace, name).await?
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
        self.generate(&Owner::pod(pod), &pod_claim.name, template)
            .await
            .map(Some)
    }

    /// Finds or makes the claim for an entry of its owner.
    async fn generate(
        &self,
        owner: &Owner<'_>,
        entry: &str,
        template: &str,
    ) -> Result<String, Error> {
        let namespace = owner.namespace;
        let owned = self.claims.by_index(BY_OWNER, owner.uid);
        if let Some(claim) = plan::generated_claim(&owned, namespace, entry) {
            return Ok(meta::name(&**claim).to_owned());
        }
        let found = self.templates.find(namespace, template);
        let Some(found) = found.filter(|t| !classic::is_classic(&**t)) else {
            return Err(Error::Invalid(format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            )));
        };
        let body = plan::new_claim(owner, entry, found.at("/spec"));
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
        Ok(name)
    }

    /// Makes the claims of a group and writes their names into its status.
    async fn sync_group(&self, key: &str) -> Result<(), Error> {
        let found = self
            .groups
            .as_ref()
            .and_then(|g| Some((g, g.groups.get(key)?)));
        let Some((groups, group)) = found.filter(|(_, g)| g.metadata.deletion_timestamp.is_none())
        else {
            return Ok(());
        };
        let (namespace, name) = split_key(key);
        let owner = Owner {
            api_version: &groups.resource.api_version,
            kind: &groups.resource.kind,
            namespace,
            name,
            uid: group.metadata.uid.as_deref().unwrap_or_default(),
        };
        let mut names: Vec<(String, String)> = Vec::new();
        for entry in groups::entries(&group) {
            let Some(template) = &entry.resource_claim_template_name else {
                continue;
            };
            if let Some(known) = groups::claim_name(&group, entry)
                && let Some(claim) = self.recorded(namespace, known).await?
                && meta::is_controlled_by(&claim.metadata, owner.uid)
            {
                continue;
            }
            match self.generate(&owner, &entry.name, template).await {
                Ok(claim) => names.push((entry.name.clone(), claim)),
                Err(error) if error.is_namespace_terminating() => return Ok(()),
                Err(error) => {
                    let about = ObjectReference {
                        api_version: Some(owner.api_version.to_owned()),
                        kind: Some(owner.kind.to_owned()),
                        namespace: Some(namespace.to_owned()),
                        name: Some(name.to_owned()),
                        uid: group.metadata.uid.clone(),
                        ..ObjectReference::default()
                    };
                    self.events.event(
                        about,
                        Level::Warning,
                        "FailedResourceClaimCreation",
                        format!("PodGroupResourceClaim {}: {error}", entry.name),
                    );
                    return Err(error);
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let statuses = groups::statuses(&group, &names);
        let body = json!({
            "metadata": {"uid": owner.uid, "resourceVersion": group.metadata.resource_version},
            "status": {"resourceClaimStatuses": statuses},
        });
        let api: Api<PodGroup> =
            Api::namespaced_with(self.client.clone(), namespace, &groups.resource);
        match api::patch(&api, name, Part::Status, &body).await {
            Ok(group) => {
                groups.groups.assume(group);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the names of generated claims into the pod's status.
    async fn record(&self, pod: &Pod, names: &[(String, String)]) -> Result<(), Error> {
        let statuses = plan::claim_statuses(pod, names);
        // Names that were written by an attempt whose answer got lost may be in use: only what was seen is replaced.
        let body = json!({
            "metadata": api::unchanged(pod),
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
            if let Some(classic) = &self.classic {
                let claim = new.and_then(|name| classic.find(namespace, name));
                if let Some(claim) = claim.or_else(|| classic.claim_of(pod, pod_claim)) {
                    if classic.preschedule(pod, pod_claim, &claim).await? {
                        continue;
                    }
                    // The rest follows when the claim is allocated.
                    return Ok(());
                }
            }
            let Some(claim) = new
                .or_else(|| plan::claim_name(pod, pod_claim))
                .and_then(|name| self.newer_claim(namespace, name))
            else {
                continue;
            };
            if pod_claim.resource_claim_template_name.is_some()
                && !plan::is_for_pod(&claim, pod)
                && !groups::is_for_group_of(&claim, pod)
            {
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
            reserved.push(match self.group_of(pod, pod_claim) {
                Some(group) => groups::reference(&group),
                None => plan::pod_reference(pod),
            });
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
        early: bool,
    ) -> Result<bool, Error> {
        if groups::is_group(consumer)
            && let Some(groups) = &self.groups
        {
            let cached = groups.groups.find(namespace, &consumer.name);
            let same = |g: &PodGroup| g.metadata.uid.as_deref() == Some(&consumer.uid);
            if cached.is_some_and(|g| same(&g)) {
                return Ok(true);
            }
            let resource = &groups.resource;
            let api: Api<PodGroup> = Api::namespaced_with(self.client.clone(), namespace, resource);
            let live = api.get_opt(&consumer.name).await?;
            return Ok(live.is_some_and(|g| same(&g)));
        }
        if !plan::is_pod(consumer) {
            return Ok(true);
        }
        let cached = self.pods.find(namespace, &consumer.name);
        let gone = self.deleted.lock().uids.contains(&consumer.uid);
        match plan::consumer(consumer, cached.as_deref(), gone) {
            Consumer::Needs => Ok(true),
            // Up to 1.27 pods keep their claims until they are deleted.
            Consumer::Gone if early && !gone => Ok(true),
            Consumer::Gone => Ok(false),
            Consumer::AskServer => {
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
                let live = pods.get_opt(&consumer.name).await?;
                Ok(live.is_some_and(|pod| meta::uid(&pod) == consumer.uid))
            }
        }
    }

    async fn sync_claim(&self, key: &str) -> Result<(), Error> {
        let (namespace, name) = split_key(key);
        if let Some(classic) = &self.classic
            && let Some(claim) = classic.find(namespace, name)
        {
            return self.sync_classic(classic, claim, namespace, name).await;
        }
        let Some(mut claim) = self.newer_claim(namespace, name) else {
            return Ok(());
        };
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut needed = Vec::new();
        for consumer in plan::reserved_for(&claim) {
            if self.is_needed(namespace, consumer, false).await? {
                needed.push(consumer.clone());
            }
        }
        for step in plan::release(&claim, &needed) {
            let (part, body) = step.body();
            let body = with_precondition(body, &*claim);
            match api::patch(&claims, name, part, &body).await {
                Ok(new) => {
                    self.claims.assume(new.clone());
                    claim = Arc::new(new);
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if needed.is_empty() && self.is_left_over(&*claim) {
            api::delete(&claims, name, meta::uid(&*claim), Delete::default()).await?;
        }
        Ok(())
    }

    /// Whether a claim was generated for a pod that is done or was replaced.
    fn is_left_over<K: kube::Resource>(&self, claim: &K) -> bool {
        meta::controller_of(claim.meta()).is_some_and(|owner| {
            let pod = self.pods.find(meta::namespace(claim), &owner.name);
            owner.api_version == "v1"
                && owner.kind == "Pod"
                && !meta::deleting(claim)
                && pod.is_some_and(|p| meta::uid(&*p) != owner.uid || plan::is_done(&p))
        })
    }

    async fn sync_classic(
        &self,
        classic: &Classic,
        mut claim: Arc<classic::Claim>,
        namespace: &str,
        name: &str,
    ) -> Result<(), Error> {
        let early = classic.is_early();
        let claims = classic.api(namespace);
        let mut needed = Vec::new();
        for consumer in &claim.status.reserved_for {
            let reference = ResourceClaimConsumerReference {
                api_group: Some(consumer.api_group.clone()),
                resource: consumer.resource.clone(),
                name: consumer.name.clone(),
                uid: consumer.uid.clone(),
            };
            if self.is_needed(namespace, &reference, early).await? {
                needed.push(consumer.uid.clone());
            }
        }
        for step in classic::release(&claim, &needed, early) {
            let (part, body) = step.body();
            let body = with_precondition(body, &*claim);
            match api::patch(&claims, name, part, &body).await {
                Ok(new) => {
                    classic.claims.assume(new.clone());
                    claim = Arc::new(new);
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if needed.is_empty() && !early && self.is_left_over(&*claim) {
            api::delete(&claims, name, meta::uid(&*claim), Delete::default()).await?;
        }
        Ok(())
    }
}

fn with_precondition<K: kube::Resource>(mut body: Value, claim: &K) -> Value {
    body["metadata"]["uid"] = json!(meta::uid(claim));
    body["metadata"]["resourceVersion"] = json!(claim.meta().resource_version);
    body
}
