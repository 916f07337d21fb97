//! The algorithm: change per version, ownership, pruning.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Conflict, Conflicts, Error, FieldManager, Managed, Operation, gvk_text, managed::Entry,
    managed::Owner, meta_paths,
};
use crate::{
    Node,
    fields::Set,
    merge::{self, Comparison},
};

mod last_applied;

/// Entries of plain writers beyond this number are folded into one.
const MAX_UPDATERS: usize = 10;
/// The name of the entry that they are folded into.
const OLD_UPDATES: &str = "ancient-changes";

/// What changed in one version.
struct Changed {
    comparison: Comparison,
    /// Fields with a new value: modified or added.
    set: Set,
}

impl Changed {
    fn of(comparison: Comparison) -> Self {
        let set = comparison.modified.union(&comparison.added);
        Self { comparison, set }
    }
}

impl FieldManager<'_> {
    /// The owners after a plain write; none (nothing is tracked then) where the objects do not fit the schema, or where
    /// [`Versions::check`](super::Versions::check) fails: upstream removes `managedFields` after any error, and does not fail the write.
    pub(super) fn track(
        &self,
        live: &Value,
        new: &Value,
        managed: Managed,
        manager: &str,
    ) -> Option<Managed> {
        let node = self.versions.node(self.api_version)?;
        let both_fit = match node {
            // Built-in types do not change: what is stored fits.
            Node::Struct(_) => merge::fits_beside(new, live, node),
            _ => merge::fits(live, node) && merge::fits(new, node),
        };
        if !both_fit {
            return None;
        }
        let managed = self.reconcile(managed).ok()?;
        let (mut managed, comparison) = self.take(live, new, managed, None, true).ok()?;
        let changed = comparison
            .added
            .union(&comparison.modified)
            .difference(meta_paths());
        let owner = Owner {
            manager: manager.to_owned(),
            operation: Operation::Update,
            version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        };
        if !changed.is_empty() {
            let fields = match managed.owners.remove(&owner) {
                Some(entry) => entry.fields.union(&changed),
                None => changed,
            };
            let entry = Entry {
                api_version: self.api_version.to_owned(),
                time: self.time(),
                fields,
            };
            managed.owners.insert(owner, entry);
        }
        strip_meta(&mut managed);
        Some(managed)
    }

    /// The merged object and the owners after an apply.
    pub(super) fn join(
        &self,
        live: &Value,
        config: &Value,
        managed: Managed,
        manager: &str,
        force: bool,
    ) -> Result<(Value, Managed), Error> {
        let node = self
            .versions
            .node(self.api_version)
            .ok_or_else(|| self.unknown_version())?;
        let errors = merge::validate(config, node, false);
        if !errors.is_empty() {
            return Err(Error::Typed(format!(
                "failed to create typed patch object ({}; {}): {}",
                object_name(config),
                gvk_text(self.api_version, self.kind),
                merge::describe(&errors)
            )));
        }
        let errors = merge::validate(live, node, true);
        if !errors.is_empty() {
            return Err(Error::Typed(format!(
                "failed to create typed live object ({}; {}): {}",
                object_name(live),
                gvk_text(self.api_version, self.kind),
                merge::describe(&errors)
            )));
        }
        let mut managed = self.reconcile(managed)?;
        let merged = merge::merge(live, config, node);
        let owner = Owner {
            manager: manager.to_owned(),
            operation: Operation::Apply,
            version: String::new(),
            subresource: self.subresource.to_owned(),
        };
        let ignored = self.versions.reset_fields(self.api_version);
        let set = merge::field_set(config, node).recursive_difference(&ignored);
        let last = managed.owners.insert(
            owner.clone(),
            Entry {
                api_version: self.api_version.to_owned(),
                time: None,
                fields: set,
            },
        );
        let merged = self.prune(merged, &managed, last.as_ref());
        let (mut managed, _) = self.take(live, &merged, managed, Some(&owner), force)?;
        strip_meta(&mut managed);
        let unchanged = crate::fields::compare_values(live, &merged).is_eq();
        if let Some(entry) = managed.owners.get_mut(&owner) {
            // An apply that changes no value keeps the time, even for a new manager.
            entry.time = if unchanged {
                last.and_then(|last| last.time)
            } else {
                self.time()
            };
        }
        Ok((merged, managed))
    }

    /// The time of a write. Through `scale` it is not recorded: there upstream keeps the times of the object's own
    /// entries, and has none for those that come from the `Scale`.
    fn time(&self) -> Option<String> {
        (self.subresource != "scale").then(|| self.now.to_owned())
    }

    /// Ownership adjusted to a schema that changed since it was written.
    fn reconcile(&self, mut managed: Managed) -> Result<Managed, Error> {
        for entry in managed.owners.values() {
            self.versions
                .check(&entry.api_version)
                .map_err(|error| Error::Typed(error.to_string()))?;
        }
        managed
            .owners
            .retain(|_, entry| match self.versions.node(&entry.api_version) {
                Some(node) => {
                    if let Some(fields) = merge::reconcile(&entry.fields, node) {
                        entry.fields = fields;
                    }
                    true
                }
                None => false,
            });
        Ok(managed)
    }

    /// Takes the changed fields from their owners, `owner` excepted. Without force a changed field with an owner is a conflict.
    fn take(
        &self,
        live: &Value,
        new: &Value,
        mut managed: Managed,
        owner: Option<&Owner>,
        force: bool,
    ) -> Result<(Managed, Comparison), Error> {
        let own = self
            .compare_in(live, new, self.api_version)
            .unwrap_or_default();
        if own.is_same() {
            return Ok((managed, own));
        }
        let own = Changed::of(own);
        let mut versions: BTreeMap<String, Option<Changed>> = BTreeMap::new();
        let mut conflicts = Conflicts::default();
        let mut lost: Vec<(Owner, Set)> = Vec::new();
        let mut gone: Vec<Owner> = Vec::new();
        for (other, entry) in &managed.owners {
            if Some(other) == owner {
                continue;
            }
            let changed = if entry.api_version == self.api_version {
                &own
            } else {
                let changed = versions
                    .entry(entry.api_version.clone())
                    .or_insert_with(|| {
                        let comparison = self.compare_in(live, new, &entry.api_version)?;
                        Some(Changed::of(comparison))
                    });
                let Some(changed) = changed else {
                    gone.push(other.clone());
                    continue;
                };
                changed
            };
            if !force {
                let taken = entry.fields.intersection(&changed.set);
                conflicts
                    .0
                    .extend(taken.paths().into_iter().map(|path| Conflict {
                        owner: other.clone(),
                        path,
                    }));
            }
            let touched = entry.fields.overlaps(&changed.set)
                || entry.fields.overlaps(&changed.comparison.removed);
            if touched {
                let left = entry.fields.difference(&changed.set);
                lost.push((other.clone(), left.difference(&changed.comparison.removed)));
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts));
        }
        gone.iter().for_each(|other| {
            managed.owners.remove(other);
        });
        for (other, left) in lost {
            if let Some(entry) = managed.owners.get_mut(&other) {
                entry.fields = left;
            }
        }
        managed.owners.retain(|_, entry| !entry.fields.is_empty());
        Ok((managed, own.comparison))
    }

    fn compare_in(&self, live: &Value, new: &Value, api_version: &str) -> Option<Comparison> {
        let node = self.versions.node(api_version)?;
        let ignored = self.versions.reset_fields(api_version);
        if api_version == self.api_version {
            return Some(merge::compare(live, new, node).without(&ignored));
        }
        let live = self.versions.convert(live, api_version)?;
        let new = self.versions.convert(new, api_version)?;
        Some(merge::compare(&live, &new, node).without(&ignored))
    }

    /// Removes what the applier owned before and no longer contains, unless another manager owns it.
    fn prune(&self, merged: Value, managed: &Managed, last: Option<&Entry>) -> Value {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else {
            return merged;
        };
        let version = &last.api_version;
        let Some(node) = self.versions.node(version) else {
            return merged;
        };
        let Some(converted) = self.in_version(&merged, self.api_version, version) else {
            return merged;
        };
        let mut pruned = merge::remove(&converted, &merge::ensure_named(&last.fields, node), node);
        // Fields that other managers own, or the applier owns now, are added back.
        let mut by_version: BTreeMap<&str, Set> = BTreeMap::new();
        for entry in managed.owners.values() {
            let set = by_version.entry(&entry.api_version).or_default();
            *set = set.union(&entry.fields);
        }
        let mut whole = converted.clone();
        if let Some(owned) = by_version.remove(version.as_str()) {
            pruned = add_back(&whole, &pruned, &owned, node);
        }
        let mut at = version.as_str();
        for (other, owned) in by_version {
            let Some(other_node) = self.versions.node(other) else {
                continue;
            };
            let (Some(whole_there), Some(pruned_there)) = (
                self.in_version(&whole, at, other),
                self.in_version(&pruned, at, other),
            ) else {
                continue;
            };
            pruned = add_back(&whole_there, &pruned_there, &owned, other_node);
            whole = whole_there;
            at = other;
        }
        let Some(pruned) = self.in_version(&pruned, at, version) else {
            return merged;
        };
        // Only what the applier owned may go.
        let kept = merge::ensure_named(&merge::field_set(&pruned, node), node);
        let had = merge::ensure_named(&merge::field_set(&converted, node), node);
        let owned = merge::ensure_named(&last.fields, node);
        let result = merge::remove(
            &converted,
            &had.difference(&kept).intersection(&owned),
            node,
        );
        self.in_version(&result, version, self.api_version)
            .unwrap_or(merged)
    }

    fn in_version(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        if from == to {
            Some(object.clone())
        } else {
            self.versions.convert(object, to)
        }
    }

    /// Folds the oldest entries of plain writers together where there are too many.
    pub(super) fn cap(&self, mut managed: Managed) -> Managed {
        let mut updaters: Vec<Owner> = managed
            .owners
            .keys()
            .filter(|owner| owner.operation == Operation::Update)
            .cloned()
            .collect();
        if updaters.len() <= MAX_UPDATERS {
            return managed;
        }
        let time = |owner: &Owner| {
            managed
                .owners
                .get(owner)
                .and_then(|entry| entry.time.clone())
        };
        updaters.sort_by_key(|owner| (time(owner), owner.clone()));
        let mut first: BTreeMap<String, Owner> = BTreeMap::new();
        let mut count = updaters.len();
        for owner in updaters {
            if count <= MAX_UPDATERS {
                break;
            }
            let version = owner.version.clone();
            let Some(earlier) = first.get(&version).cloned() else {
                first.insert(version, owner);
                continue;
            };
            let bucket = Owner {
                manager: OLD_UPDATES.to_owned(),
                operation: Operation::Update,
                version,
                subresource: String::new(),
            };
            if !managed.owners.contains_key(&bucket)
                && let Some(entry) = managed.owners.remove(&earlier)
            {
                managed.owners.insert(bucket.clone(), entry);
            }
            if owner == bucket {
                continue;
            }
            if let Some(entry) = managed.owners.remove(&owner)
                && let Some(into) = managed.owners.get_mut(&bucket)
            {
                into.fields = into.fields.union(&entry.fields);
                into.time = entry.time;
                count -= 1;
            }
        }
        managed
    }
}

fn add_back(whole: &Value, pruned: &Value, owned: &Set, node: crate::Node<'_>) -> Value {
    let all = merge::ensure_named(&merge::field_set(whole, node), node);
    let left = merge::ensure_named(&merge::field_set(pruned, node), node);
    let owned = merge::ensure_named(owned, node);
    merge::remove(whole, &all.difference(&left.union(&owned)), node)
}

fn strip_meta(managed: &mut Managed) {
    let meta = meta_paths();
    managed.owners.retain(|_, entry| {
        if entry.fields.overlaps(meta) {
            entry.fields = entry.fields.difference(meta);
        }
        !entry.fields.is_empty()
    });
}

fn object_name(object: &Value) -> String {
    let meta = &object["metadata"];
    format!(
        "{}/{}",
        meta["namespace"].as_str().unwrap_or_default(),
        meta["name"].as_str().unwrap_or_default()
    )
}
