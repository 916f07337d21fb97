//! The PodResources service: which devices the containers of this node hold, for monitoring agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_protos::podresources_v1 as v1;
use allot_protos::podresources_v1::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use allot_protos::podresources_v1alpha1 as v1alpha1;
use allot_protos::transport::{Incoming, Services};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tonic::{Request, Response, Status};

use crate::claims::Device;
use crate::error::Error;
use crate::pods::{Node, has_ended};
use crate::rules::is_sidecar;

/// Serves `<root>/pod-resources/kubelet.sock` until dropped.
pub(crate) fn serve(node: Arc<Node>) -> Result<impl Future<Output = ()> + Send, Error> {
    let path = node
        .config
        .root_dir
        .join("pod-resources")
        .join("kubelet.sock");
    let incoming = Incoming::bind(&path).map_err(|source| Error::Io { path, source })?;
    let lister = Lister(node);
    let alpha =
        v1alpha1::pod_resources_lister_server::PodResourcesListerServer::new(lister.clone());
    let services = Services::new()
        .with(PodResourcesListerServer::new(lister))
        .with(alpha);
    Ok(async move {
        if let Err(error) = services.serve(incoming, std::future::pending()).await {
            tracing::error!(%error, "PodResources service");
        }
    })
}

#[derive(Clone)]
struct Lister(Arc<Node>);

impl Lister {
    /// Pods that hold resources: those that have not terminated.
    fn active(&self) -> Vec<Arc<Pod>> {
        let pods = self.0.pods.lock();
        let pods = pods
            .values()
            .map(|entry| Arc::clone(&entry.update.borrow().pod));
        let mut active: Vec<_> = pods.filter(|pod| !has_ended(pod)).collect();
        active.sort_by_key(|pod| (pod.namespace(), pod.name_any()));
        active
    }

    fn resources(&self, pod: &Pod) -> v1::PodResources {
        let spec = pod.spec.clone().unwrap_or_default();
        let sidecars = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|c| is_sidecar(c));
        let container = |name: &str| v1::ContainerResources {
            name: name.to_owned(),
            dynamic_resources: self.dynamic(pod, name),
            ..v1::ContainerResources::default()
        };
        v1::PodResources {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            containers: sidecars
                .chain(&spec.containers)
                .map(|c| container(&c.name))
                .collect(),
            ..v1::PodResources::default()
        }
    }

    /// One entry per claim of the container, with the devices that the container itself may use.
    fn dynamic(&self, pod: &Pod, container: &str) -> Vec<v1::DynamicResource> {
        let claims = match self.0.claims.of_container(pod, container) {
            Ok(claims) => claims,
            // Not prepared yet.
            Err(_) => return Vec::new(),
        };
        let mut found: BTreeMap<(String, String), v1::DynamicResource> = BTreeMap::new();
        for (info, devices) in claims {
            let entry = found
                .entry((info.namespace.clone(), info.name.clone()))
                .or_insert_with(|| v1::DynamicResource {
                    class_name: info.class.clone(),
                    claim_name: info.name.clone(),
                    claim_namespace: info.namespace.clone(),
                    claim_resources: Vec::new(),
                });
            for (driver, known) in &info.drivers {
                let used = known.iter().filter(|device| devices.contains(device));
                for resource in used.map(|device| resource(driver, device)) {
                    if !entry.claim_resources.contains(&resource) {
                        entry.claim_resources.push(resource);
                    }
                }
            }
        }
        found.into_values().collect()
    }
}

fn resource(driver: &str, device: &Device) -> v1::ClaimResource {
    v1::ClaimResource {
        cdi_devices: device
            .cdi_ids
            .iter()
            .map(|name| v1::CdiDevice { name: name.clone() })
            .collect(),
        driver_name: driver.to_owned(),
        pool_name: device.pool.clone(),
        device_name: device.device.clone(),
        share_id: device.share_id.clone(),
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let pod_resources = self
            .active()
            .iter()
            .map(|pod| self.resources(pod))
            .collect();
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources,
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        // Devices of device plugins, CPUs and memory of their managers: this node has none of these.
        Ok(Response::new(v1::AllocatableResourcesResponse::default()))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        let v1::GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        match self.0.find(&pod_namespace, &pod_name) {
            Some((pod, _)) => Ok(Response::new(v1::GetPodResourcesResponse {
                pod_resources: Some(self.resources(&pod)),
            })),
            None => Err(Status::unknown(format!(
                "pod {pod_name} in namespace {pod_namespace} not found"
            ))),
        }
    }
}

#[tonic::async_trait]
impl v1alpha1::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        let pod = |pod: &Arc<Pod>| {
            let resources = self.resources(pod);
            let container = |container: v1::ContainerResources| v1alpha1::ContainerResources {
                name: container.name,
                devices: Vec::new(),
            };
            v1alpha1::PodResources {
                name: resources.name,
                namespace: resources.namespace,
                containers: resources.containers.into_iter().map(container).collect(),
            }
        };
        let pod_resources = self.active().iter().map(pod).collect();
        Ok(Response::new(v1alpha1::ListPodResourcesResponse {
            pod_resources,
        }))
    }
}
