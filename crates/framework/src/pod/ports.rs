//! Ports of the node that a pod takes.

use k8s_openapi::api::core::v1::Pod;

/// A port that a pod takes on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    ip: Box<str>,
    protocol: Box<str>,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be on one node. The wildcard address collides with every address.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (any(&self.ip) || any(&other.ip) || self.ip == other.ip)
    }
}

pub(super) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(|p| {
            let port = p.host_port.filter(|p| *p > 0)?;
            Some(HostPort {
                ip: p
                    .host_ip
                    .as_deref()
                    .filter(|ip| !ip.is_empty())
                    .unwrap_or("0.0.0.0")
                    .into(),
                protocol: p.protocol.as_deref().unwrap_or("TCP").into(),
                port,
            })
        })
        .collect()
}
