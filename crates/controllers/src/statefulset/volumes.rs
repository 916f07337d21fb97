//! The PersistentVolumeClaims of a stateful set's pods: created before their pod, owned as the retention policy says.

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy as Policy,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::Informer;
use crate::controller::meta;
use crate::controller::whole::Whole;

#[cfg(test)]
mod tests;

/// Creates the claims and maintains their owners.
pub(super) struct Volumes {
    pub client: Client,
    pub claims: Informer<PersistentVolumeClaim>,
    pub events: Recorder,
}

impl Volumes {
    fn api(&self, set: &StatefulSet) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), meta::namespace(set))
    }

    /// Creates the missing claims for an ordinal.
    ///
    /// # Errors
    /// Errors of the API server; a claim that is being deleted, which the pod must wait for.
    pub(super) async fn ensure(&self, set: &Whole<StatefulSet>, ordinal: i32) -> Result<(), Error> {
        let pod_name = format!("{}-{ordinal}", meta::name(set));
        let templates = set.at("/spec/volumeClaimTemplates").as_array();
        for template in templates.into_iter().flatten() {
            let claim = new_claim(set, template, &pod_name);
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            let key = format!("{}/{name}", meta::namespace(set));
            if let Some(found) = self.claims.get(&key) {
                if meta::deleting(&*found) || is_left_over(&found, policy(set), &pod_name) {
                    return Err(Error::Invalid(format!("pvc {name} is being deleted")));
                }
                continue;
            }
            let created = api::create(&self.client, &self.api(set), &claim).await;
            let pod = format!("Pod {pod_name} in StatefulSet {}", meta::name(set));
            match &created {
                Err(error) => self.record_event(
                    set,
                    (Level::Warning, "FailedCreate"),
                    format!("create Claim {name} for {pod} failed error: {error}"),
                ),
                Ok(_) => self.record_event(
                    set,
                    (Level::Normal, "SuccessfulCreate"),
                    format!("create Claim {name} {pod} success"),
                ),
            }
            self.claims.assume(created?);
        }
        Ok(())
    }

    /// Sets the owners of a pod's claims as the policy requires.
    ///
    /// # Errors
    /// What the API server answered.
    pub(super) async fn follow(
        &self,
        set: &StatefulSet,
        pod: &Pod,
        wanted: bool,
    ) -> Result<(), Error> {
        let spec = set.spec.as_ref();
        for template in spec
            .and_then(|s| s.volume_claim_templates.as_ref())
            .into_iter()
            .flatten()
        {
            let name = format!("{}-{}", meta::name(template), meta::name(pod));
            let Some(claim) = self.claims.get(&format!("{}/{name}", meta::namespace(set))) else {
                continue;
            };
            let (owners, foreign) = match owners(&claim, set, pod, wanted) {
                Owners::AsTheyAre => continue,
                Owners::Be(owners) => (owners, false),
                Owners::Foreign(owners) => (owners, true),
            };
            if foreign {
                self.record_event(set, (Level::Warning, "ConflictingController"), format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
                ));
            }
            let mut body = json!({"metadata": api::unchanged(&*claim)});
            body["metadata"]["ownerReferences"] = json!(owners);
            let changed = api::patch(&self.api(set), &name, Part::Main, &body).await?;
            self.claims.assume(changed);
        }
        Ok(())
    }

    fn record_event(
        &self,
        set: &StatefulSet,
        (level, reason): (Level, &'static str),
        message: String,
    ) {
        self.events.event(reference(set), level, reason, message);
    }
}

/// The wanted owner of a claim.
#[derive(Debug, PartialEq)]
enum Owners {
    /// They are right, or not ours to change.
    AsTheyAre,
    Be(Vec<OwnerReference>),
    /// Another controller has it: we and our pod are its owners no more.
    Foreign(Vec<OwnerReference>),
}

/// The rules of `persistentVolumeClaimRetentionPolicy`: the set owns the claim if it is to be deleted with the set, the
/// pod if it is to be deleted after scaling down. A pod that is wanted again loses the ownership, or its data would be
/// deleted with the next reconciliation.
fn owners(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &Pod, wanted: bool) -> Owners {
    let now = claim
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default();
    let (when_scaled, when_deleted) = policy(set);
    let of_set = |owner: &OwnerReference| names(owner, "apps/v1", "StatefulSet", meta::name(set));
    let of_pod = |owner: &OwnerReference| names(owner, "v1", "Pod", meta::name(pod));
    let stale = |owner: &OwnerReference| {
        of_set(owner) && owner.uid != meta::uid(set) || of_pod(owner) && owner.uid != meta::uid(pod)
    };
    if now.iter().any(stale) {
        // Owned by what had the name before: the garbage collector decides.
        return Owners::AsTheyAre;
    }
    let ours = |owner: &OwnerReference| of_set(owner) || of_pod(owner);
    let mut owners: Vec<_> = now.iter().filter(|o| !ours(o)).cloned().collect();
    let foreign =
        (when_scaled || when_deleted) && owners.iter().any(|o| o.controller == Some(true));
    if !foreign {
        if when_scaled && !wanted {
            owners.push(controller("v1", "Pod", pod));
        } else if when_deleted {
            owners.push(controller("apps/v1", "StatefulSet", set));
        }
    }
    let same = |a: &OwnerReference, b: &OwnerReference| {
        a.uid == b.uid && (!ours(a) || a.controller == b.controller)
    };
    if owners.len() == now.len() && owners.iter().all(|a| now.iter().any(|b| same(a, b))) {
        Owners::AsTheyAre
    } else if foreign {
        Owners::Foreign(owners)
    } else {
        Owners::Be(owners)
    }
}

/// Whether claims end when the set is scaled down, and when it is deleted.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.as_ref();
    let policy = policy.and_then(|s| s.persistent_volume_claim_retention_policy.as_ref());
    let deletes = |when: fn(&Policy) -> Option<&String>| {
        policy.and_then(when).is_some_and(|when| when == "Delete")
    };
    (
        deletes(|p| p.when_scaled.as_ref()),
        deletes(|p| p.when_deleted.as_ref()),
    )
}

/// Whether a claim is owned by an earlier pod of this name since the set was scaled down: it is deleted with that pod.
fn is_left_over(claim: &PersistentVolumeClaim, (when_scaled, _): (bool, bool), pod: &str) -> bool {
    let owners = claim.metadata.owner_references.as_deref();
    when_scaled
        && owners
            .unwrap_or_default()
            .iter()
            .any(|o| names(o, "v1", "Pod", pod))
}

fn names(owner: &OwnerReference, version: &str, kind: &str, name: &str) -> bool {
    owner.api_version == version && owner.kind == kind && owner.name == name
}

fn controller<K: Resource>(version: &str, kind: &str, object: &K) -> OwnerReference {
    OwnerReference {
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        name: meta::name(object).to_owned(),
        uid: meta::uid(object).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The claim of a template for one pod.
fn new_claim(set: &StatefulSet, template: &Value, pod: &str) -> Value {
    let mut claim = template.clone();
    let base = claim["metadata"]["name"].as_str().unwrap_or_default();
    let name = format!("{base}-{pod}");
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    claim["metadata"]["name"] = json!(name);
    claim["metadata"]["namespace"] = json!(meta::namespace(set));
    let selector = set
        .spec
        .as_ref()
        .and_then(|s| s.selector.match_labels.as_ref());
    for (key, value) in selector.into_iter().flatten() {
        claim["metadata"]["labels"][key.as_str()] = json!(value);
    }
    if policy(set).1 {
        claim["metadata"]["ownerReferences"] = json!([controller("apps/v1", "StatefulSet", set)]);
    }
    if let Some(object) = claim.as_object_mut() {
        object.remove("status");
    }
    claim
}
