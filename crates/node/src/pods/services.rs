//! The environment variables of services: `NAME_SERVICE_HOST`, `NAME_SERVICE_PORT`, and those of old Docker links, as a
//! kubelet writes them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use allot_reflector::Collection;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use kube::{Api, Client, ResourceExt};

use super::watched::{Objects, Watched};

/// How long the start of a container waits for the first list of services before it is tried again.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// The service of the API server itself, which every pod gets variables for.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// The services of the cluster, watched from the first container on.
pub(crate) struct Services {
    api_server: Option<SocketAddr>,
    watched: Watched<Service>,
}

/// The API server has not listed the services yet; the text is the kubelet's.
#[derive(Debug, thiserror::Error)]
#[error("services have not yet been read at least once, cannot construct envvars")]
pub(super) struct NotListed;

impl Services {
    /// With `api_server` in place of the cluster IP of the API server's service.
    pub(crate) fn new(client: Client, api_server: Option<SocketAddr>) -> Self {
        let all = Collection::new(Api::<Service>::all(client), None);
        Self {
            api_server,
            watched: Watched::new(all),
        }
    }

    /// The variables for the containers of a pod. A pod that needs no API server does not wait for the list: it gets those
    /// of the services that are known already.
    pub(super) async fn environment(
        &self,
        pod: &Pod,
        waits: bool,
    ) -> Result<Vec<(String, String)>, NotListed> {
        let patience = if waits { FIRST_LIST } else { Duration::ZERO };
        let services = match self.watched.listed(patience).await {
            Some(services) => services,
            None if waits => return Err(NotListed),
            None => Objects::new(),
        };
        let spec = pod.spec.as_ref();
        let links = spec.and_then(|spec| spec.enable_service_links) != Some(false);
        let namespace = pod.namespace().unwrap_or_default();
        let mut told: BTreeMap<String, ServiceSpec> = BTreeMap::new();
        for ((of, name), service) in services {
            let Some(mut spec) = service.spec.clone().filter(has_address) else {
                continue;
            };
            if (&*of, &*name) == MASTER {
                if let Some(address) = self.api_server {
                    reach_at(&mut spec, address);
                }
                told.entry(name).or_insert(spec);
            } else if of == namespace && links {
                told.insert(name, spec);
            }
        }
        let all = told.iter().flat_map(|(name, spec)| variables(name, spec));
        Ok(all.collect())
    }
}

/// Headless services have no variables.
fn has_address(spec: &ServiceSpec) -> bool {
    let ip = spec.cluster_ip.as_deref();
    ip.is_some_and(|ip| !ip.is_empty() && ip != "None")
}

fn reach_at(spec: &mut ServiceSpec, address: SocketAddr) {
    spec.cluster_ip = Some(address.ip().to_string());
    if let Some(port) = spec.ports.iter_mut().flatten().next() {
        port.port = address.port().into();
    }
}

fn variables(name: &str, spec: &ServiceSpec) -> Vec<(String, String)> {
    let upper = |name: &str| name.to_uppercase().replace('-', "_");
    let prefix = upper(name);
    let host = spec.cluster_ip.clone().unwrap_or_default();
    let ports: Vec<&ServicePort> = spec.ports.iter().flatten().collect();
    let mut all = vec![(format!("{prefix}_SERVICE_HOST"), host.clone())];
    let mut add = |name: String, value: String| all.push((name, value));
    if let Some(first) = ports.first() {
        add(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    }
    for port in &ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = format!("{prefix}_SERVICE_PORT_{}", upper(name));
            add(name, port.port.to_string());
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let shown = match host.parse() {
            Ok(IpAddr::V6(_)) => format!("[{host}]"),
            _ => host.clone(),
        };
        let url = format!("{lower}://{shown}:{}", port.port);
        if index == 0 {
            add(format!("{prefix}_PORT"), url.clone());
        }
        let link = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        add(link.clone(), url);
        add(format!("{link}_PROTO"), lower);
        add(format!("{link}_PORT"), port.port.to_string());
        add(format!("{link}_ADDR"), host.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, spec: serde_json::Value, expected: &str) {
        let spec = serde_json::from_value(spec).expect("a service");
        let found = variables(name, &spec);
        let found: Vec<_> = found.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn services_have_the_variables_of_a_kubelet() {
        check(
            "redis-primary",
            serde_json::json!({"clusterIP": "10.0.0.11", "ports": [
                {"name": "p-a", "port": 6379}, {"name": "q", "port": 53, "protocol": "UDP"}]}),
            "REDIS_PRIMARY_SERVICE_HOST=10.0.0.11 REDIS_PRIMARY_SERVICE_PORT=6379
             REDIS_PRIMARY_SERVICE_PORT_P_A=6379 REDIS_PRIMARY_SERVICE_PORT_Q=53
             REDIS_PRIMARY_PORT=tcp://10.0.0.11:6379 REDIS_PRIMARY_PORT_6379_TCP=tcp://10.0.0.11:6379
             REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp REDIS_PRIMARY_PORT_6379_TCP_PORT=6379
             REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.0.0.11
             REDIS_PRIMARY_PORT_53_UDP=udp://10.0.0.11:53 REDIS_PRIMARY_PORT_53_UDP_PROTO=udp
             REDIS_PRIMARY_PORT_53_UDP_PORT=53 REDIS_PRIMARY_PORT_53_UDP_ADDR=10.0.0.11",
        );
        check(
            "six",
            serde_json::json!({"clusterIP": "fd00::1", "ports": [{"port": 80}]}),
            "SIX_SERVICE_HOST=fd00::1 SIX_SERVICE_PORT=80 SIX_PORT=tcp://[fd00::1]:80
             SIX_PORT_80_TCP=tcp://[fd00::1]:80 SIX_PORT_80_TCP_PROTO=tcp SIX_PORT_80_TCP_PORT=80
             SIX_PORT_80_TCP_ADDR=fd00::1",
        );
    }

    #[test]
    fn headless_services_have_none() {
        let spec = |ip: Option<&str>| ServiceSpec {
            cluster_ip: ip.map(str::to_owned),
            ..ServiceSpec::default()
        };
        assert!(has_address(&spec(Some("10.0.0.1"))));
        assert!(!has_address(&spec(Some("None"))));
        assert!(!has_address(&spec(Some(""))));
        assert!(!has_address(&spec(None)));
    }
}
