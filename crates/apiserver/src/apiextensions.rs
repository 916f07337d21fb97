//! The controller of CustomResourceDefinitions: serves established CRDs and finalizes deleted ones.
//!
//! One task follows all CRDs. It accepts names, writes conditions, adds established resources to the registry, and
//! deletes the objects of CRDs that are being deleted before it removes their finalizer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_schema::definition;
use allot_store::{Entry, Error as StoreError, Expect, ListOptions, Write};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::Result;
use crate::object::{self, meta, metadata_mut, strings};
use crate::own_objects;
use crate::registry::{Resource, collection_name, of_definition};
use crate::state::ServerState;
use crate::storage;

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";
/// The store collection of CRDs.
const COLLECTION: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// The time to the next attempt after an error of the store, such as a full disk.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Serves the existing CRDs and starts to follow changes.
///
/// # Errors
/// Errors of the store.
pub async fn start(core: Arc<ServerState>) -> Result<()> {
    let mut state = State::default();
    let from = core.backend.revision();
    state.sync(&core).await?;
    tokio::spawn(async move {
        let mut from = from;
        // A watch that fell behind is restarted; the list contains the missed changes.
        while let Ok(mut watcher) = core.backend.watch(COLLECTION, "", from) {
            loop {
                let synced = state.sync(&core).await;
                if let Err(error) = &synced {
                    tracing::warn!(%error, "following custom resource definitions");
                }
                let ended = tokio::select! {
                    () = core.shutdown.cancelled() => return,
                    () = tokio::time::sleep(STORE_RETRY), if synced.is_err() => None,
                    () = state.instances.changed(&core) => None,
                    changes = watcher.changes() => Some(changes),
                };
                match ended {
                    None | Some(Ok(_)) => {}
                    Some(Err(StoreError::Closed)) => return,
                    Some(Err(_)) => break,
                }
            }
            from = core.backend.revision();
        }
    });
    Ok(())
}

#[derive(Default)]
struct State {
    /// The CRDs as they were read last, by key.
    known: HashMap<Arc<str>, Definition>,
    /// The compiled CRDs by key, with what they were compiled from.
    compiled: HashMap<Arc<str>, (Basis, Arc<Resource>)>,
    instances: Instances,
}

/// A CRD as it is stored.
struct Definition {
    entry: Arc<Entry>,
    /// The CRD without its versions and annotations. These have the schemas, which are read where they are needed only:
    /// there can be thousands of large ones.
    head: Value,
    /// The digest of its `spec`.
    spec: [u8; 32],
}

/// What a CRD is compiled from.
#[derive(PartialEq)]
struct Basis {
    /// The digest of `spec`.
    spec: [u8; 32],
    names: Value,
    terminating: bool,
}

impl Definition {
    fn read(entry: Arc<Entry>) -> Option<Self> {
        let mut head: Value = serde_json::from_slice(&entry.value).ok()?;
        let spec = Sha256::digest(head["spec"].to_string()).into();
        for (part, large) in [("spec", "versions"), ("metadata", "annotations")] {
            if let Some(fields) = head.get_mut(part).and_then(Value::as_object_mut) {
                fields.remove(large);
            }
        }
        Some(Definition { entry, head, spec })
    }

    /// All of it, with the status of the head.
    fn whole(&self) -> Value {
        // What the store holds was written by this server as JSON.
        let mut whole: Value = serde_json::from_slice(&self.entry.value).unwrap_or_default();
        if let Some(status) = self.head.get("status") {
            whole["status"] = status.clone();
        }
        whole
    }

    fn basis(&self) -> Basis {
        Basis {
            spec: self.spec,
            names: self.head["status"]["acceptedNames"].clone(),
            terminating: definition::is_true(&self.head, "Terminating"),
        }
    }
}

/// The collections of CRDs whose objects are being deleted.
#[derive(Default)]
struct Instances(Vec<String>);

impl Instances {
    /// Waits until something changes in one of the collections.
    async fn changed(&self, core: &ServerState) {
        let from = core.backend.revision();
        let mut waits = Vec::new();
        for collection in &self.0 {
            if let Ok(mut watcher) = core.backend.watch(collection, "", from) {
                waits.push(Box::pin(async move {
                    let _ = watcher.changes().await;
                }));
            }
        }
        if waits.is_empty() {
            std::future::pending::<()>().await;
        }
        futures::future::select_all(waits).await;
    }
}

impl State {
    /// Updates the status of the CRDs and the registry to match the stored CRDs.
    async fn sync(&mut self, core: &Arc<ServerState>) -> Result<()> {
        let page = core
            .backend
            .list(COLLECTION, ListOptions::default())
            .await?;
        let mut known = std::mem::take(&mut self.known);
        let mut entries: Vec<Definition> = Vec::new();
        for entry in page.entries {
            let same = known.remove(&entry.key);
            let same = same.filter(|it| it.entry.revision == entry.revision);
            entries.extend(same.or_else(|| Definition::read(entry)));
        }
        self.instances.0.clear();
        let mut accepted = Vec::new();
        for index in 0..entries.len() {
            let value = &entries[index].head;
            let is_accepted = value["spec"]["names"] == value["status"]["acceptedNames"]
                && definition::is_true(value, "Established");
            if is_accepted || is_deleted(value) {
                continue;
            }
            let mut new = value.clone();
            let others = entries.iter().enumerate();
            let others = others.filter(|(other, _)| *other != index);
            definition::accept_names(
                &mut new,
                others.map(|(_, other)| &other.head),
                &object::now(),
            );
            if new != *value {
                let before = std::mem::replace(&mut entries[index].head, new);
                accepted.push((index, before));
            }
        }
        // A client that reads of an established CRD may use its objects at once, so they are served before. So are those
        // of a deleted one in their last state, which refuses new objects, before they are deleted.
        self.publish(core, &entries);
        let mut is_current = true;
        for (index, before) in accepted {
            let Definition { entry, .. } = &entries[index];
            let new = entries[index].whole();
            let draft =
                own_objects::status_draft(&core.registry.load(), GROUP, PLURAL, entry, &new);
            let write = Write::put(
                COLLECTION,
                &*entry.key,
                Expect::Revision(entry.revision),
                draft?,
            )
            // Objects of a CRD that is not served cannot be deleted, so deletions depend on this write.
            .frees(true);
            match core.backend.commit(write).await {
                Ok(written) => entries[index].entry = written,
                // The CRD was changed concurrently; the watch reports the change.
                Err(StoreError::Conflict(_) | StoreError::NotFound) => {
                    entries[index].head = before;
                    is_current = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !is_current {
            self.publish(core, &entries);
        }
        for definition in entries.iter().filter(|it| is_deleted(&it.head)) {
            self.finish(core, definition).await?;
        }
        let by_key = |it: Definition| (it.entry.key.clone(), it);
        self.known = entries.into_iter().map(by_key).collect();
        crate::apiservices::sync(core).await
    }

    /// Adds the established resources to the registry and removes all other custom resources.
    fn publish(&mut self, core: &ServerState, definitions: &[Definition]) {
        let mut current = HashMap::new();
        let established = |it: &&Definition| definition::is_true(&it.head, "Established");
        for definition in definitions.iter().filter(established) {
            let (key, basis) = (definition.entry.key.clone(), definition.basis());
            let made = match self.compiled.remove(&key) {
                Some((before, made)) if before == basis => made,
                before => {
                    let value = definition.whole();
                    let mut new = of_definition(&value, crate::conversion::webhook_of(&value));
                    if let Some((served, made)) = before {
                        let same = served.spec == basis.spec && served.names == basis.names;
                        if same && let (Some(new), Some(old)) = (&mut new.custom, &made.custom) {
                            // The value is not shared yet.
                            if let Some(new) = Arc::get_mut(new) {
                                new.follows(old);
                            }
                        } else {
                            self.compiled.insert(key.clone(), (served, made));
                        }
                    }
                    Arc::new(new)
                }
            };
            current.insert(key, (basis, made));
        }
        // The remaining CRDs were deleted or have changed.
        let ended = std::mem::take(&mut self.compiled);
        self.compiled = current;
        core.registry.rcu(|registry| {
            let mut registry = (**registry).clone();
            let gone: Vec<(String, String)> = registry
                .iter()
                .filter(|resource| resource.custom.is_some())
                .map(|resource| (resource.group.clone(), resource.plural.clone()))
                .collect();
            for (group, plural) in gone {
                registry.remove(&group, &plural);
            }
            for (_, made) in self.compiled.values() {
                registry.insert_custom((**made).clone());
            }
            registry
        });
        for custom in ended.values().filter_map(|(_, made)| made.custom.as_ref()) {
            custom.ended().cancel();
        }
    }

    /// Deletes the objects of a CRD that is being deleted, then removes the CRD's finalizer.
    async fn finish(&mut self, core: &Arc<ServerState>, definition: &Definition) -> Result<()> {
        let Definition {
            entry, head: value, ..
        } = definition;
        let finalizers = strings(&value["metadata"]["finalizers"]);
        if !finalizers
            .iter()
            .any(|finalizer| finalizer == definition::CLEANUP_FINALIZER)
        {
            return Ok(());
        }
        let names = &value["status"]["acceptedNames"];
        let plural = names["plural"].as_str().unwrap_or_default();
        let group = value["spec"]["group"].as_str().unwrap_or_default();
        let collection = collection_name(group, plural);
        // A definition has no objects under the name of a built-in kind.
        let has_own = !plural.is_empty() && !core.registry.load().is_builtin(group, plural);
        if has_own && delete_all(core, &collection).await? > 0 {
            self.instances.0.push(collection.to_string());
            return Ok(());
        }
        let mut new = definition.whole();
        let message = "removed all instances";
        definition::set_condition(
            &mut new,
            "Terminating",
            "False",
            "InstanceDeletionCompleted",
            message,
            &object::now(),
        );
        let rest: Vec<String> = finalizers
            .into_iter()
            .filter(|finalizer| finalizer != definition::CLEANUP_FINALIZER)
            .collect();
        let last = rest.is_empty();
        let metadata = metadata_mut(&mut new);
        if last {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), rest.into());
        }
        let draft = own_objects::status_draft(&core.registry.load(), GROUP, PLURAL, entry, &new)?;
        let write = if last {
            Write::delete(COLLECTION, &*entry.key, entry.revision, draft)
        } else {
            Write::put(
                COLLECTION,
                &*entry.key,
                Expect::Revision(entry.revision),
                draft,
            )
            .frees(true)
        };
        match core.backend.commit(write).await {
            Ok(_) | Err(StoreError::Conflict(_) | StoreError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a CRD is being deleted.
fn is_deleted(value: &Value) -> bool {
    !meta(value, "deletionTimestamp").is_empty()
}

/// Deletes all objects of a collection; objects with finalizers get a deletion timestamp. Returns the number of
/// remaining objects.
async fn delete_all(core: &ServerState, collection: &str) -> Result<usize> {
    let page = core
        .backend
        .list(collection, ListOptions::default())
        .await?;
    let mut left = 0;
    for entry in page.entries {
        let Ok(mut value) = serde_json::from_slice::<Value>(&entry.value) else {
            continue;
        };
        let held = value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        let write = if held {
            left += 1;
            if !meta(&value, "deletionTimestamp").is_empty() {
                continue;
            }
            let metadata = metadata_mut(&mut value);
            metadata.insert("deletionTimestamp".to_owned(), object::now().into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            Write::put(
                collection,
                &*entry.key,
                Expect::Revision(entry.revision),
                storage::draft(&value),
            )
            .frees(true)
        } else {
            Write::delete(
                collection,
                &*entry.key,
                entry.revision,
                storage::draft(&value),
            )
        };
        match core.backend.commit(write).await {
            Ok(_) | Err(StoreError::NotFound) => {}
            Err(StoreError::Conflict(_)) => left += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// All schemas were kept as trees, a hundred times as large as their text, to compare them with the next state.
    #[test]
    fn regression_schemas_are_not_kept_as_trees() {
        let definition = |note: &str, served: bool| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "description": note}});
            let version =
                json!({"name": "v1", "served": served, "storage": true, "schema": schema});
            let names = json!({"plural": "things", "kind": "Thing"});
            let object = json!({
                "spec": {"group": "g", "names": names, "versions": [version]}, "status": {"acceptedNames": names},
            });
            let bytes = object.to_string().into_bytes();
            let entry = Arc::new(Entry::new("things.g".into(), 1, bytes.into()));
            (Definition::read(entry).unwrap(), object)
        };
        let (mut known, object) = definition("a", true);
        assert_eq!(
            known.head["spec"],
            json!({"group": "g", "names": object["spec"]["names"]})
        );
        assert_eq!(known.whole(), object);
        assert!(known.basis() == definition("a", true).0.basis());
        assert!(known.basis() != definition("b", true).0.basis());
        assert!(known.basis() != definition("a", false).0.basis());
        known.head["status"]["acceptedNames"]["kind"] = "Other".into();
        assert_eq!(known.whole()["status"]["acceptedNames"]["kind"], "Other");
        assert!(known.basis() != definition("a", true).0.basis());
    }
}
