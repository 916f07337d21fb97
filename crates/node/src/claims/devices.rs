//! What containers get of prepared claims: their devices, and the health of these.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::names::{PodClaim, extended_requests, pod_claims, references};
use super::{ClaimError, ClaimInfo, Claims, Device};

impl Claims {
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
            let devices = info.drivers.values().flatten();
            let used = devices.filter(|device| is_for(device, &request));
            found.push((info.clone(), used.cloned().collect()));
        }
        if let Some((name, requests)) = extended_requests(pod, container) {
            let info = cache.get(&(namespace.clone(), name.clone()));
            let info = info.ok_or_else(|| not_prepared(&name))?;
            let devices = info.drivers.values().flatten();
            let used = devices.filter(|it| it.requests.iter().any(|it| requests.contains(it)));
            found.push((info.clone(), used.cloned().collect()));
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
                    let used = is_for(device, &request);
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
}

/// Whether a device is for a request of a claim. A container that names none uses all devices of the claim, and a device of a driver
/// that names none is for all of them.
fn is_for(device: &Device, request: &str) -> bool {
    let requests = &device.requests;
    request.is_empty() || requests.is_empty() || requests.iter().any(|it| it == request)
}
