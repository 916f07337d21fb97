//! The ready endpoints of services.

use std::collections::BTreeSet;

use allot_store::{Backend, ListOptions};

use crate::error::Result;
use crate::object::text;
use crate::select::extract;

/// The number of endpoints after which the search ends: as many as Kubernetes' Endpoints objects contain.
const ENOUGH: usize = 1000;
/// The size of the slices that are read for one service. A namespace may contain any number of slices without a ready
/// endpoint, and every request to the service would read all of them.
const MOST_BYTES: usize = 8 << 20;

/// The addresses and ports of the ready endpoints for a service port, those of the first slices if there are many.
pub(crate) async fn ready(
    backend: &dyn Backend,
    namespace: &str,
    service: &str,
    port: &str,
) -> Result<BTreeSet<(String, u64)>> {
    let prefix = format!("{namespace}/");
    let options = ListOptions {
        prefix: &prefix,
        ..ListOptions::default()
    };
    let slices = "discovery.k8s.io/endpointslices";
    let page = backend.list(slices, options).await?;
    let (mut found, mut read) = (BTreeSet::new(), 0);
    for entry in &page.entries {
        let labels = extract(&entry.value, &["metadata.labels"]);
        if labels["metadata"]["labels"]["kubernetes.io/service-name"] != service {
            continue;
        }
        read += entry.value.len();
        if found.len() >= ENOUGH || read > MOST_BYTES {
            break;
        }
        let slice = extract(&entry.value, &["ports", "endpoints"]);
        let ports = slice["ports"].as_array().into_iter().flatten();
        let mut ports = ports.filter(|it| text(it, &["name"]) == port);
        let Some(number) = ports.find_map(|it| it["port"].as_u64()) else {
            continue;
        };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            let ready = endpoint["conditions"]["ready"] != false;
            let address = endpoint["addresses"][0].as_str();
            found.extend(address.filter(|_| ready).map(|it| (it.to_owned(), number)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use allot_store::{Draft, Embedded, Expect, Options, Write};
    use serde_json::json;

    use super::*;

    async fn add(backend: &Embedded, name: &str, service: &str, endpoints: serde_json::Value) {
        let slice = json!({
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
        assert_eq!(found, BTreeSet::from([("10.0.0.3".to_owned(), 80)]));
    }
}
