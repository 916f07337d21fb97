//! The endpoints of a service, computed without I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use allot_apimachinery::IpFamily;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::controller::informer::{Change, key};
use crate::controller::meta;

#[cfg(test)]
mod tests;

/// Most endpoints in one slice (upstream's default).
const SLICE_LIMIT: usize = 100;
/// Label with the name of the service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a headless service, copied to its endpoints.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Label and value of Endpoints of this controller.
pub(super) const ENDPOINTS: (&str, &str) =
    ("endpoints.kubernetes.io/managed-by", "endpoint-controller");
/// Label and value of EndpointSlices of this controller.
const SLICES: (&str, &str) = (
    "endpointslice.kubernetes.io/managed-by",
    "endpointslice-controller.k8s.io",
);

/// The family of an address that validation has accepted.
fn family_of(ip: &str) -> IpFamily {
    ip.parse::<IpAddr>().map_or(IpFamily::V4, IpFamily::of)
}

/// Whether an object carries the label of ours.
pub(super) fn is_ours(metadata: &ObjectMeta, (label, value): (&str, &str)) -> bool {
    metadata
        .labels
        .as_ref()
        .and_then(|l| l.get(label))
        .is_some_and(|v| v == value)
}

/// The key of the service that a slice belongs to.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<String> {
    let metadata = &slice.metadata;
    let name = metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    is_ours(metadata, SLICES).then(|| key(metadata.namespace.as_deref(), name))
}

/// Whether pods are chosen by the service, and not by its user.
pub(super) fn has_selector(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|s| {
        s.type_.as_deref() != Some("ExternalName")
            && s.selector.as_ref().is_some_and(|s| !s.is_empty())
    })
}

/// Whether the service selects the pod.
pub(super) fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|s| s.selector.as_ref());
    let labels = pod.metadata.labels.as_ref();
    has_selector(service)
        && selector.is_some_and(|s| {
            s.iter()
                .all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
        })
}

/// The fields of a pod that endpoints depend on.
#[derive(PartialEq)]
struct View<'a> {
    ips: Vec<&'a str>,
    node: &'a str,
    labels: Option<&'a BTreeMap<String, String>>,
    ready: bool,
    finished: bool,
    deleting: bool,
}

fn view(pod: &Pod) -> View<'_> {
    View {
        ips: addresses(pod),
        node: meta::node_name(pod),
        labels: pod.metadata.labels.as_ref(),
        ready: is_ready(pod),
        finished: meta::is_finished(pod),
        deleting: meta::deleting(pod),
    }
}

/// Whether a change of a pod can be one of a service.
pub(super) fn matters(old: Option<&Pod>, change: &Change<Pod>) -> bool {
    let new = view(change.object());
    if change.is_delete() {
        return !new.ips.is_empty();
    }
    match old {
        Some(old) => view(old) != new,
        None => !new.ips.is_empty(),
    }
}

fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let many: Vec<&str> = status
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.as_str())
        .collect();
    match many.is_empty() {
        true => status.pod_ip.as_deref().into_iter().collect(),
        false => many,
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .filter(|c| c.type_ == "Ready")
        .any(|c| c.status == "True")
}

fn publishes_unready(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|s| s.publish_not_ready_addresses) == Some(true)
}

/// The port of the pod that a port of the service leads to; `None` when no container has it.
fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) if name.is_empty() => Some(port.port),
        Some(IntOrString::String(name)) => {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let spec = pod.spec.as_ref()?;
            let containers = spec.containers.iter().chain(sidecars(spec));
            let mut ports = containers.flat_map(|c| c.ports.iter().flatten());
            ports
                .find(|p| {
                    p.name.as_ref() == Some(name)
                        && p.protocol.as_deref().unwrap_or("TCP") == protocol
                })
                .map(|p| p.container_port)
        }
    }
}

/// The init containers that run beside the others.
fn sidecars(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    let all = spec.init_containers.iter().flatten();
    all.filter(|container| container.restart_policy.as_deref() == Some("Always"))
}

/// The ports of a pod behind a service, as both kinds of objects write them.
fn ports(service: &Service, pod: &Pod, empty_names: bool) -> Vec<Value> {
    let ports = service.spec.iter().flat_map(|s| s.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let mut out = json!({
                "port": target(port, pod)?,
                "protocol": port.protocol.as_deref().unwrap_or("TCP"),
            });
            match port.name.as_deref().filter(|n| !n.is_empty()) {
                Some(name) => out["name"] = name.into(),
                None if empty_names => out["name"] = "".into(),
                None => {}
            }
            if let Some(protocol) = &port.app_protocol {
                out["appProtocol"] = protocol.as_str().into();
            }
            Some(out)
        })
        .collect()
}

fn reference(pod: &Pod) -> Value {
    json!({
        "kind": "Pod",
        "namespace": meta::namespace(pod),
        "name": meta::name(pod),
        "uid": meta::uid(pod),
    })
}

/// A pod's own host name below the name of a headless service.
fn hostname<'a>(service: &Service, pod: &'a Pod) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let subdomain = spec.subdomain.as_deref()?;
    let host = spec.hostname.as_deref().filter(|h| !h.is_empty())?;
    (subdomain == meta::name(service)).then_some(host)
}

fn labels(service: &Service, (label, value): (&str, &str)) -> serde_json::Map<String, Value> {
    let own = service.metadata.labels.iter().flatten();
    let mut labels: serde_json::Map<String, Value> =
        own.map(|(k, v)| (k.clone(), json!(v))).collect();
    labels.insert(label.to_owned(), json!(value));
    let spec = service.spec.as_ref();
    if spec.and_then(|s| s.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS.to_owned(), json!(""));
    }
    labels
}

/// Addresses that are ready, addresses that are not, and the ports of both.
type Subset = (Vec<Value>, Vec<Value>, Vec<Value>);

/// The families of addresses that a service has, the first of them that of its Endpoints.
fn families(service: &Service) -> Vec<IpFamily> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|spec| spec.ip_families.as_ref());
    let named = named.into_iter().flatten().map(String::as_str);
    let named: Vec<IpFamily> = named.filter_map(IpFamily::named).collect();
    if !named.is_empty() {
        return named;
    }
    // One that was made before services named their families.
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref());
    match address.unwrap_or_default() {
        "" | "None" => vec![IpFamily::V4, IpFamily::V6],
        address => vec![family_of(address)],
    }
}

/// The address of a pod in the Endpoints of a service.
fn primary<'a>(service: &Service, pod: &'a Pod) -> Option<&'a str> {
    let addresses = addresses(pod);
    let spec = service.spec.as_ref();
    let is_named = spec.is_some_and(|it| it.ip_families.iter().any(|it| !it.is_empty()));
    let family = match families(service).as_slice() {
        // Of a headless service that names no family: that of the pod.
        [_, _] if !is_named => family_of(addresses.first()?),
        [first, ..] => *first,
        [] => return None,
    };
    addresses.into_iter().find(|ip| family_of(ip) == family)
}

/// The Endpoints object of a service.
pub(super) fn endpoints(service: &Service, pods: &[Arc<Pod>]) -> Value {
    // By ports, since a named port may have different numbers in different pods.
    let mut subsets: BTreeMap<String, Subset> = BTreeMap::new();
    for pod in pods {
        let Some(ip) = primary(service, pod) else {
            continue;
        };
        let anyway = publishes_unready(service);
        if meta::is_finished(pod) || (meta::deleting(&**pod) && !anyway) {
            continue;
        }
        let mut address = json!({"ip": ip, "targetRef": reference(pod)});
        if !meta::node_name(pod).is_empty() {
            address["nodeName"] = meta::node_name(pod).into();
        }
        if let Some(host) = hostname(service, pod) {
            address["hostname"] = host.into();
        }
        let ports = ports(service, pod, false);
        let subset = subsets.entry(json!(ports).to_string()).or_default();
        subset.2 = ports;
        if is_ready(pod) || anyway {
            subset.0.push(address);
        } else {
            subset.1.push(address);
        }
    }
    let subsets: Vec<Value> = subsets
        .into_values()
        .map(|(ready, waiting, ports)| {
            let mut subset = json!({});
            for (field, list) in [
                ("addresses", ready),
                ("notReadyAddresses", waiting),
                ("ports", ports),
            ] {
                if !list.is_empty() {
                    subset[field] = list.into();
                }
            }
            subset
        })
        .collect();
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": meta::name(service),
            "namespace": meta::namespace(service),
            "labels": labels(service, ENDPOINTS),
        },
        "subsets": subsets,
    });
    if subsets.is_empty() {
        object["subsets"] = Value::Null;
    }
    object
}

/// A family of addresses, and the ports as JSON.
type GroupKey = (IpFamily, String);

/// The EndpointSlices of a service, in no particular order; there is always one for each of its families of addresses.
pub(super) fn slices(service: &Service, pods: &[Arc<Pod>]) -> Vec<Value> {
    let anyway = publishes_unready(service);
    let families = families(service);
    let mut groups: BTreeMap<GroupKey, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods.iter().filter(|p| !meta::is_finished(p)) {
        for ip in addresses(pod) {
            let family = family_of(ip);
            if !families.contains(&family) {
                continue;
            }
            let (ready, leaving) = (is_ready(pod), meta::deleting(&**pod));
            let mut endpoint = json!({
                "addresses": [ip],
                "conditions": {
                    "ready": anyway || (ready && !leaving),
                    "serving": ready,
                    "terminating": leaving,
                },
                "targetRef": reference(pod),
            });
            if !meta::node_name(pod).is_empty() {
                endpoint["nodeName"] = meta::node_name(pod).into();
            }
            if let Some(host) = hostname(service, pod) {
                endpoint["hostname"] = host.into();
            }
            let ports = ports(service, pod, true);
            let group = groups
                .entry((family, json!(ports).to_string()))
                .or_default();
            group.1 = ports;
            group.0.push(endpoint);
        }
    }
    for family in families {
        if !groups.keys().any(|(known, _)| *known == family) {
            groups.insert((family, String::new()), Default::default());
        }
    }
    let mut out = Vec::new();
    for ((family, _), (endpoints, ports)) in groups {
        let chunks: Vec<&[Value]> = match endpoints.is_empty() {
            true => vec![&[]],
            false => endpoints.chunks(SLICE_LIMIT).collect(),
        };
        for chunk in chunks {
            out.push(slice(service, family.name(), chunk, &ports));
        }
    }
    out
}

fn slice(service: &Service, family: &str, endpoints: &[Value], ports: &[Value]) -> Value {
    let mut labels = labels(service, SLICES);
    labels.insert(SERVICE_NAME.to_owned(), json!(meta::name(service)));
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", meta::name(service)),
            "namespace": meta::namespace(service),
            "labels": labels,
            "ownerReferences": [meta::controller_ref(service)],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    })
}

/// Whether an object is not as it should be, in its labels or one of these fields. An absent list is an empty one.
pub(super) fn differs(old: &Value, wanted: &Value, fields: &[&str]) -> bool {
    let list = |object: &Value, field: &str| match &object[field] {
        Value::Array(list) => list.clone(),
        _ => Vec::new(),
    };
    old["metadata"]["labels"] != wanted["metadata"]["labels"]
        || (!wanted["addressType"].is_null() && old["addressType"] != wanted["addressType"])
        || fields.iter().any(|f| list(old, f) != list(wanted, f))
}
