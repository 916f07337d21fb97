//! The ready endpoints of services.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use allot_apimachinery::IpFamily;
use allot_store::{Backend, ListOptions};
use serde_json::Value;

use crate::error::Result;
use crate::object::text;
use crate::select::extract;

/// Addresses and ports, each with the pod that it is said to be.
pub(crate) type Endpoints = BTreeMap<SocketAddr, Option<String>>;

/// The number of endpoints after which the search ends: as many as Kubernetes' Endpoints objects contain.
const ENOUGH: usize = 1000;
/// The size of the slices that are read for one service. A namespace may contain any number of slices without a ready
/// endpoint, and every request to the service would read all of them.
const MOST_BYTES: usize = 8 << 20;

/// The addresses and ports of the ready endpoints for a service port, those of the first slices if there are many, each
/// with the pod that the endpoint is said to be.
///
/// A slice can also list names (`addressType: FQDN`), which its author may let resolve to any address. They are no
/// endpoints, as for kube-apiserver and kube-proxy.
pub(crate) async fn ready(
    backend: &dyn Backend,
    namespace: &str,
    service: &str,
    port: &str,
) -> Result<Endpoints> {
    let prefix = format!("{namespace}/");
    let options = ListOptions {
        prefix: &prefix,
        ..ListOptions::default()
    };
    let slices = "discovery.k8s.io/endpointslices";
    let page = backend.list(slices, options).await?;
    let (mut found, mut read) = (BTreeMap::new(), 0);
    for entry in &page.entries {
        let labels = extract(&entry.value, &["metadata.labels"]);
        if labels["metadata"]["labels"]["kubernetes.io/service-name"] != service {
            continue;
        }
        read += entry.value.len();
        if found.len() >= ENOUGH || read > MOST_BYTES {
            break;
        }
        let slice = extract(&entry.value, &["addressType", "ports", "endpoints"]);
        if slice["addressType"] == "FQDN" {
            continue;
        }
        let ports = slice["ports"].as_array().into_iter().flatten();
        let mut ports = ports.filter(|it| text(it, &["name"]) == port);
        let number = |port: &Value| u16::try_from(port["port"].as_u64()?).ok();
        let Some(number) = ports.find_map(number) else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let ready = endpoint["conditions"]["ready"] != false;
            let address: Option<IpAddr> = endpoint["addresses"][0]
                .as_str()
                .and_then(|it| it.parse().ok());
            let target = &endpoint["targetRef"];
            let pod = target["name"].as_str().filter(|_| target["kind"] == "Pod");
            if let Some(ip) = address.filter(|_| ready) {
                let known = found.entry(SocketAddr::new(ip, number)).or_insert(None);
                *known = known.take().or(pod.map(str::to_owned));
            }
        }
    }
    Ok(found)
}

/// The endpoints that are asked: those of the service's first family, if it has any.
pub(crate) fn preferred(service: &Value, found: Endpoints) -> Endpoints {
    let six = service["spec"]["ipFamilies"][0] == IpFamily::V6.name();
    let (first, others): (Endpoints, Endpoints) =
        found.into_iter().partition(|(at, _)| at.is_ipv6() == six);
    match first.is_empty() {
        true => others,
        false => first,
    }
}

#[cfg(test)]
mod tests {
    use allot_store::{Draft, Embedded, Expect, Options, Write};
    use serde_json::json;

    use super::*;

    async fn add(backend: &Embedded, name: &str, service: &str, endpoints: serde_json::Value) {
        add_of_type(backend, name, service, "IPv4", endpoints).await;
    }

    async fn add_of_type(
        backend: &Embedded,
        name: &str,
        service: &str,
        kind: &str,
        endpoints: serde_json::Value,
    ) {
        let slice = json!({
            "addressType": kind,
            "metadata": {"labels": {"kubernetes.io/service-name": service}, "name": name, "resourceVersion": "@"},
            "endpoints": endpoints, "ports": [{"name": "p", "port": 80}],
        });
        let text = slice.to_string();
        let draft = Draft::at(text.replace('@', "").into_bytes(), text.find('@').unwrap());
        let (collection, key) = ("discovery.k8s.io/endpointslices", format!("team/{name}"));
        let write = Write::put(collection, key, Expect::Absent, draft);
        backend.commit(write).await.unwrap();
    }

    #[tokio::test]
    async fn the_slices_of_one_service_are_read_up_to_a_bound() {
        let backend = Embedded::in_memory(Options::default());
        let endpoint = |address: &str| json!([{"addresses": [address]}]);
        let unready = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}, "hostname": "h".repeat(1 << 20)});
        for at in 0..9 {
            add(&backend, &format!("large-{at}"), "large", json!([unready])).await;
        }
        add(&backend, "last", "large", endpoint("10.0.0.2")).await;
        add(&backend, "small", "small", endpoint("10.0.0.3")).await;
        let found = ready(&backend, "team", "large", "p").await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        // The slices of other services do not count.
        let found = ready(&backend, "team", "small", "p").await.unwrap();
        assert_eq!(
            found,
            BTreeMap::from([("10.0.0.3:80".parse().unwrap(), None)])
        );
    }

    /// The author of a slice could make the server connect to any name, also to one of its own loopback interface.
    #[tokio::test]
    async fn regression_names_in_slices_are_no_endpoints() {
        let backend = Embedded::in_memory(Options::default());
        let endpoint = |address: &str| json!([{"addresses": [address]}]);
        for (name, kind, address) in [
            ("name", "FQDN", "internal.example.com"),
            ("loopback", "FQDN", "localhost.localdomain"),
            ("number", "FQDN", "127.0.0.1"),
            ("disguised", "IPv4", "internal.example.com"),
            ("zeros", "IPv4", "0127.0.0.1"),
        ] {
            add_of_type(&backend, name, "s", kind, endpoint(address)).await;
        }
        let found = ready(&backend, "team", "s", "p").await.unwrap();
        assert_eq!(found, BTreeMap::new());
        add_of_type(&backend, "six", "s", "IPv6", endpoint("2001:db8::1")).await;
        let found = ready(&backend, "team", "s", "p").await.unwrap();
        assert_eq!(
            found,
            BTreeMap::from([("[2001:db8::1]:80".parse().unwrap(), None)])
        );
    }

    #[test]
    fn endpoints_of_the_first_family_are_asked() {
        let (four, six) = ("10.0.0.1:80", "[2001:db8::1]:80");
        for (families, found, asked) in [
            (json!(["IPv4", "IPv6"]), &[four, six][..], four),
            (json!(["IPv6", "IPv4"]), &[four, six][..], six),
            (json!(["IPv6"]), &[four][..], four),
            (json!(null), &[four, six][..], four),
        ] {
            let service = json!({"spec": {"ipFamilies": families}});
            let found = found.iter().map(|it| (it.parse().unwrap(), None));
            let chosen: Vec<_> = preferred(&service, found.collect()).into_keys().collect();
            assert_eq!(chosen, [asked.parse().unwrap()], "{families}");
        }
    }
}
