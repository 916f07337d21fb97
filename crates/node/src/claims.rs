//! Prepares the claims of pods with their drivers, and unprepares them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use allot_client::KeyMutex;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::error::Error;
use crate::metrics::Metrics;
use crate::plugins::Plugins;
use crate::resource_api::{ResourceApi, Served};

mod cache;
mod call;
mod damaged;
mod devices;
mod driver;
mod error;
mod fetch;
mod names;
mod simulated;
#[cfg(test)]
mod tests;

pub(crate) use cache::fuzz as fuzz_checkpoint;
pub(crate) use cache::{Cache, ClaimInfo, Device, Key};
use call::ClaimToPrepare;
pub(crate) use driver::fuzz as fuzz_driver;
pub(crate) use error::ClaimError;
use fetch::FetchedClaim;
pub(crate) use names::containers;
use names::{PodClaim, claim_names, extended_claim, is_used, pod_claims};

/// The claims on this node.
pub(crate) struct Claims {
    api: Arc<ResourceApi>,
    plugins: Arc<Plugins>,
    cache: Mutex<Cache>,
    /// One operation per claim at a time: a claim that is being unprepared must not be prepared for the next pod at the
    /// same time.
    locks: KeyMutex<Key>,
    metrics: Metrics,
    /// Claims for drivers that never registered are prepared without them.
    simulated: bool,
}

/// Calls by driver and generation of the API.
type Batches = BTreeMap<(String, bool), Vec<ClaimToPrepare>>;

impl Claims {
    pub(crate) fn new(
        api: Arc<ResourceApi>,
        plugins: Arc<Plugins>,
        file: PathBuf,
        simulated: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            api,
            plugins,
            cache: Mutex::new(Cache::open(file)?),
            locks: KeyMutex::default(),
            metrics: Metrics::default(),
            simulated,
        })
    }

    /// The claims of many simulated nodes, which are forgotten with the process.
    pub(crate) fn in_memory(api: Arc<ResourceApi>, plugins: Arc<Plugins>) -> Self {
        Self {
            api,
            plugins,
            cache: Mutex::new(Cache::in_memory()),
            locks: KeyMutex::default(),
            metrics: Metrics::default(),
            simulated: true,
        }
    }

    /// Prepares all claims of the pod.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), ClaimError> {
        let names = claim_names(pod);
        if names.is_empty() {
            return Ok(());
        }
        let namespace = pod.namespace().unwrap_or_default();
        let keys = names.iter().map(|name| (namespace.clone(), name.clone()));
        let _locks = self.locks.lock(keys.collect()).await;
        let served = self
            .api
            .served()
            .await
            .map_err(|error| ClaimError::Discovery(Box::new(error)))?;
        let start = Instant::now();
        let result = self.try_prepare(pod, served).await;
        let (failed, took) = (result.is_err(), start.elapsed());
        self.metrics.operation("PrepareResources", failed, took);
        result.map_err(|error| {
            // Releases word it differently.
            match served.newer {
                Some(_) => ClaimError::Prepare(Box::new(error)),
                None => error,
            }
        })
    }

    async fn try_prepare(&self, pod: &Pod, served: Served) -> Result<(), ClaimError> {
        let namespace = pod.namespace().unwrap_or_default();
        // Everything is checked before anything is stored.
        let mut claims: Vec<(String, FetchedClaim)> = Vec::new();
        for wanted in pod_claims(pod) {
            let claim = self.fetch(pod, &wanted, served).await?;
            let unused = claim.is_classic() && !is_used(pod, &wanted.name);
            if !unused && !claims.iter().any(|(known, _)| *known == wanted.claim) {
                claims.push((wanted.claim, claim));
            }
        }
        if let Some(wanted) = extended_claim(pod) {
            let claim = self.fetch(pod, &wanted, served).await?;
            claims.push((wanted.claim, claim));
        }
        for (_, claim) in &claims {
            for driver in claim
                .drivers
                .iter()
                .filter(|driver| !self.simulates(driver))
            {
                self.plugins
                    .get(driver)
                    .map_err(|error| match claim.is_classic() {
                        true => ClaimError::ClassicPlugin(driver.clone()),
                        false => error.into(),
                    })?;
            }
        }
        let mut batches = Batches::new();
        {
            let mut cache = self.cache.lock();
            for (name, claim) in &claims {
                let info = cache.get_or_insert((namespace.clone(), name.clone()), claim)?;
                info.pods.insert(pod.uid().unwrap_or_default());
                if !info.prepared {
                    info.batch(&mut batches);
                }
            }
            cache.save()?;
        }
        for ((driver, _), wanted) in batches {
            if self.simulates(&driver) {
                self.pretend(&driver, &claims, &wanted);
                continue;
            }
            let plugin = self.plugins.get(&driver)?;
            let answers = call::prepare(&plugin, &wanted, &self.metrics).await?;
            let mut cache = self.cache.lock();
            for (uid, devices) in answers {
                // Replaced and not appended: after a restart drivers are called again.
                if let Some(info) = cache.by_uid(&uid) {
                    info.drivers.insert(driver.clone(), devices);
                }
            }
        }
        let mut cache = self.cache.lock();
        for (name, _) in &claims {
            if let Some(info) = cache.get_mut(&(namespace.clone(), name.clone())) {
                info.prepared = true;
            }
        }
        cache.save()
    }

    /// The claim, if the pod may use it now.
    async fn fetch(
        &self,
        pod: &Pod,
        wanted: &PodClaim,
        served: Served,
    ) -> Result<FetchedClaim, ClaimError> {
        let (pod_name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let (namespace, name) = (pod.namespace().unwrap_or_default(), &wanted.claim);
        let not_created = || ClaimError::NotCreated {
            pod: format!("{namespace}/{pod_name}"),
            entry: wanted.name.clone(),
        };
        if wanted.guessed && served.classic.is_none() {
            return Err(not_created());
        }
        let claim = self.api.claim(&namespace, name).await;
        let claim = claim.map_err(|source| match wanted.guessed {
            true => not_created(),
            false => ClaimError::Fetch {
                claim: name.clone(),
                pod: pod_name.clone(),
                source,
                classic: served.newer.is_none(),
            },
        })?;
        let group = pod.spec.as_ref().and_then(|s| {
            let group = s.scheduling_group.as_ref()?;
            group.pod_group_name.as_deref()
        });
        if wanted.generated && !claim.is_owned_by(&uid, group) {
            return Err(ClaimError::NotOwned {
                namespace,
                claim: name.clone(),
                pod: pod_name,
                classic: claim.is_classic(),
            });
        }
        if !claim.allocated && !claim.is_classic() {
            return Err(ClaimError::NotAllocated(name.clone()));
        }
        if !claim.is_reserved_for(&uid, group) {
            return Err(ClaimError::NotReserved {
                pod: pod_name,
                uid,
                claim: name.clone(),
                claim_uid: claim.uid().to_owned(),
                classic: claim.is_classic(),
            });
        }
        Ok(claim)
    }

    /// Unprepares the claims that only this pod used. Must have succeeded before the pod is reported as terminated.
    pub(crate) async fn unprepare(&self, pod_uid: &str) -> Result<(), ClaimError> {
        let start = Instant::now();
        let result = self.try_unprepare(pod_uid).await;
        if !matches!(result, Ok(false)) {
            let (failed, took) = (result.is_err(), start.elapsed());
            self.metrics.operation("UnprepareResources", failed, took);
        }
        result
            .map(drop)
            .map_err(|error| ClaimError::Unprepare(Box::new(error)))
    }

    /// Returns whether there was a claim to unprepare.
    async fn try_unprepare(&self, pod_uid: &str) -> Result<bool, ClaimError> {
        let keys: Vec<Key> = self.cache.lock().of_pod(pod_uid);
        if keys.is_empty() {
            return Ok(false);
        }
        let _locks = self.locks.lock(keys.iter().cloned().collect()).await;
        let mut batches = Batches::new();
        let mut last = Vec::new();
        {
            let mut cache = self.cache.lock();
            for key in &keys {
                let Some(info) = cache.get_mut(key) else {
                    continue;
                };
                if info.pods.len() > 1 {
                    info.pods.remove(pod_uid);
                    continue;
                }
                info.prepared = false;
                info.batch(&mut batches);
                last.push(key.clone());
            }
        }
        for ((driver, _), wanted) in batches {
            if self.simulates(&driver) {
                continue;
            }
            let plugin = self.plugins.get(&driver)?;
            call::unprepare(&plugin, &wanted, &self.metrics).await?;
        }
        let mut cache = self.cache.lock();
        for key in last {
            cache.remove(&key);
        }
        cache.save()?;
        Ok(true)
    }

    /// What is measured; other parts of the node add to it.
    pub(crate) fn measures(&self) -> &Metrics {
        &self.metrics
    }

    /// The metrics, as served at `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        let cache = self.cache.lock();
        let prepared = cache.iter().filter(|info| info.prepared);
        let drivers = prepared.map(|info| info.drivers.keys().map(String::as_str).collect());
        self.metrics.set_in_use(drivers);
        self.metrics.text()
    }

    /// Pods that are remembered as users of claims.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        self.cache.lock().pods()
    }

    /// Completes when a driver registers, or its plugin connects or is gone, from this call on.
    pub(crate) fn drivers_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.plugins.changed.notified()
    }
}
