//! Work for one pod: publishes the nodes on which its claims cannot be allocated, and allocates them for the selected
//! node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::cache::Name;
use super::claims::{Consumer, Core, Outcome, SyncError, is_classic};
use super::objects::{Claim, Negotiation, controller_of};
use super::{Driver, Wanted};

/// More nodes than that are not stored in one list.
const MAX_NODES: usize = 128;

impl<D: Driver> Core<D> {
    /// Answers a negotiation: allocates, or reports unsuitable nodes.
    pub(super) async fn sync_negotiation(&self, name: &Name) -> Result<Outcome, SyncError> {
        let Some(negotiation) = self.negotiations.get(name).map(Negotiation) else {
            return Ok(Outcome::Done);
        };
        let (selected, mut nodes) = (negotiation.selected_node(), negotiation.potential_nodes());
        let deleting = negotiation.0.metadata.deletion_timestamp.is_some();
        if deleting || selected.is_empty() && nodes.is_empty() {
            return Ok(Outcome::Done);
        }
        let pod = self
            .api
            .pod(negotiation.namespace(), negotiation.name())
            .await;
        let pod = pod.map_err(|error| SyncError::of("get pod", &error))?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let owned = controller_of(&negotiation.0) == Some(uid.as_str());
        if pod.metadata.deletion_timestamp.is_some() || !owned {
            return Ok(Outcome::Done);
        }
        let wanted = self.pending(&pod).await?;
        if wanted.is_empty() {
            return Ok(Outcome::Later);
        }
        if !selected.is_empty() && !nodes.iter().any(|node| node == selected) {
            nodes.push(selected.to_owned());
        }
        let typed = typed(&pod)?;
        let unsuitable = self.driver.unsuitable_nodes(&typed, &wanted, &nodes).await;
        let mut unsuitable = unsuitable
            .map_err(|error| SyncError::new(format!("checking potential nodes: {error}")))?;
        unsuitable.resize(wanted.len(), Vec::new());
        let refused = unsuitable.iter().flatten().any(|node| node == selected);
        if !selected.is_empty() && !refused {
            let consumer = Consumer {
                name: negotiation.name().to_owned(),
                uid,
            };
            self.allocate(wanted, Some(selected), Some(&consumer))
                .await?;
            // The scheduler only negotiates about claims without an allocation.
            return Ok(Outcome::Later);
        }
        let names = wanted.iter().map(|one| one.pod_claim.as_str());
        self.answer(&negotiation, names.zip(unsuitable)).await?;
        Ok(Outcome::Later)
    }

    /// The claims of a pod that this driver has to allocate when a node is selected.
    async fn pending(&self, pod: &DynamicObject) -> Result<Vec<Wanted<D>>, SyncError> {
        let mut pending = Vec::new();
        for entry in pod.data["spec"]["resourceClaims"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let Some(claim) = self.claim_of(pod, entry).await? else {
                continue;
            };
            if claim.is_allocated() || claim.is_immediate() || claim.is_deleting() {
                continue;
            }
            let class = self.class(&claim).map_err(|error| SyncError {
                about: vec![(self.api.version.claims(), Arc::clone(&claim.0))],
                ..error
            })?;
            let Some(class) = class else { continue };
            let name = entry["name"].as_str().unwrap_or_default();
            let wanted = self.wanted(claim, class, name).await.map_err(|mut error| {
                let kind = ApiResource::erase::<Pod>(&());
                error.about.push((kind, Arc::new(pod.clone())));
                error
            })?;
            pending.push(wanted);
        }
        Ok(pending)
    }

    /// The claim behind an entry of `spec.resourceClaims`; `None` if there is none, yet or ever.
    async fn claim_of(
        &self,
        pod: &DynamicObject,
        entry: &Value,
    ) -> Result<Option<Claim>, SyncError> {
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let Some((name, generated)) = claim_name(pod, entry) else {
            return Ok(None);
        };
        // The pod may be observed before its claim.
        let claim = match self.known_claim(&(namespace.clone(), name.clone())) {
            Some(claim) => Some(claim),
            None => {
                let found = self.api.claim(&namespace, &name).await;
                found.map_err(|error| SyncError::of("get claim", &error))?
            }
        };
        let Some(claim) = claim.filter(|claim| is_classic(&claim.0)) else {
            return Ok(None);
        };
        if generated && claim.controller() != metadata.uid.as_deref() {
            let pod = metadata.name.as_deref().unwrap_or_default();
            return Err(SyncError::new(format!(
                "ResourceClaim {claim} was not created for pod {namespace}/{pod} (pod is not owner)"
            )));
        }
        Ok(Some(claim))
    }

    /// Publishes the unsuitable nodes of the claims.
    async fn answer<'a>(
        &self,
        negotiation: &Negotiation,
        answers: impl Iterator<Item = (&'a str, Vec<String>)>,
    ) -> Result<(), SyncError> {
        let mut object = DynamicObject::clone(&negotiation.0);
        let selected = negotiation.selected_node();
        let list = &mut object.data["status"]["resourceClaims"];
        if !list.is_array() {
            *list = json!([]);
        }
        // An array as of now.
        let Some(list) = list.as_array_mut() else {
            return Ok(());
        };
        let mut changed = false;
        for (name, mut nodes) in answers {
            truncate(&mut nodes, selected);
            let entry = json!({"name": name, "unsuitableNodes": nodes});
            match list.iter_mut().find(|known| known["name"] == name) {
                Some(known) if nodes_of(known) == nodes_of(&entry) => continue,
                Some(known) => *known = entry,
                None => list.push(entry),
            }
            changed = true;
        }
        if changed {
            let stored = self.api.update_negotiation_status(&object).await;
            let stored =
                stored.map_err(|error| SyncError::of("update unsuitable node status", &error))?;
            self.negotiations.wrote(stored.0);
        }
        Ok(())
    }
}

fn nodes_of(entry: &Value) -> &[Value] {
    entry["unsuitableNodes"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Cuts the list to the maximum; the selected node must be kept if it is in it.
fn truncate(nodes: &mut Vec<String>, selected: &str) {
    if nodes.len() > MAX_NODES {
        if let Some(at) = nodes.iter().position(|node| node == selected)
            && at >= MAX_NODES
        {
            nodes.swap(0, at);
        }
        nodes.truncate(MAX_NODES);
    }
}

/// The claim's name, and whether it was created for the pod. Up to 1.27 it follows from the pod's name; later releases
/// record it in the pod's status, and also accept an older claim.
fn claim_name(pod: &DynamicObject, entry: &Value) -> Option<(String, bool)> {
    let name = entry["name"].as_str()?;
    // Up to 1.30 the members are one level deeper.
    let source = if entry["source"].is_object() {
        &entry["source"]
    } else {
        entry
    };
    if let Some(name) = source["resourceClaimName"].as_str() {
        return Some((name.to_owned(), false));
    }
    let mut statuses = pod.data["status"]["resourceClaimStatuses"]
        .as_array()
        .into_iter()
        .flatten();
    match statuses.find(|status| status["name"] == name) {
        Some(status) => Some((status["resourceClaimName"].as_str()?.to_owned(), true)),
        None => {
            let pod = pod.metadata.name.as_deref()?;
            Some((format!("{pod}-{name}"), true))
        }
    }
}

/// The pod as drivers see it, in the newest form.
fn typed(pod: &DynamicObject) -> Result<Pod, SyncError> {
    let unexpected = |error| SyncError::new(format!("unexpected pod: {error}"));
    let mut value = serde_json::to_value(pod).map_err(unexpected)?;
    let claims = value["spec"]["resourceClaims"].as_array_mut();
    for claim in claims
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        if let Some(Value::Object(source)) = claim.remove("source") {
            claim.extend(source);
        }
    }
    serde_json::from_value(value).map_err(unexpected)
}
