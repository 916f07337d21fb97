//! The ready endpoints of services.

use std::collections::BTreeSet;

use allot_store::{Backend, ListOptions};
use serde_json::Value;

use crate::error::Result;
use crate::object::text;

/// The addresses and ports of the ready endpoints for a service port.
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
    let mut found = BTreeSet::new();
    for entry in &page.entries {
        let slice: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != service {
            continue;
        }
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
