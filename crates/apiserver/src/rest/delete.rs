//! `DELETE`: at once, or by finalizers and grace periods.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;
use allot_schema::apply::Managed;
use allot_store::{Entry, Error as StoreError, Expect, Write};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::options::delete_options;
use super::stored::Stored;
use crate::admission::{self, Attributes, Operation, Owners};
use crate::body::Body;
use crate::context::Call;
use crate::conversion;
use crate::encode::{Respond as _, value_response};
use crate::error::{ApiError, Result};
use crate::limits::checkpoint;
use crate::object::{meta, metadata_mut};
use crate::registry::Resource;
use crate::request::{DeleteOptions, Preconditions};
use crate::select::extract;
use crate::storage::{self, Owned};
use crate::{services, strategy, versions};

const ATTEMPTS: usize = 30;
/// What a delete led to.
pub(super) enum Deleted {
    /// Deleted; the last state.
    Gone(Value),
    /// Marked; it is deleted when grace period or finalizers end.
    Pending(Stored),
}

pub(super) async fn delete(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    call.check_path_name()?;
    let options = delete_options(&call, &body)?;
    call.warn_of_orphans(&options);
    if let Some(why) = strategy::refuses_delete(&call.resource, call.name()) {
        let resource = call.resource.group_resource();
        return Err(Status::forbidden(&resource, call.name(), why).into());
    }
    let deleted = call
        .delete_one(call.name(), call.namespace(), &options)
        .await?;
    // Only a client that uses the deprecated option learns that the object still exists.
    let code = match (&deleted, options.orphan_dependents) {
        (Deleted::Pending(_), Some(false)) => 202,
        _ => 200,
    };
    call.deleted_response(code, deleted).await
}

impl Call<'_> {
    fn warn_of_orphans(&self, options: &DeleteOptions) {
        if let Some(warning) = crate::warnings::on_delete(&self.resource, options) {
            self.request.warnings.add(warning);
        }
    }

    pub(super) async fn deleted_response(
        &self,
        code: u16,
        deleted: Deleted,
    ) -> Result<Response<Body>> {
        match deleted {
            Deleted::Pending(stored) => self.stored_response(code, stored).await,
            Deleted::Gone(object) if (self.resource.rules.delete_returns_object)(&self.version) => {
                self.check_shape()?;
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
                let media = crate::negotiate::MediaType {
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
        self.delete_listed(name, namespace, options, None).await
    }

    /// As [`Self::delete_one`], of an object that a list showed with this UID. One that was created under the same name
    /// since then is not in the list, and counts as not found.
    async fn delete_listed(
        &self,
        name: &str,
        namespace: &str,
        options: &DeleteOptions,
        listed: Option<&str>,
    ) -> Result<Deleted> {
        let resource: GroupResource = self.resource.group_resource();
        self.check_path_namespace(name)?;
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
            if listed.is_some_and(|uid| uid != meta(&old, "uid")) {
                return Err(Status::not_found(&resource, name).into());
            }
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
            if let Some(deleted) = self.end(&entry, old, &owners, &key, options).await? {
                return Ok(deleted);
            }
        }
        Err(self.modified())
    }

    /// Deletes the object as it was read, or marks it if it has to end first. None if it has changed meanwhile.
    async fn end(
        &self,
        entry: &Arc<Entry>,
        old: Value,
        owners: &Managed,
        key: &str,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>> {
        let whole = |object| {
            let owners = owners.clone();
            Owned { object, owners }.whole()
        };
        let mut new = old.clone();
        let gone = strategy::prepare_for_delete(&self.resource, &mut new, options);
        if options.dry_run {
            return Ok(Some(match gone {
                true => Deleted::Gone(whole(new)),
                false => Deleted::Pending(Stored::Value(whole(new))),
            }));
        }
        if !gone && new == old {
            return Ok(Some(Deleted::Pending(Stored::Entry(entry.clone()))));
        }
        let collection = || self.resource.collection.clone();
        let expect = Expect::Revision(entry.revision);
        if !gone {
            let draft = conversion::draft(self.core, &self.resource, &new, owners).await?;
            let write = Write::put(collection(), key, expect, draft).frees(true);
            let marked = self.commit_unless_changed(write).await?;
            return Ok(marked.map(|marked| Deleted::Pending(Stored::Entry(marked))));
        }
        let draft = storage::draft_owned(&new, owners);
        if new != old {
            // A pod is marked before it is deleted, as watchers expect.
            let write = Write::put(collection(), key, expect, draft.clone()).frees(true);
            let Some(marked) = self.commit_unless_changed(write).await? else {
                return Ok(None);
            };
            let write = Write::delete(collection(), key, marked.revision, draft);
            match self.core.backend.commit(write).await {
                Ok(_) | Err(StoreError::NotFound) => {}
                Err(StoreError::Conflict(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            let revision = marked.revision.to_string();
            metadata_mut(&mut new).insert("resourceVersion".to_owned(), revision.into());
            return Ok(Some(Deleted::Gone(whole(new))));
        }
        let write = Write::delete(collection(), key, entry.revision, draft);
        let Some(written) = self.commit_unless_changed(write).await? else {
            return Ok(None);
        };
        if self.resource.rules.allocates_addresses {
            services::follow(self.core, Some(&old), None).await?;
        }
        let last = versions::stored(&self.resource, &written.value)?;
        Ok(Some(Deleted::Gone(last)))
    }

    /// Commits a write that expects a revision. None if the object has another one, or is gone.
    async fn commit_unless_changed(&self, write: Write) -> Result<Option<Arc<Entry>>> {
        match self.core.backend.commit(write).await {
            Ok(written) => Ok(Some(written)),
            Err(StoreError::Conflict(_) | StoreError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    preconditions: &Preconditions,
) -> Result<()> {
    let conflict = |what: &str, wanted: &str, found: &str| {
        // Those of namespaces are compared before others, in other words.
        if resource.rules.is_namespace {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            );
            return Err(Status::conflict(&resource.group_resource(), name, &why).into());
        }
        let happened = match what {
            "UID" => "been deleted and then recreated",
            _ => "been modified",
        };
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might \
             have {happened}"
        );
        let kind = resource.group_kind();
        let kind = GroupResource::new(kind.group, kind.kind);
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
    // The objects to delete are read first, as for a list.
    let (entries, of_list) = super::read::page(&call).await?;
    let options = delete_options(&call, &body)?;
    call.warn_of_orphans(&options);
    for entry in &entries {
        let (namespace, name) = match entry.key.split_once('/') {
            Some((namespace, name)) if call.resource.namespaced => (namespace, name),
            _ => ("", &*entry.key),
        };
        checkpoint().await;
        let listed = extract(&entry.value, &["metadata.uid"]);
        match call
            .delete_listed(name, namespace, &options, Some(meta(&listed, "uid")))
            .await
        {
            Ok(_) => {}
            // The object was deleted concurrently.
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    call.check_shape()?;
    super::read::respond(&call, entries, of_list).await
}

#[cfg(test)]
mod tests {
    use allot_model::features::Release;

    use super::*;
    use crate::builtin;
    use crate::registry::RuntimeConfig;

    #[test]
    fn regression_events_of_both_groups_are_of_one_kind() {
        let registry = builtin::registry(&RuntimeConfig::default(), Release::DEFAULT);
        let preconditions = Preconditions {
            uid: Some("x".to_owned()),
            ..Preconditions::default()
        };
        let object = json!({"metadata": {"uid": "y"}});
        for (group, plural, kind) in [
            ("", "events", "Event"),
            ("events.k8s.io", "events", "Event"),
            ("apps", "deployments", "Deployment.apps"),
        ] {
            let resource = registry.get(group, plural).unwrap();
            let error = check_preconditions(resource, "e", &object, &preconditions).unwrap_err();
            let text = error.0.to_json()["message"].as_str().unwrap().to_owned();
            let expected = format!("Operation cannot be fulfilled on {kind} \"e\": the UID");
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}
