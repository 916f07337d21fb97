//! What plugins get to know about a pod.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Most ports of a pod that are opened on the host.
const MOST_PORTS: usize = 1024;

/// What every runtime of Kubernetes passes to plugins.
pub(super) fn args(pod: &Pod) -> Vec<(String, String)> {
    let uid = pod.uid().unwrap_or_default();
    let all = [
        ("IgnoreUnknown", "1".to_owned()),
        ("K8S_POD_NAMESPACE", pod.namespace().unwrap_or_default()),
        ("K8S_POD_NAME", pod.name_any()),
        ("K8S_POD_INFRA_CONTAINER_ID", uid.clone()),
        ("K8S_POD_UID", uid),
    ];
    all.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

/// Whether a container of the pod has a `hostPort`.
pub(in crate::pods) fn has_host_ports(pod: &Pod) -> bool {
    !ports(pod).is_empty()
}

fn ports(pod: &Pod) -> Vec<Value> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    // As a kubelet: not those of init containers.
    let all = spec.containers.iter();
    let all = all.flat_map(|container| container.ports.iter().flatten());
    let mapped = all.filter_map(|port| {
        let on_host = port.host_port.filter(|port| *port > 0)?;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let mut mapping = json!({
            "hostPort": on_host,
            "containerPort": port.container_port,
            "protocol": protocol.to_ascii_lowercase(),
        });
        if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty()) {
            mapping["hostIP"] = ip.into();
        }
        Some(mapping)
    });
    mapped.take(MOST_PORTS).collect()
}

/// For plugins that declare them.
pub(super) fn capabilities(pod: &Pod) -> Map<String, Value> {
    let mut all = Map::new();
    let ports = ports(pod);
    if !ports.is_empty() {
        all.insert("portMappings".into(), ports.into());
    }
    let spec = pod.spec.as_ref();
    if let Some(dns) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        let dns = json!({
            "servers": dns.nameservers.clone().unwrap_or_default(),
            "searches": dns.searches.clone().unwrap_or_default(),
        });
        all.insert("dns".into(), dns);
    }
    let annotations = json!(pod.annotations());
    all.insert("io.kubernetes.cri.pod-annotations".into(), annotations);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_host_are_told() {
        let port = |more: Value| {
            let mut port = json!({"containerPort": 8080});
            port.as_object_mut()
                .unwrap()
                .extend(more.as_object().cloned().unwrap());
            port
        };
        let containers = |ports: Value| json!([{"name": "c", "ports": ports}]);
        let pod = |ports: Value| -> Pod {
            let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
            let pod = json!({"metadata": metadata, "spec": {"containers": containers(ports)}});
            serde_json::from_value(pod).unwrap()
        };
        let own = pod(json!([
            port(json!({"hostPort": 80, "hostIP": "10.0.0.1"})),
            port(json!({"hostPort": 53, "protocol": "UDP"})),
            port(json!({"hostPort": 0})),
            port(json!({})),
        ]));
        assert!(has_host_ports(&own));
        assert_eq!(
            capabilities(&own)["portMappings"],
            json!([
                {"hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": "10.0.0.1"},
                {"hostPort": 53, "containerPort": 8080, "protocol": "udp"},
            ])
        );
        let mut none = pod(json!([port(json!({}))]));
        let spec = none.spec.as_mut().unwrap();
        spec.init_containers = own.spec.map(|spec| spec.containers);
        assert!(!has_host_ports(&none));
        assert!(!capabilities(&none).contains_key("portMappings"));
        let keys: Vec<String> = args(&none).into_iter().map(|(key, _)| key).collect();
        let expected = [
            "IgnoreUnknown",
            "K8S_POD_NAMESPACE",
            "K8S_POD_NAME",
            "K8S_POD_INFRA_CONTAINER_ID",
            "K8S_POD_UID",
        ];
        assert_eq!(keys, expected);
    }
}
