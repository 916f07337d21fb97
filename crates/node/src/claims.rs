//! Prepares the claims of pods with their drivers, and unprepares them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::error::Error;
use crate::metrics::Metrics;
use crate::plugins::Plugins;
use crate::resource_api::{ResourceApi, Served};

mod cache;
mod call;
mod damaged;
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
use names::{
    PodClaim, claim_names, extended_claim, extended_requests, is_used, pod_claims, references,
};

/// The claims on this node.
pub(crate) struct Claims {
    api: Arc<ResourceApi>,
    plugins: Arc<Plugins>,
    cache: Mutex<Cache>,
    /// One operation per claim at a time: a claim that is being unprepared must not be prepared for the next pod at the
    /// same time.
    locks: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
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
            locks: Mutex::default(),
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
            locks: Mutex::default(),
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
        let _locks = self
            .lock(
                names
                    .iter()
                    .map(|name| (namespace.clone(), name.clone()))
                    .collect(),
            )
            .await;
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
        if let Some(name) = extended_claim(pod) {
            let wanted = PodClaim {
                name: String::new(),
                claim: name.clone(),
                generated: false,
                guessed: false,
            };
            claims.push((name, self.fetch(pod, &wanted, served).await?));
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
        let _locks = self.lock(keys.iter().cloned().collect()).await;
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

    /// The claims that a container uses, each with its devices by driver.
    pub(crate) fn of_container(
        &self,
        pod: &Pod,
        container: &str,
    ) -> Result<Vec<(ClaimInfo, Vec<Device>)>, ClaimError> {
        let namespace = pod.namespace().unwrap_or_default();
        let claims = pod_claims(pod);
        let cache = self.cache.lock();
        let not_prepared = |claim: &str| ClaimError::NotPrepared {
            namespace: namespace.clone(),
            claim: claim.to_owned(),
        };
        let mut found = Vec::new();
        for (reference, request) in references(pod, container) {
            let Some(PodClaim { claim: name, .. }) =
                claims.iter().find(|claim| claim.name == reference)
            else {
                continue;
            };
            let info = cache.get(&(namespace.clone(), name.clone()));
            let info = info.ok_or_else(|| not_prepared(name))?;
            let used = |device: &&Device| {
                request.is_empty()
                    || device.requests.is_empty()
                    || device.requests.contains(&request)
            };
            let devices = info
                .drivers
                .values()
                .flatten()
                .filter(used)
                .cloned()
                .collect();
            found.push((info.clone(), devices));
        }
        if let Some((name, requests)) = extended_requests(pod, container) {
            let info = cache.get(&(namespace.clone(), name.clone()));
            let info = info.ok_or_else(|| not_prepared(&name))?;
            let used = |device: &&Device| {
                device
                    .requests
                    .iter()
                    .any(|request| requests.contains(request))
            };
            let devices = info
                .drivers
                .values()
                .flatten()
                .filter(used)
                .cloned()
                .collect();
            found.push((info.clone(), devices));
        }
        Ok(found)
    }

    /// CDI names of the devices of a container, each once.
    pub(crate) fn cdi_devices(
        &self,
        pod: &Pod,
        container: &str,
    ) -> Result<Vec<String>, ClaimError> {
        let (mut ids, mut seen) = (Vec::new(), HashSet::new());
        for (_, devices) in self.of_container(pod, container)? {
            let all = devices.into_iter().flat_map(|device| device.cdi_ids);
            ids.extend(all.filter(|id| seen.insert(id.clone())));
        }
        Ok(ids)
    }

    /// Completes when a driver registers, or its plugin connects or is gone, from this call on.
    pub(crate) fn drivers_changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.plugins.changed.notified()
    }

    /// Notifies about changed health of devices.
    pub(crate) fn health_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.plugins.health.subscribe()
    }

    /// `allocatedResourcesStatus` of a container: the health of the devices of its claims, each once. Claims for extended
    /// resources are not reported.
    pub(crate) fn health(&self, pod: &Pod, container: &str) -> Vec<Value> {
        let namespace = pod.namespace().unwrap_or_default();
        let claims = pod_claims(pod);
        let now = tokio::time::Instant::now();
        let cache = self.cache.lock();
        let mut all: Vec<Value> = Vec::new();
        for (reference, request) in references(pod, container) {
            let claim = claims.iter().find(|claim| claim.name == reference);
            let info = claim.and_then(|claim| cache.get(&(namespace.clone(), claim.claim.clone())));
            // Plugins of classic claims have no such service.
            let Some(info) = info.filter(|info| info.handles.is_empty()) else {
                continue;
            };
            let mut resources: Vec<Value> = Vec::new();
            for (driver, devices) in &info.drivers {
                for device in devices {
                    let used = request.is_empty()
                        || device.requests.is_empty()
                        || device.requests.contains(&request);
                    let Device {
                        pool, device: name, ..
                    } = device;
                    let id = match device.cdi_ids.first() {
                        Some(id) => id.clone(),
                        None => format!("{driver}/{pool}/{name}"),
                    };
                    if !used || resources.iter().any(|known| known["resourceID"] == id) {
                        continue;
                    }
                    let (health, message) = self.health_of(driver, pool, name, now);
                    let mut resource = json!({"resourceID": id, "health": health});
                    if !message.is_empty() {
                        resource["message"] = message.into();
                    }
                    resources.push(resource);
                }
            }
            let name = match request.as_str() {
                "" => format!("claim:{reference}"),
                request => format!("claim:{reference}/{request}"),
            };
            if !resources.is_empty() && all.iter().all(|known| known["name"] != name) {
                all.push(json!({"name": name, "resources": resources}));
            }
        }
        all
    }

    async fn lock(&self, keys: BTreeSet<Key>) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        // In order, so that two pods cannot deadlock.
        let mut guards = Vec::new();
        for key in keys {
            let lock = Arc::clone(self.locks.lock().entry(key).or_default());
            guards.push(lock.lock_owned().await);
        }
        let mut locks = self.locks.lock();
        if locks.len() > 1024 {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        drop(locks);
        guards
    }
}
