//! The APIService objects of the group versions that this server serves itself. They follow the registry: those of CRDs
//! are created and deleted together with the CRDs.

use std::collections::BTreeMap;

use allot_store::{Error as StoreError, ListOptions, Write};
use serde_json::{Value, json};

use crate::error::Result;
use crate::object;
use crate::own_objects::{self, ensure};
use crate::registry::{Registry, groups, versions};
use crate::state::ServerState;
use crate::storage;

const COLLECTION: &str = "apiregistration.k8s.io/apiservices";
/// The label of APIServices that the server maintains: `onstart` for built-in ones, `true` for those of CRDs.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The priorities of group versions that CRDs define.
const CUSTOM: (u32, u32) = (1000, 100);

/// Creates and deletes APIServices to match the served group versions.
pub(crate) async fn sync(core: &ServerState) -> Result<()> {
    let registry = core.registry.load_full();
    let mut wanted = BTreeMap::new();
    let mut names = groups(&registry);
    names.push(String::new());
    for group in names
        .iter()
        .filter(|group| *group != "apiregistration.k8s.io")
    {
        for version in versions(&registry, group) {
            wanted.insert(format!("{version}.{group}"), (group, version));
        }
    }
    let known = core
        .backend
        .list(COLLECTION, ListOptions::default())
        .await?;
    for entry in &known.entries {
        if wanted.remove(&*entry.key).is_some() {
            continue;
        }
        // Stored objects are JSON written by this server.
        let gone: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
        if gone["metadata"]["labels"][MANAGED].is_string() {
            let last = storage::draft(&gone);
            let write = Write::delete(COLLECTION, &*entry.key, entry.revision, last);
            match core.backend.commit(write).await {
                // The object was changed concurrently; the next sync sees the new version.
                Ok(_) | Err(StoreError::NotFound | StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let missing = wanted.into_iter().map(|(name, (group, version))| {
        let custom = is_custom(&registry, group, &version);
        let object = local(&name, group, &version, custom);
        ensure(
            &*core.backend,
            COLLECTION,
            name,
            object,
            own_objects::SERVER,
        )
    });
    futures::future::try_join_all(missing).await?;
    Ok(())
}

/// Whether a group version is one of CRDs. None has both: those of built-in kinds have nothing else.
fn is_custom(registry: &Registry, group: &str, version: &str) -> bool {
    registry.of_group(group).any(|resource| {
        let served = resource.version(version).is_some_and(|it| it.served);
        resource.custom.is_some() && served
    })
}

/// Group priority minimum and version priority of a group version that this server serves.
pub(crate) fn priority(registry: &Registry, group: &str, version: &str) -> (u32, u32) {
    match is_custom(registry, group, version) {
        true => CUSTOM,
        false => places(group, version),
    }
}

fn local(name: &str, group: &str, version: &str, custom: bool) -> Value {
    let (group_place, version_place) = match custom {
        true => CUSTOM,
        false => places(group, version),
    };
    let mut spec = json!({
        "version": version,
        "groupPriorityMinimum": group_place, "versionPriority": version_place,
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {
            "name": name, "labels": {MANAGED: if custom { "true" } else { "onstart" }},
        },
        "spec": spec,
        "status": {"conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": object::now(),
            "reason": "Local", "message": "Local APIServices are always available",
        }]},
    })
}

/// Upstream's group priority minimum and version priority of a built-in group version.
fn places(group: &str, version: &str) -> (u32, u32) {
    let place = match group {
        "" => return (18000, 1),
        // Before all others.
        "apiregistration.k8s.io" => 20001,
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "apiextensions.k8s.io" | "admissionregistration.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" | "resource.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        _ => 15900,
    };
    let version = match (group, version) {
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        (_, "v1") | ("resource.k8s.io", "v1beta2") => 15,
        ("admissionregistration.k8s.io", "v1beta1") => 12,
        ("scheduling.k8s.io", "v1alpha2") => 2,
        ("certificates.k8s.io", "v1alpha1") | ("resource.k8s.io", "v1alpha3") => 1,
        _ => 9,
    };
    (place, version)
}
