//! Prepares the claims of pods with their drivers, and gives them back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::{dra_v1, dra_v1beta1};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tonic::{Code, Status};

use crate::error::Error;
use crate::plugins::{Plugin, Plugins, Service};

mod cache;
#[cfg(test)]
mod tests;

pub(crate) use cache::{Cache, ClaimInfo, Device, Key};

/// A driver gets this long for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// The claims on this node.
pub(crate) struct Claims {
    client: Client,
    plugins: Arc<Plugins>,
    cache: Mutex<Cache>,
    /// One operation per claim at a time: a claim that is being given back must not be prepared for the next pod
    /// in the middle of it.
    locks: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

/// A claim as drivers are told.
type Wanted = (String, String, String);

impl Claims {
    pub(crate) fn new(client: Client, plugins: Arc<Plugins>, file: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            client,
            plugins,
            cache: Mutex::new(Cache::open(file)?),
            locks: Mutex::default(),
        })
    }

    /// Makes all claims of the pod usable. The text of an error is for the pod's events.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), String> {
        self.try_prepare(pod)
            .await
            .map_err(|error| format!("prepare dynamic resources: {error}"))
    }

    async fn try_prepare(&self, pod: &Pod) -> Result<(), String> {
        let names = claim_names(pod)?;
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
        // Everything is checked before anything is remembered.
        let mut claims = Vec::new();
        for (pod_claim, name) in pod_claims(pod)? {
            let Some(name) = name else { continue };
            let claim = self.fetch(pod, &pod_claim, &name).await?;
            if !claims.iter().any(|(known, _): &(String, _)| *known == name) {
                claims.push((name, claim));
            }
        }
        if let Some(name) = extended_claim(pod) {
            claims.push((name.clone(), self.fetch(pod, "", &name).await?));
        }
        for (_, claim) in &claims {
            for driver in drivers(claim) {
                self.plugins.get(&driver)?;
            }
        }
        let mut batches: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
        {
            let mut cache = self.cache.lock();
            for (name, claim) in &claims {
                let uid = claim.uid().unwrap_or_default();
                let info =
                    cache.get_or_insert((namespace.clone(), name.clone()), &uid, drivers(claim))?;
                info.pods.insert(pod.uid().unwrap_or_default());
                if info.prepared {
                    continue;
                }
                for driver in drivers(claim) {
                    batches.entry(driver).or_default().push((
                        namespace.clone(),
                        uid.clone(),
                        name.clone(),
                    ));
                }
            }
            cache.save()?;
        }
        for (driver, wanted) in batches {
            let plugin = self.plugins.get(&driver)?;
            let answers = call_prepare(&plugin, &wanted).await?;
            let mut cache = self.cache.lock();
            for (uid, devices) in answers {
                // Replaced and not appended: a driver is asked again after a restart.
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

    async fn fetch(&self, pod: &Pod, pod_claim: &str, name: &str) -> Result<ResourceClaim, String> {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        let claim = api
            .get(name)
            .await
            .map_err(|error| format!("fetch ResourceClaim {name}: {}", text(&error)))?;
        let uid = pod.uid().unwrap_or_default();
        let templated = pod
            .spec
            .iter()
            .flat_map(|spec| spec.resource_claims.iter().flatten())
            .any(|reference| {
                reference.name == pod_claim && reference.resource_claim_template_name.is_some()
            });
        let owned = claim
            .owner_references()
            .iter()
            .any(|owner| owner.controller == Some(true) && owner.uid == uid);
        if templated && !owned {
            return Err(format!(
                "ResourceClaim {name} was not created for pod {} (pod is not owner)",
                pod.name_any()
            ));
        }
        let status = claim.status.as_ref();
        if status
            .and_then(|status| status.allocation.as_ref())
            .is_none()
        {
            return Err(format!("ResourceClaim {name}: not allocated"));
        }
        let reserved = status
            .and_then(|status| status.reserved_for.as_deref())
            .unwrap_or_default();
        if !reserved.iter().any(|consumer| consumer.uid == uid) {
            return Err(format!(
                "pod {} ({uid}) is not allowed to use ResourceClaim {name} ({})",
                pod.name_any(),
                claim.uid().unwrap_or_default()
            ));
        }
        Ok(claim)
    }

    /// Gives back what only this pod used. Must have succeeded before the pod is reported as ended.
    pub(crate) async fn unprepare(&self, pod_uid: &str) -> Result<(), String> {
        self.try_unprepare(pod_uid)
            .await
            .map_err(|error| format!("unprepare dynamic resources: {error}"))
    }

    async fn try_unprepare(&self, pod_uid: &str) -> Result<(), String> {
        let keys: Vec<Key> = self.cache.lock().of_pod(pod_uid);
        if keys.is_empty() {
            return Ok(());
        }
        let _locks = self.lock(keys.iter().cloned().collect()).await;
        let mut batches: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
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
                for driver in info.drivers.keys() {
                    let wanted = (key.0.clone(), info.uid.clone(), key.1.clone());
                    batches.entry(driver.clone()).or_default().push(wanted);
                }
                last.push(key.clone());
            }
        }
        for (driver, wanted) in batches {
            call_unprepare(&*self.plugins.get(&driver)?, &wanted).await?;
        }
        let mut cache = self.cache.lock();
        for key in last {
            cache.remove(&key);
        }
        cache.save()
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
    ) -> Result<Vec<(ClaimInfo, Vec<Device>)>, String> {
        let namespace = pod.namespace().unwrap_or_default();
        let names: BTreeMap<String, Option<String>> = pod_claims(pod)?.into_iter().collect();
        let cache = self.cache.lock();
        let mut found = Vec::new();
        for (reference, request) in references(pod, container) {
            let Some(name) = names.get(&reference).cloned().flatten() else {
                continue;
            };
            let info = cache.get(&(namespace.clone(), name.clone())).ok_or_else(|| {
                format!("internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}")
            })?;
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
            let info = cache.get(&(namespace.clone(), name.clone())).ok_or_else(|| {
                format!("internal error: unable to get claim info for ResourceClaim {name} in namespace {namespace}")
            })?;
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
    pub(crate) fn cdi_devices(&self, pod: &Pod, container: &str) -> Result<Vec<String>, String> {
        let mut ids: Vec<String> = Vec::new();
        for (_, devices) in self.of_container(pod, container)? {
            for id in devices.into_iter().flat_map(|device| device.cdi_ids) {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    async fn lock(&self, keys: BTreeSet<Key>) -> Vec<tokio::sync::OwnedMutexGuard<()>> {
        // In order, so that two pods never wait for each other.
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

/// The message of an API error without the wrapping.
pub(crate) fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Name in the pod and name of the object; `None` when the pod was decided not to need the claim.
fn pod_claims(pod: &Pod) -> Result<Vec<(String, Option<String>)>, String> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_deref());
    let statuses = statuses.unwrap_or_default();
    let claims = pod
        .spec
        .iter()
        .flat_map(|spec| spec.resource_claims.iter().flatten());
    claims
        .map(|claim| {
            if let Some(name) = &claim.resource_claim_name {
                return Ok((claim.name.clone(), Some(name.clone())));
            }
            match statuses.iter().find(|status| status.name == claim.name) {
                Some(status) => Ok((claim.name.clone(), status.resource_claim_name.clone())),
                None => Err(format!(
                    "pod \"{}/{}\": ResourceClaim for pod claim {} not created yet",
                    pod.namespace().unwrap_or_default(),
                    pod.name_any(),
                    claim.name
                )),
            }
        })
        .collect()
}

fn extended_claim(pod: &Pod) -> Option<String> {
    let status = pod
        .status
        .as_ref()?
        .extended_resource_claim_status
        .as_ref()?;
    Some(status.resource_claim_name.clone())
}

fn claim_names(pod: &Pod) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = pod_claims(pod)?
        .into_iter()
        .filter_map(|(_, name)| name)
        .collect();
    names.extend(extended_claim(pod));
    Ok(names)
}

/// Pod claim and request of every entry in the container's `resources.claims`.
fn references(pod: &Pod, container: &str) -> Vec<(String, String)> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let Some(container) = all.into_iter().find(|other| other.name == container) else {
        return Vec::new();
    };
    let claims = container
        .resources
        .iter()
        .flat_map(|resources| resources.claims.iter().flatten());
    claims
        .map(|claim| {
            (
                claim.name.clone(),
                claim.request.clone().unwrap_or_default(),
            )
        })
        .collect()
}

/// Requests of the claim for extended resources that belong to this container.
fn extended_requests(pod: &Pod, container: &str) -> Option<(String, Vec<String>)> {
    let status = pod
        .status
        .as_ref()?
        .extended_resource_claim_status
        .as_ref()?;
    let mappings = status
        .request_mappings
        .iter()
        .filter(|mapping| mapping.container_name == container);
    let requests: Vec<String> = mappings
        .map(|mapping| mapping.request_name.clone())
        .collect();
    (!requests.is_empty()).then(|| (status.resource_claim_name.clone(), requests))
}

/// Drivers of an allocation, in the order of the results.
fn drivers(claim: &ResourceClaim) -> Vec<String> {
    let allocation = claim
        .status
        .as_ref()
        .and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_deref());
    let mut drivers: Vec<String> = Vec::new();
    for result in results.unwrap_or_default() {
        if !drivers.contains(&result.driver) {
            drivers.push(result.driver.clone());
        }
    }
    drivers
}

async fn timed<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, String> {
    let result = tokio::time::timeout(CALL_TIMEOUT, call).await;
    let result = result.unwrap_or_else(|_| {
        Err(Status::new(
            Code::DeadlineExceeded,
            "context deadline exceeded",
        ))
    });
    // In the form in which Go prints an RPC error.
    result.map(tonic::Response::into_inner).map_err(|status| {
        format!(
            "rpc error: code = {:?} desc = {}",
            status.code(),
            status.message()
        )
    })
}

/// Sends the claims to the plugin in its version of the service; the answer is always in the newest form.
async fn call_prepare(
    plugin: &Plugin,
    wanted: &[Wanted],
) -> Result<Vec<(String, Vec<Device>)>, String> {
    let channel = plugin.channel.clone();
    let answers: HashMap<String, dra_v1::NodePrepareResourceResponse> = match plugin.service {
        Service::V1 => {
            let claims = wanted
                .iter()
                .cloned()
                .map(|(namespace, uid, name)| dra_v1::Claim {
                    namespace,
                    uid,
                    name,
                });
            let request = dra_v1::NodePrepareResourcesRequest {
                claims: claims.collect(),
            };
            let mut client = dra_v1::dra_plugin_client::DraPluginClient::new(channel);
            timed(client.node_prepare_resources(request))
                .await
                .map(|answer| answer.claims)
        }
        Service::V1beta1 => {
            let claims = wanted
                .iter()
                .cloned()
                .map(|(namespace, uid, name)| dra_v1beta1::Claim {
                    namespace,
                    uid,
                    name,
                });
            let request = dra_v1beta1::NodePrepareResourcesRequest {
                claims: claims.collect(),
            };
            let mut client = dra_v1beta1::dra_plugin_client::DraPluginClient::new(channel);
            timed(client.node_prepare_resources(request))
                .await
                .map(|answer| {
                    let device = |device: dra_v1beta1::Device| dra_v1::Device {
                        request_names: device.request_names,
                        pool_name: device.pool_name,
                        device_name: device.device_name,
                        cdi_device_ids: device.cdi_device_ids,
                        share_id: None,
                    };
                    let entry =
                        |(uid, answer): (String, dra_v1beta1::NodePrepareResourceResponse)| {
                            let devices = answer.devices.into_iter().map(device).collect();
                            (
                                uid,
                                dra_v1::NodePrepareResourceResponse {
                                    devices,
                                    error: answer.error,
                                },
                            )
                        };
                    answer.claims.into_iter().map(entry).collect()
                })
        }
    }
    .map_err(|error| format!("NodePrepareResources: {error}"))?;
    let results = answers
        .into_iter()
        .map(|(uid, answer)| (uid, answer.error, answer.devices))
        .collect();
    let results = check_answers("NodePrepareResources", wanted, results)?;
    Ok(results
        .into_iter()
        .map(|(uid, devices)| (uid, devices.into_iter().map(Device::from).collect()))
        .collect())
}

async fn call_unprepare(plugin: &Plugin, wanted: &[Wanted]) -> Result<(), String> {
    let channel = plugin.channel.clone();
    let answers: Vec<(String, String, ())> = match plugin.service {
        Service::V1 => {
            let claims = wanted
                .iter()
                .cloned()
                .map(|(namespace, uid, name)| dra_v1::Claim {
                    namespace,
                    uid,
                    name,
                });
            let request = dra_v1::NodeUnprepareResourcesRequest {
                claims: claims.collect(),
            };
            let mut client = dra_v1::dra_plugin_client::DraPluginClient::new(channel);
            let answer = timed(client.node_unprepare_resources(request)).await;
            answer.map(|answer| {
                answer
                    .claims
                    .into_iter()
                    .map(|(uid, answer)| (uid, answer.error, ()))
                    .collect()
            })
        }
        Service::V1beta1 => {
            let claims = wanted
                .iter()
                .cloned()
                .map(|(namespace, uid, name)| dra_v1beta1::Claim {
                    namespace,
                    uid,
                    name,
                });
            let request = dra_v1beta1::NodeUnprepareResourcesRequest {
                claims: claims.collect(),
            };
            let mut client = dra_v1beta1::dra_plugin_client::DraPluginClient::new(channel);
            let answer = timed(client.node_unprepare_resources(request)).await;
            answer.map(|answer| {
                answer
                    .claims
                    .into_iter()
                    .map(|(uid, answer)| (uid, answer.error, ()))
                    .collect()
            })
        }
    }
    .map_err(|error| format!("NodeUnprepareResources: {error}"))?;
    check_answers("NodeUnprepareResources", wanted, answers).map(drop)
}

/// Exactly the claims that were asked for have to be answered, without errors.
fn check_answers<T>(
    call: &str,
    wanted: &[Wanted],
    answers: Vec<(String, String, T)>,
) -> Result<Vec<(String, T)>, String> {
    let mut results = Vec::new();
    for (uid, error, value) in answers {
        let Some((_, _, name)) = wanted.iter().find(|(_, known, _)| *known == uid) else {
            return Err(format!(
                "{call} returned result for unknown claim UID {uid}"
            ));
        };
        if !error.is_empty() {
            return Err(format!("{call} failed for ResourceClaim {name}: {error}"));
        }
        results.push((uid, value));
    }
    match wanted.len() - results.len() {
        0 => Ok(results),
        skipped => Err(format!("{call} skipped {skipped} ResourceClaims")),
    }
}
