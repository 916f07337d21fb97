//! The `CNI_ARGS` and capability arguments for a pod.

use allot_apimachinery::quantity::Quantity;
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

/// Bits per second that a pod may receive and send. Runtimes of Kubernetes permit bursts of any length.
fn bandwidth(pod: &Pod) -> Result<Option<Value>, String> {
    const BURST: u32 = u32::MAX;
    /// Bits per second. Runtimes of Kubernetes refuse others as mistakes.
    const SANE: std::ops::RangeInclusive<i64> = 1_000..=1_000_000_000_000_000;
    let mut all = Map::new();
    for way in ["ingress", "egress"] {
        let annotation = format!("kubernetes.io/{way}-bandwidth");
        let Some(text) = pod.annotations().get(&annotation) else {
            continue;
        };
        let rate = text.parse::<Quantity>().map(|rate| rate.value());
        let rate = rate.map_err(|error| format!("annotation {annotation}: {error}"))?;
        if !SANE.contains(&rate) {
            let size = if rate < *SANE.start() {
                "small (< 1kbit)"
            } else {
                "large (> 1Pbit)"
            };
            return Err(format!(
                "annotation {annotation}: resource is unreasonably {size}"
            ));
        }
        all.insert(format!("{way}Rate"), rate.into());
        all.insert(format!("{way}Burst"), BURST.into());
    }
    Ok((!all.is_empty()).then(|| all.into()))
}

/// For plugins that declare them.
///
/// # Errors
/// A bandwidth annotation of the pod is invalid.
pub(super) fn capabilities(pod: &Pod) -> Result<Map<String, Value>, String> {
    let mut all = Map::new();
    if let Some(bandwidth) = bandwidth(pod)? {
        all.insert("bandwidth".into(), bandwidth);
    }
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
    Ok(all)
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
            capabilities(&own).unwrap()["portMappings"],
            json!([
                {"hostPort": 80, "containerPort": 8080, "protocol": "tcp", "hostIP": "10.0.0.1"},
                {"hostPort": 53, "containerPort": 8080, "protocol": "udp"},
            ])
        );
        let mut none = pod(json!([port(json!({}))]));
        let spec = none.spec.as_mut().unwrap();
        spec.init_containers = own.spec.map(|spec| spec.containers);
        assert!(!has_host_ports(&none));
        assert!(!capabilities(&none).unwrap().contains_key("portMappings"));
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

    #[test]
    fn bandwidths_are_told() {
        let told = |annotations: Value| {
            let pod = json!({"metadata": {"name": "p", "annotations": annotations}});
            let all = capabilities(&serde_json::from_value(pod).unwrap())?;
            Ok::<_, String>(all.get("bandwidth").cloned().unwrap_or_default())
        };
        assert_eq!(told(json!({})), Ok(Value::Null));
        let ingress = json!({"kubernetes.io/ingress-bandwidth": "10M"});
        let expected = json!({"ingressRate": 10_000_000, "ingressBurst": u32::MAX});
        assert_eq!(told(ingress), Ok(expected));
        let both = json!({"kubernetes.io/ingress-bandwidth": "1k", "kubernetes.io/egress-bandwidth": "1P"});
        let expected = json!({"ingressRate": 1000, "ingressBurst": u32::MAX,
            "egressRate": 1_000_000_000_000_000_i64, "egressBurst": u32::MAX});
        assert_eq!(told(both), Ok(expected));
        for (text, expected) in [
            ("999", "unreasonably small (< 1kbit)"),
            ("-1", "unreasonably small (< 1kbit)"),
            ("1001T", "unreasonably large (> 1Pbit)"),
            ("much", "quantities must match the regular expression"),
        ] {
            let error = told(json!({"kubernetes.io/egress-bandwidth": text})).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("kubernetes.io/egress-bandwidth"), "{error}");
        }
    }
}
