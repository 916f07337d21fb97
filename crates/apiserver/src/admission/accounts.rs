//! The account that a pod runs as, and the token with which its containers reach the API server.

use std::time::Duration;

use allot_apimachinery::strconv::parse_bool;
use allot_store::ListOptions;
use serde_json::{Value, json};

use super::Admission;
use super::{Attributes, Operation, forbidden, is_whole_pod};
use crate::error::{ApiError, Result};
use crate::object::{child_mut, generate_name, items, items_mut, text};
use crate::references;

const ACCOUNTS: &str = "serviceaccounts";
/// What pods are given, and whether they may have other secrets than the account.
const USED: [&str; 4] = [
    "automountServiceAccountToken",
    "imagePullSecrets",
    "secrets",
    "metadata.annotations",
];
/// The annotation of an account whose pods may have its own secrets only.
const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
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
    if references::is_mirror(pod) {
        return check_mirror(attributes, pod);
    }
    let named = text(pod, &["spec", "serviceAccountName"]).to_owned();
    let name = if named.is_empty() { DEFAULT } else { &named };
    let found = match account(core, attributes.namespace, name).await? {
        // A cluster without a service account controller can run pods nevertheless.
        None if named.is_empty() && !accounts_are_made(core).await? => return Ok(()),
        found => found,
    };
    let Some(account) = found else {
        return Err(not_found(attributes, name));
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

fn not_found(attributes: &Attributes<'_>, name: &str) -> ApiError {
    let namespace = attributes.namespace;
    let why = format!(
        "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
    );
    forbidden(attributes, &why)
}

/// Refuses what webhooks and policies have made of a new pod, and secrets that its account does not permit, also for new
/// ephemeral containers.
///
/// # Errors
/// 403, or 500 for ephemeral containers, as upstream.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    let ephemeral = attributes.resource.is("", "pods")
        && attributes.operation == Operation::Update
        && attributes.subresource == "ephemeralcontainers";
    if !ephemeral && !is_whole_pod(attributes, Operation::Create) {
        return Ok(());
    }
    if !ephemeral && references::is_mirror(pod) {
        return check_mirror(attributes, pod);
    }
    let name = text(pod, &["spec", "serviceAccountName"]);
    if name.is_empty() {
        if !accounts_are_made(core).await? {
            return Ok(());
        }
        let why = format!(
            "no service account specified for pod {}/{}",
            attributes.namespace, attributes.name
        );
        return Err(forbidden(attributes, &why));
    }
    let Some(account) = account(core, attributes.namespace, name).await? else {
        return Err(not_found(attributes, name));
    };
    if !limits_secrets(&account) {
        return Ok(());
    }
    match foreign_secret(&account, name, pod, ephemeral) {
        None => Ok(()),
        Some(why) if ephemeral => Err(ApiError::unknown(why)),
        Some(why) => Err(forbidden(attributes, &why)),
    }
}

/// Whether the pods of an account may have its own secrets only.
fn limits_secrets(account: &Value) -> bool {
    let wanted = account["metadata"]["annotations"][MOUNTABLE].as_str();
    wanted.and_then(parse_bool) == Some(true)
}

/// The first secret of a pod, or of its ephemeral containers, that its account does not name. As upstream, projected
/// volumes and those of drivers are not looked at.
fn foreign_secret(account: &Value, name: &str, pod: &Value, ephemeral: bool) -> Option<String> {
    let spec = &pod["spec"];
    let what = if ephemeral {
        in_containers(account, &spec["ephemeralContainers"], "ephemeral container")
    } else {
        in_volumes(account, &spec["volumes"])
            .or_else(|| in_containers(account, &spec["initContainers"], "init container"))
            .or_else(|| in_containers(account, &spec["containers"], "container"))
    };
    let why = "is not allowed because service account";
    match what {
        Some(what) => Some(format!(
            "{what} {why} {name} does not reference that secret"
        )),
        None if ephemeral => None,
        None => {
            let what = in_pulls(account, &spec["imagePullSecrets"])?;
            Some(format!(
                "{what} {why} {name} does not reference that imagePullSecret"
            ))
        }
    }
}

/// Whether a list of an account names a secret.
fn is_named(account: &Value, list: &str, secret: &str) -> bool {
    let mut known = items(&account[list]).iter();
    known.any(|it| it["name"] == secret)
}

fn in_volumes(account: &Value, volumes: &Value) -> Option<String> {
    let sources = items(volumes).iter().map(|volume| &volume["secret"]);
    let mut secrets = sources
        .filter(|source| source.is_object())
        .map(|source| text(source, &["secretName"]));
    let secret = secrets.find(|secret| !is_named(account, "secrets", secret))?;
    Some(format!("volume with secret.secretName=\"{secret}\""))
}

fn in_containers(account: &Value, containers: &Value, word: &str) -> Option<String> {
    items(containers).iter().find_map(|container| {
        let variables = items(&container["env"]).iter().map(|variable| {
            let name = format!("envVar {}", text(variable, &["name"]));
            (name, &variable["valueFrom"]["secretKeyRef"])
        });
        let whole = items(&container["envFrom"]).iter();
        let whole = whole.map(|from| ("envFrom".to_owned(), &from["secretRef"]));
        let (what, secret) = variables
            .chain(whole)
            .filter(|(_, from)| from.is_object())
            .map(|(what, from)| (what, text(from, &["name"])))
            .find(|(_, secret)| !is_named(account, "secrets", secret))?;
        let whose = text(container, &["name"]);
        Some(format!(
            "{word} {whose} with {what} referencing secret.secretName=\"{secret}\""
        ))
    })
}

fn in_pulls(account: &Value, pulls: &Value) -> Option<String> {
    let pulls = items(pulls).iter().map(|it| text(it, &["name"]));
    let (index, secret) = pulls
        .enumerate()
        .find(|(_, secret)| !is_named(account, "imagePullSecrets", secret))?;
    Some(format!("imagePullSecrets[{index}].name=\"{secret}\""))
}

/// Refuses what a node's own pod may not have: everything that the API would have to give it.
fn check_mirror(attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    let volumes = items(&pod["spec"]["volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| items(&volume["projected"]["sources"]));
    let why = if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        "a mirror pod may not reference service accounts"
    } else if references::secrets(pod).next().is_some() {
        "a mirror pod may not reference secrets"
    } else if sources.any(|source| source["serviceAccountToken"].is_object()) {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(forbidden(attributes, why))
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
