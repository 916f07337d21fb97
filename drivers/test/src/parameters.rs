//! Where parameters come from: a ConfigMap, or a custom resource whose `spec` is a flat map.

use allot_driver::classic::{ParametersReference, describe};
use allot_driver::{Failure, api_message};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use kube::discovery::Scope;
use kube::{Api, Client, discovery};
use serde_json::Value;

use crate::Variables;

/// Reads the parameters of a `what` (`class` or `claim`).
pub(crate) async fn read(
    client: &Client,
    what: &str,
    reference: &ParametersReference,
    namespace: &str,
) -> Result<Variables, Failure> {
    if reference.api_group.is_empty() && reference.kind == "ConfigMap" {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = api.get(&reference.name).await;
        let map =
            found.map_err(|error| format!("get {what} parameters: {}", api_message(&error)))?;
        return Ok(map.data.unwrap_or_default());
    }
    let unsupported = || {
        let got = describe(reference);
        format!("{what} parameters are only supported in APIVersion v1, Kind ConfigMap, got: {got}")
    };
    if reference.api_group.is_empty() {
        return Err(unsupported().into());
    }
    let group = discovery::group(client, &reference.api_group).await;
    let group = group.map_err(|_| unsupported())?;
    let found = group.recommended_kind(&reference.kind);
    let (kind, capabilities) = found.ok_or_else(unsupported)?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &kind),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &kind),
    };
    let found = api.get(&reference.name).await;
    let object =
        found.map_err(|error| format!("get {what} parameters: {}", api_message(&error)))?;
    Ok(flat(&object.data["spec"]))
}

/// The members of a map that are single values.
pub(crate) fn flat(map: &Value) -> Variables {
    let single = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    let members = map.as_object().into_iter().flatten();
    members
        .filter_map(|(key, value)| Some((key.clone(), single(value)?)))
        .collect()
}
