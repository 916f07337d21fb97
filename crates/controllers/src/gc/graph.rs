//! The graph of owners and dependents.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{FOREGROUND, ORPHAN, group_of};
use crate::controller::members::{Members, SharedKey};
use crate::controller::meta;
use crate::inventory::{Kind, MetaObject};

#[cfg(test)]
mod tests;

/// Limit of remembered UIDs of owners that do not exist.
const REMEMBERED: usize = 500;

/// What an owner means for its dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The owner exists: the dependent stays.
    Solid,
    /// It waits for its dependents to be deleted first.
    Waiting,
    /// The owner does not exist.
    Gone,
}

/// An object in the graph: shared with the cache of its kind, since every object of the cluster is here.
#[derive(Clone)]
pub(super) struct Node {
    pub kind: Arc<Kind>,
    object: Arc<MetaObject>,
}

impl Node {
    fn new(kind: &Arc<Kind>, object: &Arc<MetaObject>) -> Self {
        Self {
            kind: kind.clone(),
            object: object.clone(),
        }
    }

    pub(super) fn uid(&self) -> &str {
        meta::uid(&*self.object)
    }

    pub(super) fn namespace(&self) -> &str {
        meta::namespace(&*self.object)
    }

    pub(super) fn name(&self) -> &str {
        meta::name(&*self.object)
    }

    /// The resource version.
    pub(super) fn version(&self) -> &str {
        let version = &self.object.metadata.resource_version;
        version.as_deref().unwrap_or_default()
    }

    pub(super) fn owners(&self) -> &[OwnerReference] {
        let owners = &self.object.metadata.owner_references;
        owners.as_deref().unwrap_or_default()
    }

    pub(super) fn finalizers(&self) -> &[String] {
        let finalizers = &self.object.metadata.finalizers;
        finalizers.as_deref().unwrap_or_default()
    }

    /// Whether deletion was requested.
    pub(super) fn is_deleting(&self) -> bool {
        meta::deleting(&*self.object)
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|f| f == finalizer)
    }

    fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has(FOREGROUND)
    }
}

/// What a live owner means for its dependents.
pub(super) fn verdict_of_live(obj: &MetaObject) -> Verdict {
    let foreground = obj
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == FOREGROUND);
    if meta::deleting(obj) && foreground {
        Verdict::Waiting
    } else {
        Verdict::Solid
    }
}

/// All objects, by UID, with the edges from owners to dependents. Nearly all owners have one dependent.
#[derive(Default)]
pub(super) struct Graph {
    nodes: FxHashMap<SharedKey, Node>,
    dependents: FxHashMap<SharedKey, Members>,
    absent: FxHashSet<String>,
    absent_order: VecDeque<String>,
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<Node> {
        self.nodes.get(uid).cloned()
    }

    pub(super) fn has_dependents(&self, uid: &str) -> bool {
        self.dependents.contains_key(uid)
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<Node> {
        self.dependents_of(uid)
            .filter_map(|d| self.nodes.get(d).cloned())
            .collect()
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &SharedKey> {
        self.dependents.get(uid).into_iter().flat_map(Members::iter)
    }

    /// A UID, shared with the other maps where an object has it.
    fn shared(&self, uid: &str) -> SharedKey {
        let known = self.nodes.get_key_value(uid);
        known.map_or_else(|| SharedKey::from(uid), |(known, _)| known.clone())
    }

    /// Adds or updates an object; returns the UIDs to process.
    pub(super) fn upsert(&mut self, kind: &Arc<Kind>, obj: &Arc<MetaObject>) -> Vec<String> {
        let node = Node::new(kind, obj);
        let shared = self.shared(node.uid());
        let uid = shared.to_string();
        let old = self.nodes.get(&shared).cloned();
        let old = old.as_ref();
        let old_owners = old.map(Node::owners).unwrap_or_default();
        let new = old.is_none();
        let was_waiting = old.is_some_and(Node::waits_for_dependents);
        let was_deleting = old.is_some_and(Node::is_deleting);
        for owner in old_owners {
            if node.owners().iter().all(|o| o.uid != owner.uid) {
                self.unlink(&owner.uid, &uid);
            }
        }
        for owner in node.owners() {
            match self.dependents.get_mut(owner.uid.as_str()) {
                Some(dependents) => dependents.add(&shared),
                None => {
                    let owner = self.shared(&owner.uid);
                    self.dependents.insert(owner, Members::new(&shared));
                }
            }
        }
        let mut work = Vec::new();
        let changed_owners =
            node.owners().len() != old_owners.len()
                || node.owners().iter().zip(old_owners).any(|(a, b)| {
                    a.uid != b.uid || a.block_owner_deletion != b.block_owner_deletion
                });
        if !node.is_deleting() && !node.owners().is_empty() && (new || changed_owners) {
            // Most owners are known and alive; only the others need processing.
            if node
                .owners()
                .iter()
                .any(|o| self.judge(&node, o) != Some(Verdict::Solid))
            {
                work.push(uid.clone());
            }
        }
        if node.is_deleting() && (node.has(FOREGROUND) || node.has(ORPHAN)) {
            work.push(uid.clone());
        }
        if node.waits_for_dependents() && !was_waiting {
            work.extend(self.dependents_of(&uid).map(|d| d.to_string()));
        }
        // An owner may wait for this dependent.
        if changed_owners || (node.is_deleting() && !was_deleting) {
            for owner in old_owners.iter().chain(node.owners()) {
                if self
                    .nodes
                    .get(owner.uid.as_str())
                    .is_some_and(Node::waits_for_dependents)
                {
                    work.push(owner.uid.clone());
                }
            }
        }
        self.nodes.insert(shared, node);
        work
    }

    /// Removes an object; returns the UIDs to process.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        self.remember_absent(uid);
        let mut work: Vec<String> = self.dependents_of(uid).map(|d| d.to_string()).collect();
        for owner in node.owners() {
            self.unlink(&owner.uid, uid);
            if self
                .nodes
                .get(owner.uid.as_str())
                .is_some_and(Node::waits_for_dependents)
            {
                work.push(owner.uid.clone());
            }
        }
        work
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner)
            && dependents.remove(dependent)
        {
            self.dependents.remove(owner);
        }
    }

    pub(super) fn remember_absent(&mut self, uid: &str) {
        if self.absent.insert(uid.to_owned()) {
            self.absent_order.push_back(uid.to_owned());
            if self.absent_order.len() > REMEMBERED
                && let Some(oldest) = self.absent_order.pop_front()
            {
                self.absent.remove(&oldest);
            }
        }
    }

    /// The state of an owner; `None` if it must be read from the API server.
    pub(super) fn judge(&self, node: &Node, owner: &OwnerReference) -> Option<Verdict> {
        let Some(found) = self.nodes.get(owner.uid.as_str()) else {
            return self.absent.contains(&owner.uid).then_some(Verdict::Gone);
        };
        let resource = &found.kind.resource;
        let matches = resource.kind == owner.kind
            && resource.group == group_of(&owner.api_version)
            && found.name() == owner.name
            && (!found.kind.namespaced || found.namespace() == node.namespace());
        if !matches {
            // A reference with the right UID and wrong coordinates: ask the API server.
            return None;
        }
        Some(if found.waits_for_dependents() {
            Verdict::Waiting
        } else {
            Verdict::Solid
        })
    }

    /// Whether a dependent blocks the foreground deletion of an owner, and which dependents must be
    /// deleted.
    pub(super) fn foreground_dependents(&self, uid: &str) -> (bool, Vec<String>) {
        let mut blocking = false;
        let mut pending = Vec::new();
        for dependent in self.dependents_of(uid) {
            let Some(node) = self.nodes.get(dependent) else {
                continue;
            };
            let blocks = node
                .owners()
                .iter()
                .any(|o| o.uid == uid && o.block_owner_deletion == Some(true));
            blocking |= blocks;
            if !node.is_deleting() {
                pending.push(dependent.to_string());
            }
        }
        (blocking, pending)
    }
}
