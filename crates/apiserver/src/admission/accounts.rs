//! The account that a pod runs as, and the token with which its containers reach the API server.

use std::time::Duration;

use allot_store::ListOptions;
use serde_json::{Value, json};

use super::Admission;
use super::{Attributes, forbidden};
use crate::error::Result;
use crate::object::{child_mut, generate_name, items_mut, text};

const ACCOUNTS: &str = "serviceaccounts";
/// Pod fields that are set from the service account.
const USED: [&str; 2] = ["automountServiceAccountToken", "imagePullSecrets"];
/// The service account of pods that specify none; a controller creates it in every namespace.
const DEFAULT: &str = "default";
/// How long the creation of a pod waits until that controller has created the account. Upstream waits two seconds, which
/// is too short for a cluster that has just started on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The directory where containers expect their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the names of token volumes begin with.
const VOLUME: &str = "kube-api-access-";
/// An hour, and seven seconds that distinguish this token from tokens that users request.
const TOKEN_SECONDS: u32 = 60 * 60 + 7;

/// The account that the pod runs as: `default` unless it names another, which has to exist. Its containers get a
/// token, its images the account's pull secrets.
pub(super) async fn admit(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    if crate::references::is_mirror(pod) {
        return match mirror_fault(pod) {
            Some(why) => Err(forbidden(attributes, why)),
            None => Ok(()),
        };
    }
    let named = text(pod, &["spec", "serviceAccountName"]).to_owned();
    let name = if named.is_empty() { DEFAULT } else { &named };
    let found = match account(core, attributes.namespace, name).await? {
        // A cluster without a service account controller can run pods nevertheless.
        None if named.is_empty() && !accounts_are_made(core).await? => return Ok(()),
        found => found,
    };
    let Some(account) = found else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            attributes.namespace
        );
        return Err(forbidden(attributes, &why));
    };
    let spec = child_mut(pod, "spec");
    spec.insert("serviceAccountName".to_owned(), name.into());
    spec.insert("serviceAccount".to_owned(), name.into());
    // The pod has the last word.
    let automount = |it: &Value| it["automountServiceAccountToken"].as_bool();
    let wanted = automount(&pod["spec"]).or_else(|| automount(&account));
    if wanted.unwrap_or(true) {
        mount_token(pod);
    }
    let spec = child_mut(pod, "spec");
    let secrets = &account["imagePullSecrets"];
    let has_secrets = spec.get("imagePullSecrets").and_then(Value::as_array);
    if has_secrets.is_none_or(Vec::is_empty) && secrets.is_array() {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    Ok(())
}

/// What a node's own pod may not have: everything that the API would have to give it.
fn mirror_fault(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    if !text(spec, &["serviceAccountName"]).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = || spec["volumes"].as_array().into_iter().flatten();
    let sources = || {
        let projected = volumes().map(|volume| &volume["projected"]["sources"]);
        projected.filter_map(Value::as_array).flatten()
    };
    let containers = ["initContainers", "containers"].map(|key| spec[key].as_array());
    let from_secret = containers.into_iter().flatten().flatten().any(|container| {
        let env = container["env"].as_array().into_iter().flatten();
        let mut whole = container["envFrom"].as_array().into_iter().flatten();
        whole.any(|from| from["secretRef"].is_object())
            || env
                .into_iter()
                .any(|it| it["valueFrom"]["secretKeyRef"].is_object())
    });
    if from_secret
        || volumes().any(|volume| volume["secret"].is_object())
        || sources().any(|source| source["secret"].is_object())
        || spec["imagePullSecrets"]
            .as_array()
            .is_some_and(|it| !it.is_empty())
    {
        return Some("a mirror pod may not reference secrets");
    }
    sources()
        .any(|source| source["serviceAccountToken"].is_object())
        .then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// The account; that of a new namespace may still be on its way.
async fn account(core: &Admission, namespace: &str, name: &str) -> Result<Option<Value>> {
    let key = format!("{namespace}/{name}");
    let from = core.backend.revision();
    let found = core.stored_parts(ACCOUNTS, &key, &USED).await?;
    if found.is_some() || name != DEFAULT || !accounts_are_made(core).await? {
        return Ok(found);
    }
    let mut watcher = core.backend.watch(ACCOUNTS, &key, from)?;
    let made = async {
        // An error means that the store is closing; the read below reports it.
        while let Ok(events) = watcher.changes().await {
            if events.iter().any(|event| *event.entry.key == *key) {
                break;
            }
        }
    };
    // With or without a timeout, the store has the answer.
    let _ = tokio::time::timeout(PATIENCE, made).await;
    core.stored_parts(ACCOUNTS, &key, &USED).await
}

/// Whether the controller that creates default accounts runs, per configuration or because such an account exists.
async fn accounts_are_made(core: &Admission) -> Result<bool> {
    if core.config.accounts_are_made {
        return Ok(true);
    }
    let page = core.backend.list(ACCOUNTS, ListOptions::default()).await?;
    let names = page
        .entries
        .iter()
        .filter_map(|entry| entry.key.split_once('/'));
    Ok(names.into_iter().any(|(_, name)| name == DEFAULT))
}

/// Mounts a token, the cluster's certificate and the namespace into every container that has no mount at that path.
fn mount_token(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let known = names
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let name = known.clone().unwrap_or_else(|| generate_name(VOLUME));
    let mut needed = false;
    for key in ["initContainers", "containers"] {
        for container in items_mut(spec, &[key]) {
            let mut mounts = container["volumeMounts"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container["volumeMounts"] = mounts.into();
            needed = true;
        }
    }
    if known.is_some() || !needed {
        return;
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": name, "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ],
        "defaultMode": 0o644,
    }}));
    spec["volumes"] = volumes.into();
}
