//! Work for one claim: immediate allocation, and deallocation.

use std::sync::Arc;

use allot_client::{KeyMutex, api_message};
use allot_model::classic::exchange;
use allot_model::classic::objects::ParametersReference;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::api::ClassicApi;
use super::cache::{Cache, Name, name_of};
use super::events::Recorder;
use super::objects::{Claim, Class};
use super::{Allocation, Driver, Wanted, describe};

/// The next action for a key after it was handled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing until the next change.
    Done,
    /// It may be ours some day: again after a growing while.
    Again,
    /// Again at regular times.
    Later,
}

/// A failure after which the work is retried.
#[derive(Debug, Default)]
pub(super) struct SyncError {
    pub(super) message: String,
    /// Another client wrote first, or the object was deleted: no event.
    pub(super) quiet: bool,
    /// Objects that the event is about, besides the one that was worked on.
    pub(super) about: Vec<(ApiResource, Arc<DynamicObject>)>,
}

impl SyncError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    pub(super) fn of(what: &str, error: &kube::Error) -> Self {
        let code = match error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        Self {
            message: format!("{what}: {}", api_message(error)),
            quiet: code == 404 || code == 409,
            about: Vec::new(),
        }
    }

    /// Combines several errors into one, which is quiet only if all are.
    pub(super) fn join(errors: Vec<Self>) -> Result<(), Self> {
        if errors.is_empty() {
            return Ok(());
        }
        let messages: Vec<_> = errors.iter().map(|one| one.message.as_str()).collect();
        Err(Self {
            message: messages.join("\n"),
            quiet: errors.iter().all(|one| one.quiet),
            about: errors.into_iter().flat_map(|one| one.about).collect(),
        })
    }
}

/// The pod for which a claim is allocated.
pub(super) struct Consumer {
    pub(super) name: String,
    pub(super) uid: String,
}

/// Everything that the workers of a controller share.
pub(super) struct Core<D> {
    pub(super) driver: D,
    pub(super) name: String,
    pub(super) finalizer: String,
    pub(super) api: ClassicApi,
    pub(super) classes: Arc<Cache>,
    pub(super) claims: Arc<Cache>,
    pub(super) negotiations: Arc<Cache>,
    pub(super) events: Recorder,
    pub(super) set_reserved_for: bool,
    /// By UID of the claim: one worker at a time changes a claim.
    pub(super) locks: KeyMutex<String>,
}

impl<D: Driver> Core<D> {
    /// The newest known claim, unless it has the current form.
    pub(super) fn known_claim(&self, name: &Name) -> Option<Claim> {
        self.claims
            .get(name)
            .filter(|object| is_classic(object))
            .map(Claim)
    }

    /// The class of a claim, if this driver allocates for it.
    pub(super) fn class(&self, claim: &Claim) -> Result<Option<Class>, SyncError> {
        let name = claim.class_name();
        let found = self.classes.get(&(String::new(), name.to_owned()));
        let class = Class(found.ok_or_else(|| {
            SyncError::new(format!("resourceclass.resource.k8s.io {name:?} not found"))
        })?);
        let ours = class.driver_name() == self.name && !class.is_structured();
        Ok(ours.then_some(class))
    }

    /// Allocates or deallocates the claim if that is due.
    pub(super) async fn sync_claim(&self, name: &Name) -> Result<Outcome, SyncError> {
        let Some(claim) = self.known_claim(name) else {
            return Ok(Outcome::Done);
        };
        if is_to_be_given_back(&claim) {
            return self.give_back(claim).await;
        }
        let in_use = claim.is_allocated() || claim.reserved_for().next().is_some();
        if in_use || !claim.is_immediate() || claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        let Some(class) = self.class(&claim)? else {
            // The class may be replaced by one that names this driver.
            return Ok(Outcome::Again);
        };
        let wanted = self.wanted(claim, class, "").await?;
        self.allocate(vec![wanted], None, None).await?;
        Ok(Outcome::Done)
    }

    async fn give_back(&self, claim: Claim) -> Result<Outcome, SyncError> {
        if !claim.has_finalizer(&self.finalizer) {
            return Ok(Outcome::Done);
        }
        let _guard = self.locks.lock([claim.uid().to_owned()].into()).await;
        let claim = match self.known_claim(&name_of(&claim.0)) {
            Some(now) if now.uid() == claim.uid() && is_to_be_given_back(&now) => now,
            _ => return Ok(Outcome::Done),
        };
        // Also without an allocation: the driver may have begun one.
        let given = self.driver.deallocate(&claim).await;
        given.map_err(|error| SyncError::new(format!("deallocate: {error}")))?;
        let mut claim = claim;
        if claim.is_allocated() || claim.deallocation_requested() {
            let mut object = DynamicObject::clone(&claim.0);
            if let Some(status) = object.data["status"].as_object_mut() {
                for field in ["allocation", "driverName", "deallocationRequested"] {
                    status.remove(field);
                }
            }
            let stored = self.api.update_claim_status(&object).await;
            claim = stored.map_err(|error| SyncError::of("remove allocation", &error))?;
            self.claims.wrote(Arc::clone(&claim.0));
        }
        let mut object = DynamicObject::clone(&claim.0);
        if let Some(finalizers) = &mut object.metadata.finalizers {
            finalizers.retain(|finalizer| *finalizer != self.finalizer);
        }
        let stored = self.api.update_claim(&object).await;
        let claim = stored.map_err(|error| SyncError::of("remove finalizer", &error))?;
        self.claims.wrote(claim.0);
        Ok(Outcome::Done)
    }

    /// A claim with its parameters, ready for the driver.
    pub(super) async fn wanted(
        &self,
        claim: Claim,
        class: Class,
        pod_claim: &str,
    ) -> Result<Wanted<D>, SyncError> {
        let text = |what: &str, reference: Option<ParametersReference>, error: crate::Failure| {
            let reference = reference.map(|reference| format!(" {}", describe(&reference)));
            format!("{what}{}: {error}", reference.unwrap_or_default())
        };
        let kinds = self.api.version;
        let class_parameters = self.driver.class_parameters(&class).await;
        let class_parameters = class_parameters.map_err(|error| SyncError {
            about: vec![(kinds.classes(), Arc::clone(&class.0))],
            ..SyncError::new(text("class parameters", class.parameters(), error))
        })?;
        let claim_parameters = self
            .driver
            .claim_parameters(&claim, &class, &class_parameters)
            .await;
        let claim_parameters = claim_parameters.map_err(|error| SyncError {
            about: vec![(kinds.claims(), Arc::clone(&claim.0))],
            ..SyncError::new(text("claim parameters", claim.parameters(), error))
        })?;
        Ok(Wanted::<D> {
            pod_claim: pod_claim.to_owned(),
            claim,
            class,
            class_parameters,
            claim_parameters,
        })
    }

    /// Allocates claims together: first the finalizer, then the driver, then everything else in one write.
    pub(super) async fn allocate(
        &self,
        wanted: Vec<Wanted<D>>,
        node: Option<&str>,
        consumer: Option<&Consumer>,
    ) -> Result<(), SyncError> {
        let uids = wanted.iter().map(|one| one.claim.uid().to_owned());
        let _guards = self.locks.lock(uids.collect()).await;
        let mut errors = Vec::new();
        let mut ready = Vec::new();
        for mut one in wanted {
            // Another pod with the same claim may have been faster, or the claim may be deleted.
            match self.current(&one.claim).await {
                Ok(Some(now)) if !now.is_allocated() && !now.is_deleting() => one.claim = now,
                Ok(_) => continue,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            }
            match self.add_finalizer(one.claim.clone()).await {
                Ok(claim) => {
                    one.claim = claim;
                    ready.push(one);
                }
                Err(error) => errors.push(error),
            }
        }
        if !ready.is_empty() {
            let mut results = self.driver.allocate(&ready, node).await.into_iter();
            for one in &ready {
                let missing = || Err("missing allocation from driver".into());
                let stored = match results.next().unwrap_or_else(missing) {
                    Ok(allocation) => self.store(&one.claim, &allocation, consumer).await,
                    Err(error) => Err(SyncError::new(format!("allocating claim: {error}"))),
                };
                errors.extend(stored.err());
            }
        }
        SyncError::join(errors)
    }

    /// The current claim, unless it was deleted. The cache may no longer contain it, or not yet.
    async fn current(&self, claim: &Claim) -> Result<Option<Claim>, SyncError> {
        let found = match self.known_claim(&name_of(&claim.0)) {
            Some(claim) => Some(claim),
            None => {
                let found = self.api.claim(claim.namespace(), claim.name()).await;
                found.map_err(|error| SyncError::of("get claim", &error))?
            }
        };
        Ok(found.filter(|now| now.uid() == claim.uid()))
    }

    async fn add_finalizer(&self, claim: Claim) -> Result<Claim, SyncError> {
        if claim.has_finalizer(&self.finalizer) {
            return Ok(claim);
        }
        let mut object = DynamicObject::clone(&claim.0);
        let finalizers = object.metadata.finalizers.get_or_insert_default();
        finalizers.push(self.finalizer.clone());
        let stored = self.api.update_claim(&object).await;
        let stored = stored.map_err(|error| SyncError::of("add finalizer", &error))?;
        self.claims.wrote(Arc::clone(&stored.0));
        Ok(stored)
    }

    async fn store(
        &self,
        claim: &Claim,
        allocation: &Allocation,
        consumer: Option<&Consumer>,
    ) -> Result<(), SyncError> {
        let single = self.api.version == super::ClassicVersion::V1alpha1;
        let wire = allocation.to_wire(&self.name, single);
        let wire = wire.map_err(|text| SyncError::new(format!("allocating claim: {text}")))?;
        let mut object = DynamicObject::clone(&claim.0);
        let status = &mut object.data["status"];
        status["driverName"] = json!(self.name);
        status["allocation"] = wire;
        if let Some(Consumer { name, uid }) = consumer.filter(|_| self.set_reserved_for) {
            let reservation = json!({"resource": "pods", "name": name, "uid": uid});
            match &mut status["reservedFor"] {
                Value::Array(list) => list.push(reservation),
                none => *none = json!([reservation]),
            }
        }
        let stored = self.api.update_claim_status(&object).await;
        let stored = stored.map_err(|error| SyncError::of("allocate claim", &error))?;
        self.claims.wrote(stored.0);
        Ok(())
    }
}

/// It is unused, and deleted or marked for deallocation.
fn is_to_be_given_back(claim: &Claim) -> bool {
    claim.reserved_for().next().is_none() && (claim.is_deleting() || claim.deallocation_requested())
}

/// Current claims are also served in the classic form if both are served.
pub(super) fn is_classic(object: &DynamicObject) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    !annotations.is_some_and(|annotations| annotations.contains_key(exchange::NEWER))
}
