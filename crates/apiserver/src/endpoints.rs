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
