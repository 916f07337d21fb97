//! NRI plugins in the life of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{Node, launch, limits, network};
use crate::nri::{self, Facts, Nri, PluginSyncBlock};
use crate::spec::ContainerSpec;

/// What plugins are notified of a pod.
pub(super) fn sandbox(node: &Node, pod: &Pod) -> allot_protos::nri::PodSandbox {
    let uid = pod.uid().unwrap_or_default();
    let own = node.has_own_network(pod);
    let facts = Facts {
        addresses: if own { node.addresses(pod) } else { Vec::new() },
        network: network::of(&node.pod_dir(&uid)),
        limits: limits::of_pod(pod, node.config.pod_pids_limit),
    };
    nri::sandbox(pod, facts)
}

/// Has plugins that join wait until a container has been started or changed.
pub(super) async fn block_plugin_sync(nri: Option<&Arc<Nri>>) -> Option<PluginSyncBlock> {
    match nri {
        Some(nri) => Some(nri.block_plugin_sync().await),
        None => None,
    }
}

/// Lets plugins adjust a container that is going to be started, and tells them that it is.
///
/// # Errors
/// Why it is not to be started.
pub(super) async fn container(node: &Node, spec: &mut ContainerSpec) -> Result<(), String> {
    let Some(nri) = &node.nri else {
        return Ok(());
    };
    let wanted = nri.create(spec).await?;
    let devices = wanted.cdi_devices();
    if !devices.is_empty() {
        let added = launch::add_devices(node, spec, &devices);
        added.map_err(|reason| reason.message)?;
    }
    nri.apply(&wanted, spec)?;
    nri.starting(&spec.id).await
}
