//! `PUT`, and the read-modify-write that all changes share.

use allot_apimachinery::Status;
use allot_schema::apply::Managed;
use allot_store::{Error as StoreError, Expect, Write};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::stored::Stored;
use crate::body::Body;
use crate::context::Call;
use crate::conversion;
use crate::encode::Respond as _;
use crate::error::{ApiError, Result};
use crate::limits::checkpoint;
use crate::numbers::parse_uint;
use crate::object::{meta, metadata_mut};
use crate::request::Part;
use crate::{services, strategy, versions};

mod finish;

/// How often an update is retried after a conflict.
pub(super) const ATTEMPTS: usize = 30;

pub(super) async fn update(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let part = Part::Main;
    let object = call.object_for_update(&body)?;
    checkpoint().await;
    if call.resource.rules.create_on_update
        && call
            .core
            .backend
            .get(&call.resource.collection, &call.key()?)
            .await?
            .is_none()
    {
        return call.create_by_update(object).await;
    }
    let stored = call.replace(part, object).await?;
    call.stored_response(200, stored).await
}

impl Call<'_> {
    /// The object in the body of an update; its name must be that of the path.
    pub(super) fn object_for_update(&self, bytes: &[u8]) -> Result<Value> {
        let mut object = self.object(bytes)?;
        self.check_namespace(&mut object)?;
        self.check_name(&object)?;
        Ok(object)
    }

    pub(super) fn check_name(&self, object: &Value) -> Result<()> {
        let sent = meta(object, "name");
        if sent.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.name()
            )));
        }
        if sent != self.name() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({})",
                self.name()
            )));
        }
        Ok(())
    }

    /// A `PUT` or apply of an object that does not exist.
    pub(super) async fn create_by_update(&self, mut object: Value) -> Result<Response<Body>> {
        let uid = meta(&object, "uid").to_owned();
        if !uid.is_empty() {
            return Err(self.uid_conflict(&uid, ""));
        }
        sent_version(&object)?;
        metadata_mut(&mut object).remove("resourceVersion");
        let stored = self.store_new(object, None).await?;
        self.stored_response(201, stored).await
    }

    pub(super) fn uid_conflict(&self, wanted: &str, found: &str) -> ApiError {
        self.precondition_failed("UID", wanted, found)
    }

    /// Upstream's storage error for an object with another UID or version than requested.
    pub(super) fn precondition_failed(&self, what: &str, wanted: &str, found: &str) -> ApiError {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}",
            strategy::storage_prefix(&self.resource),
            self.resource.key(self.namespace(), self.name()),
        );
        Status::conflict(&self.resource.group_resource(), self.name(), &why).into()
    }

    /// The answer with what a write left behind.
    pub(super) async fn stored_response(
        &self,
        code: u16,
        stored: Stored,
    ) -> Result<Response<Body>> {
        self.check_shape()?;
        match stored {
            Stored::Entry(entry) => {
                let entry = self.converted(entry).await?;
                self.view()
                    .object_response(code, &entry, self.media, self.table_options())
            }
            Stored::Value(mut object) => {
                if let Some(form) = self.resource.rules.stored_form {
                    (form.read)(&mut object);
                }
                let object = versions::convert(&self.resource, object, &self.version)?;
                Ok(self
                    .view()
                    .unstored_response(code, object, self.media, self.table_options()))
            }
        }
    }

    /// Updates the object of the path: `change` gets the current object in the request's version and returns the new
    /// one. Retried after a conflict, unless the client sent a resourceVersion.
    pub(super) async fn modify(
        &self,
        part: Part,
        mut change: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<Stored> {
        self.modify_owned(part, |current, _| Ok((change(current)?, None)))
            .await
    }

    /// As [`Call::modify`], for changes that see the owners of fields; an apply answers the new ones.
    pub(super) async fn modify_owned(
        &self,
        part: Part,
        mut change: impl FnMut(&Value, &Managed) -> Result<(Value, Option<Managed>)>,
    ) -> Result<Stored> {
        let key = self.key()?;
        // Through any part: a write of the status can take the last finalizer away.
        let service = self.resource.rules.allocates_addresses;
        for _ in 0..ATTEMPTS {
            let entry = self
                .core
                .backend
                .get(&self.resource.collection, &key)
                .await?;
            let entry = entry.ok_or_else(|| self.not_found())?;
            let stale = conversion::is_stale(&self.resource, &entry);
            let entry = self.converted(entry).await?;
            let old = versions::load(&self.resource, &entry.value)?;
            let seen = versions::seen(&self.resource, &old.object, &self.version)?;
            let changed = self.with_conversions(|| change(&seen, &old.owners));
            let changed = changed.await?;
            checkpoint().await;
            let (new, applied) = changed?;
            // Of a patch the uid is validated with the rest of the metadata.
            let uid = meta(&new, "uid");
            let patched = self.request.info.verb == "patch";
            if !patched && !uid.is_empty() && uid != meta(&old.object, "uid") {
                return Err(self.uid_conflict(uid, meta(&old.object, "uid")));
            }
            let unconditional = self.check_version(&new, entry.revision)?;
            let is_applied = applied.is_some();
            let finished = self.finish_update(new, applied, &old, &seen, part);
            let (new, _reserved) = finished.await?;
            if !stale
                && allot_schema::apply::same_content(&new.object, &old.object)
                && new.owners.same_but_times(&old.owners)
            {
                return Ok(Stored::Entry(entry));
            }
            let ended = strategy::is_finished(&self.resource, &new.object);
            if self.dry_run {
                return Ok(Stored::Value(new.whole()));
            }
            let collection = self.resource.collection.clone();
            let write = if ended {
                // Watchers see the stored object, the client the object it wrote.
                Write::delete(collection, key.as_str(), entry.revision, old.draft())
            } else {
                let expect = Expect::Revision(entry.revision);
                let (object, owners) = (&new.object, &new.owners);
                let draft = self.draft(object, owners, is_applied).await?;
                let marked = &old.object["metadata"]["deletionTimestamp"];
                Write::put(collection, key.as_str(), expect, draft).frees(marked.is_string())
            };
            match self.core.backend.commit(write).await {
                Ok(_) if ended => {
                    if service {
                        services::follow(self.core, Some(&old.object), None).await?;
                    }
                    let mut new = new.whole();
                    // The version that was read: what the client wrote is not stored.
                    metadata_mut(&mut new).insert(
                        "resourceVersion".to_owned(),
                        entry.revision.to_string().into(),
                    );
                    return Ok(Stored::Value(new));
                }
                Ok(entry) => {
                    if service {
                        services::follow(self.core, Some(&old.object), Some(&new.object)).await?;
                    }
                    return Ok(Stored::Entry(entry));
                }
                Err(StoreError::Conflict(_) | StoreError::NotFound) if unconditional => continue,
                Err(StoreError::Conflict(_)) => break,
                Err(StoreError::NotFound) => return Err(self.not_found()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.modified())
    }

    /// 409 because of a concurrent write.
    pub(super) fn modified(&self) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(&self.resource.group_resource(), self.name(), why).into()
    }

    /// Checks the client's resourceVersion; returns whether it sent none.
    fn check_version(&self, new: &Value, revision: u64) -> Result<bool> {
        let sent = sent_version(new)?;
        if sent == 0 {
            // A client that writes a scale need not have read the object.
            let whole = self.request.info.subresource != "scale";
            if whole
                && (self.resource.rules.requires_version)(&self.version)
                && self.request.info.verb == "update"
            {
                let path =
                    allot_apimachinery::field::Path::new("metadata").child("resourceVersion");
                let error = allot_apimachinery::field::Error::invalid(
                    &path,
                    0,
                    "must be specified for an update",
                );
                let kind = allot_apimachinery::gvk::GroupKind::new(
                    self.resource.group.as_str(),
                    self.resource.plural.as_str(),
                );
                return Err(Status::invalid(&kind, self.name(), &[error].into()).into());
            }
            return Ok(true);
        }
        match sent == revision {
            true => Ok(false),
            false => Err(self.modified()),
        }
    }
}

/// The version that an object names; 0 for none.
pub(super) fn sent_version(object: &Value) -> Result<u64> {
    match meta(object, "resourceVersion") {
        "" => Ok(0),
        sent => parse_uint(sent).map_err(ApiError::unknown),
    }
}
