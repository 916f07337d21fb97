//! `DELETE`: at once, or by finalizers and grace periods.

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;
use allot_store::{Error as StoreError, Expect, Write};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::create::Stored;
use crate::admission::{self, Attributes, Operation, Owners};
use crate::body::Body;
use crate::context::Call;
use crate::conversion;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::object::{self, meta, metadata_mut, strings};
use crate::registry::Resource;
use crate::request::{DeleteOptions, Preconditions, Propagation};
use crate::storage::{self, Owned};
use crate::{pods, services, versions};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
const ATTEMPTS: usize = 30;
/// They go only with all others.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// What a delete led to.
pub(super) enum Deleted {
    /// Gone; the last state.
    Gone(Value),
    /// Marked; it goes when grace period or finalizers end.
    Pending(Stored),
}

pub(super) async fn delete(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    call.check_path_name()?;
    let options = DeleteOptions::of(&call, &body)?;
    call.warn_of_orphans(&options);
    if call.resource.is("scheduling.k8s.io", "priorityclasses")
        && SYSTEM_CLASSES.contains(&call.name())
    {
        let why = "this is a system priority class and cannot be deleted";
        let resource = call.resource.group_resource();
        return Err(Status::forbidden(&resource, call.name(), why).into());
    }
    let deleted = call
        .delete_one(call.name(), call.namespace(), &options)
        .await?;
    // Only a client that asks in the old way is told that the object is still there.
    let code = match (&deleted, options.orphan_dependents) {
        (Deleted::Pending(_), Some(false)) => 202,
        _ => 200,
    };
    call.deleted_response(code, deleted).await
}

impl Call<'_> {
    /// Jobs leave their pods behind unless the client says otherwise, which is seldom meant.
    fn warn_of_orphans(&self, options: &DeleteOptions) {
        if self.resource.is("batch", "jobs") && options.propagation.is_none() {
            self.request.warnings.add(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning",
            );
        }
    }

    pub(super) async fn deleted_response(
        &self,
        code: u16,
        deleted: Deleted,
    ) -> Result<Response<Body>> {
        match deleted {
            Deleted::Pending(stored) => self.stored_response(code, stored).await,
            Deleted::Gone(object) if answers_with_object(&self.resource) => {
                let object = versions::convert(&self.resource, object, &self.version)?;
                Ok(self
                    .view()
                    .unstored_response(200, object, self.media, self.table_options()))
            }
            Deleted::Gone(object) => {
                let mut details = json!({
                    "name": meta(&object, "name"), "kind": self.resource.plural, "uid": meta(&object, "uid"),
                });
                if !self.resource.group.is_empty() {
                    details["group"] = self.resource.group.as_str().into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                let media = crate::negotiate::Media {
                    shape: crate::negotiate::Shape::Whole,
                    ..self.media
                };
                Ok(value_response(200, &status, media))
            }
        }
    }

    /// Deletes one object or starts to.
    pub(super) async fn delete_one(
        &self,
        name: &str,
        namespace: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let resource: GroupResource = self.resource.group_resource();
        let key = self.resource.key(namespace, name);
        for _ in 0..ATTEMPTS {
            let entry = self
                .core
                .backend
                .get(&self.resource.collection, &key)
                .await?;
            let entry = entry.ok_or_else(|| ApiError::from(Status::not_found(&resource, name)))?;
            let entry = self.converted(entry).await?;
            let Owned {
                object: old,
                owners,
            } = versions::load(&self.resource, &entry.value)?;
            check_preconditions(&self.resource, name, &old, &options.preconditions)?;
            let known = Owners {
                new: None,
                old: Some(&owners),
            };
            let attributes = Attributes {
                operation: Operation::Delete,
                resource: &self.resource,
                subresource: "",
                namespace,
                name,
                user: &self.request.user,
                old: Some(&old),
                dry_run: options.dry_run,
                // The end of a pod that is evicted has been admitted as an eviction.
                asked: (self.request.info.subresource.is_empty())
                    .then(|| self.asked(Some(options), known)),
            };
            admission::mutate(self.core, &attributes, &mut Value::Null).await?;
            admission::validate(self.core, &attributes, &Value::Null, &self.request.warnings)
                .await?;
            let mut new = old.clone();
            let definition = self
                .resource
                .is("apiextensions.k8s.io", "customresourcedefinitions");
            if definition && meta(&new, "deletionTimestamp").is_empty() {
                crate::apiextensions::mark_deleted(&mut new);
            }
            let generation = new["metadata"].get("generation").cloned();
            let gone = mark(&self.resource, &mut new, options);
            if definition {
                // Upstream marks a definition by an update that does no more than that.
                let metadata = metadata_mut(&mut new);
                metadata.remove("deletionGracePeriodSeconds");
                if let Some(generation) = generation {
                    metadata.insert("generation".to_owned(), generation);
                }
            }
            let draft = if gone {
                storage::draft_owned(&new, &owners)
            } else {
                conversion::draft(self.core, &self.resource, &new, &owners).await?
            };
            let whole = |object| {
                let owners = owners.clone();
                Owned { object, owners }.whole()
            };
            if options.dry_run {
                let new = whole(new);
                return Ok(if gone {
                    Deleted::Gone(new)
                } else {
                    Deleted::Pending(Stored::Value(new))
                });
            }
            if !gone && new == old {
                return Ok(Deleted::Pending(Stored::Entry(entry)));
            }
            let collection = self.resource.collection.clone();
            if gone && new != old {
                // A pod is marked before it goes, as watchers expect it.
                let expect = Expect::Revision(entry.revision);
                let write = Write::put(collection, key.as_str(), expect, draft.clone()).frees(true);
                match self.core.backend.commit(write).await {
                    Ok(marked) => {
                        let collection = self.resource.collection.clone();
                        let write = Write::delete(collection, key.as_str(), marked.revision, draft);
                        match self.core.backend.commit(write).await {
                            Ok(_) | Err(StoreError::NotFound) => {}
                            Err(StoreError::Conflict(_)) => continue,
                            Err(error) => return Err(error.into()),
                        }
                        let revision = marked.revision.to_string();
                        metadata_mut(&mut new)
                            .insert("resourceVersion".to_owned(), revision.into());
                        return Ok(Deleted::Gone(whole(new)));
                    }
                    Err(StoreError::Conflict(_) | StoreError::NotFound) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            let write = if gone {
                Write::delete(collection, key.as_str(), entry.revision, draft)
            } else {
                Write::put(
                    collection,
                    key.as_str(),
                    Expect::Revision(entry.revision),
                    draft,
                )
                .frees(true)
            };
            match self.core.backend.commit(write).await {
                Ok(written) if gone => {
                    if self.resource.is("", "services") {
                        services::follow(self.core, Some(&old), None).await?;
                    }
                    let mut last = versions::stored(&self.resource, &written.value)?;
                    // The answer shows the object as it was stored, the watch event the time of its end.
                    metadata_mut(&mut last).insert(
                        "resourceVersion".to_owned(),
                        entry.revision.to_string().into(),
                    );
                    return Ok(Deleted::Gone(last));
                }
                Ok(written) => return Ok(Deleted::Pending(Stored::Entry(written))),
                Err(StoreError::Conflict(_) | StoreError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.modified())
    }
}

/// Kinds whose dependents stay when the client does not say what is to become of them. kubectl always says it.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("batch", "jobs") || resource.is("", "replicationcontrollers")
}

/// Marks an object as deleted; says whether nothing holds it any more.
fn mark(resource: &Resource, object: &mut Value, options: &DeleteOptions) -> bool {
    let namespaces = resource.is("", "namespaces");
    let mut finalizers = strings(&object["metadata"]["finalizers"]);
    let decided = |it: &String| it == ORPHAN || it == FOREGROUND;
    let by_default = match orphans_by_default(resource) && !finalizers.iter().any(decided) {
        true => Some(Propagation::Orphan),
        false => None,
    };
    if let Some(wanted) = options.propagation.or(by_default) {
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        match wanted {
            Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
            Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
            Propagation::Background => {}
        }
    }
    let held = !finalizers.is_empty()
        || (namespaces
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty()));
    let grace = if resource.is("", "pods") {
        pods::grace_period(object, options.grace_period_seconds)
    } else {
        0
    };
    let already = object["metadata"]["deletionTimestamp"].is_string();
    let known_grace = object["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    if !held && grace == 0 && !resource.is("", "pods") {
        return true;
    }
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
    if !already || grace < known_grace {
        let seconds = if grace > 0 { grace } else { 0 };
        let end = jiff::Timestamp::now()
            + jiff::SignedDuration::from_secs(seconds.min(i64::from(u32::MAX)));
        if !already && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
        metadata.insert(
            "deletionTimestamp".to_owned(),
            object::timestamp(end).into(),
        );
        // A namespace ends when it is empty, not after a time.
        if !namespaces {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
        }
    }
    if namespaces {
        object["status"]["phase"] = "Terminating".into();
    }
    !held && grace == 0
}

/// A marked object that nothing holds any more: the update that brought it here removes it.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && !(resource.is("", "namespaces")
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty()))
}

/// Kinds whose deletion answers with the object instead of a Status.
fn answers_with_object(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "" => matches!(
            resource.plural.as_str(),
            "pods"
                | "podtemplates"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => resource.plural != "csistoragecapacities",
        "policy" => false,
        _ => false,
    }
}

pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    preconditions: &Preconditions,
) -> Result<()> {
    let conflict = |what: &str, wanted: &str, found: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might \
             have been deleted and then recreated"
        );
        let why = if what == "UID" {
            why
        } else {
            format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been modified"
            )
        };
        let kind = GroupResource::new(resource.group.as_str(), resource.kind.as_str());
        Err(Status::conflict(&kind, name, &why).into())
    };
    if let Some(uid) = &preconditions.uid
        && uid != meta(object, "uid")
    {
        return conflict("UID", uid, meta(object, "uid"));
    }
    if let Some(version) = &preconditions.resource_version
        && version != meta(object, "resourceVersion")
    {
        return conflict("ResourceVersion", version, meta(object, "resourceVersion"));
    }
    Ok(())
}

/// `DELETE` on a collection: one delete per object that the selectors choose.
pub(super) async fn delete_collection(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    // What is to be deleted is read first, as for a list.
    let (entries, meta) = super::read::page(&call).await?;
    let options = DeleteOptions::of(&call, &body)?;
    call.warn_of_orphans(&options);
    for entry in &entries {
        let (namespace, name) = match entry.key.split_once('/') {
            Some((namespace, name)) if call.resource.namespaced => (namespace, name),
            _ => ("", &*entry.key),
        };
        match call.delete_one(name, namespace, &options).await {
            Ok(_) => {}
            // Somebody else has deleted it.
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    super::read::respond(&call, entries, meta).await
}
