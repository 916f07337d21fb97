//! `POST` on a collection.

use allot_apimachinery::Status;
use allot_schema::apply::Managed;
use allot_store::{Entry, Error as StoreError, Expect, Write};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use crate::admission::{self, Attributes, Operation, Owners};
use crate::auth::AuthorizerAttributes;
use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::limits::checkpoint;
use crate::numbers::parse_uint;
use crate::object::{self, meta, metadata_mut};
use crate::registry::Create;
use crate::storage::Owned;
use crate::{managed, services, strategy, versions};

mod name;

use super::stored::Stored;
use name::NewName;

/// How often a generated name may collide before the client must retry.
const NAME_ATTEMPTS: usize = 8;

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let mut object = call.object(&body)?;
    checkpoint().await;
    call.check_namespace(&mut object)?;
    match call.resource.rules.create {
        Create::Store => {}
        Create::Bind => return super::sub::binding::create_top_level(call, object).await,
        Create::Review(review) => {
            call.admit_sent(Operation::Create, &mut object).await?;
            return crate::reviews::answer(&call, review, &object).await;
        }
    }
    let created = call.store_new(object, None).await?;
    call.stored_response(201, created).await
}

impl Call<'_> {
    /// The namespace of the body must be that of the path; it is filled in if absent.
    pub(super) fn check_namespace(&self, object: &mut Value) -> Result<()> {
        let sent = meta(object, "namespace").to_owned();
        if !self.resource.namespaced {
            metadata_mut(object).remove("namespace");
            return Ok(());
        }
        if !sent.is_empty() && sent != self.namespace() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata_mut(object).insert("namespace".to_owned(), self.namespace().into());
        Ok(())
    }

    /// Defaults, admits, validates and stores a new object; an apply passes its field ownership.
    pub(super) async fn store_new(
        &self,
        mut object: Value,
        applied: Option<Managed>,
    ) -> Result<Stored> {
        let sent_revision = drop_system_metadata(&mut object);
        let is_applied = applied.is_some();
        let owners = self.default_new(&mut object, applied);
        checkpoint().await;
        managed::show_unusual(&owners, &mut object);
        let mut object = versions::to_internal(&self.resource, object)?;
        let name = NewName::of(&object);
        if name.is_missing() && self.resource.rules.names_by_uuid {
            let name = uuid::Uuid::new_v4().to_string();
            metadata_mut(&mut object).insert("name".to_owned(), name.into());
        }
        let new = Some(&owners);
        let attributes = Attributes {
            operation: Operation::Create,
            resource: &self.resource,
            subresource: &self.request.info.subresource,
            namespace: self.namespace(),
            name: &name.sent,
            user: &self.request.user,
            old: None,
            dry_run: self.dry_run,
            asked: Some(self.asked(None, Owners { new, old: None })),
        };
        self.provide_namespace(&name.sent).await?;
        admission::mutate(self.core, &attributes, &mut object).await?;
        self.single_owners(&mut object, true);
        let _reserved = self.reserve_addresses(&mut object, None).await?;
        fill_system_metadata(&mut object);
        name.generate(&self.resource, &mut object);
        self.validate_new(&attributes, &mut object).await?;
        if self.dry_run {
            let key = self.resource.key(self.namespace(), meta(&object, "name"));
            let found = self.core.backend.get(&self.resource.collection, &key);
            if let Some(found) = found.await? {
                return Err(self.taken(Some(&found), name.conflict(&self.resource, &object)));
            }
            if let Some(sent) = sent_revision.filter(|sent| sent != "") {
                metadata_mut(&mut object).insert("resourceVersion".to_owned(), sent);
            }
            return Ok(Stored::Value(Owned { object, owners }.whole()));
        }
        let number = sent_revision.as_ref().and_then(Value::as_str);
        if number.is_some_and(|sent| parse_uint(sent).is_ok_and(|sent| sent != 0)) {
            return Err(ApiError::unknown(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.insert(object, &owners, is_applied, &name).await
    }

    /// Sets defaults, and the field ownership of the creation unless an apply has determined it.
    fn default_new(&self, object: &mut Value, applied: Option<Managed>) -> Managed {
        if let Some(owners) = applied {
            strategy::default_applied(&self.resource, &self.version, object);
            return owners;
        }
        self.single_owners(object, false);
        strategy::default(&self.resource, &self.version, object);
        managed::with_manager(
            &self.resource,
            &self.version,
            self.request.info.subresource.as_str(),
            &self.conversions,
            |fields, empty| fields.update(&empty(), &Managed::default(), object, &self.manager),
        )
    }

    /// Allocates the addresses and ports of a Service. Until the result is dropped, no other Service is allocated the
    /// same ones.
    pub(super) async fn reserve_addresses(
        &self,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Option<services::Reserved>> {
        if !self.resource.rules.allocates_addresses {
            return Ok(None);
        }
        let allocated =
            services::allocate(self.core, &self.core.services, object, old, self.dry_run);
        allocated.await.map(Some)
    }

    /// The strategy of the kind and validating admission, between which upstream demands the permission to create.
    async fn validate_new(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
        let (features, resource) = (&self.core.config.features, &self.resource);
        let warnings = &self.request.warnings;
        strategy::prepare_for_create(features, resource, object);
        for warning in crate::warnings::replace_annotations(resource, object) {
            warnings.add(warning);
        }
        let errors = strategy::validate_create(features, resource, object);
        checkpoint().await;
        let errors =
            admission::field_errors(self.core, attributes, "create", object, errors).await?;
        if !errors.is_empty() {
            let kind = resource.claimed_kind(object);
            return Err(Status::invalid(&kind, meta(object, "name"), &errors).into());
        }
        for warning in crate::warnings::on_create(resource, object) {
            warnings.add(warning);
        }
        self.require_create().await?;
        admission::validate(self.core, attributes, object, warnings).await?;
        strategy::finish(resource, object);
        Ok(())
    }

    /// Stores a new object, under another name if a generated one exists.
    async fn insert(
        &self,
        mut object: Value,
        owners: &Managed,
        is_applied: bool,
        new_name: &NewName,
    ) -> Result<Stored> {
        let collection = &self.resource.collection;
        let mut attempts = 1;
        loop {
            let key = self.resource.key(self.namespace(), meta(&object, "name"));
            let write = Write::put(
                collection.clone(),
                key.as_str(),
                Expect::Absent,
                self.draft(&object, owners, is_applied).await?,
            );
            match self.core.backend.commit(write).await {
                Ok(entry) => {
                    if self.resource.rules.allocates_addresses {
                        services::follow(self.core, None, Some(&object)).await?;
                    }
                    return Ok(Stored::Entry(entry));
                }
                Err(StoreError::Exists(_))
                    if new_name.is_generated() && attempts < NAME_ATTEMPTS =>
                {
                    attempts += 1;
                    new_name.generate(&self.resource, &mut object);
                }
                Err(StoreError::Exists(_)) => {
                    let status = new_name.conflict(&self.resource, &object);
                    let found = self.core.backend.get(collection, &key);
                    let found = found.await.ok().flatten();
                    return Err(self.taken(found.as_deref(), status));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The permission to create, if the request has another verb: an update or an apply of an object that does not
    /// exist.
    async fn require_create(&self) -> Result<()> {
        let info = &self.request.info;
        if info.verb == "create" {
            return Ok(());
        }
        let create = AuthorizerAttributes {
            subresource: &info.subresource,
            namespace: self.namespace(),
            name: self.name(),
            ..AuthorizerAttributes::resource(
                &self.request.user,
                "create",
                &self.resource.group,
                &self.resource.plural,
            )
        };
        self.core.authorizer.require(self.core, &create).await
    }

    /// 409 for an existing name; the message mentions if the existing object is being deleted.
    fn taken(&self, found: Option<&Entry>, mut status: Status) -> ApiError {
        let found = found.and_then(|entry| versions::load(&self.resource, &entry.value).ok());
        if found.is_some_and(|old| old.object["metadata"]["deletionTimestamp"].is_string()) {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status.into()
    }
}

/// Drops the metadata that only the server sets. Returns the `resourceVersion` that was sent: the store rejects it in
/// its check, which is last, and a dry run does not reach it.
fn drop_system_metadata(object: &mut Value) -> Option<Value> {
    let metadata = metadata_mut(object);
    let sent_revision = metadata.remove("resourceVersion");
    for key in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(key);
    }
    sent_revision
}

/// Sets UID and creation time, and drops empty maps and lists, which upstream's encoding does not have.
fn fill_system_metadata(object: &mut Value) {
    let metadata = metadata_mut(object);
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), object::now().into());
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        object::drop_empty(metadata, key);
    }
}
