//! CustomResourceDefinitions of the kinds in manifests.

use std::collections::BTreeSet;

use http::Request;
use kube::Client;
use serde_json::Value;

/// More kinds are not asked about.
const MOST: usize = 50;

/// The definitions of custom resources, by `apiVersion` and `kind`, as far as the server shows them. Without the right to
/// read them, only the server finds mistakes.
pub async fn definitions(client: &Client, kinds: BTreeSet<(String, String)>) -> Vec<Value> {
    let mut found = Vec::new();
    for (api, kind) in kinds.into_iter().take(MOST) {
        let Ok(served) = client.list_api_group_resources(&api).await else {
            continue;
        };
        let mut same = served.resources.into_iter();
        let same = same.find(|it| it.kind == kind && !it.name.contains('/'));
        let Some((resource, (group, _))) = same.zip(api.split_once('/')) else {
            continue;
        };
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{group}",
            resource.name
        );
        let Ok(request) = Request::get(path).body(Vec::new()) else {
            continue;
        };
        match client.request::<Value>(request).await {
            Ok(definition) => found.push(definition),
            Err(error) => {
                let error = allot_reflector::api_message(&error);
                tracing::debug!(api, kind, error, "no definition");
            }
        }
    }
    found
}
