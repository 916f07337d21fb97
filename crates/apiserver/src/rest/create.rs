//! `POST` on a collection.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;
use allot_schema::apply::Managed;
use allot_store::{Draft, Entry, Error as StoreError, Expect, Write};
use bytes::Bytes;
use http::Response;
use serde_json::Value;

use crate::admission::{self, Attributes, ObjectForm, Operation, Owners, SentRequest};
use crate::auth::AuthorizerAttributes;
use crate::body::Body;
use crate::context::Call;
use crate::conversion;
use crate::error::{ApiError, Result};
use crate::limits::checkpoint;
use crate::numbers::parse_uint;
use crate::object::{self, meta, metadata_mut};
use crate::registry::Create;
use crate::request::DeleteOptions;
use crate::storage::Owned;
use crate::{managed, services, strategy, versions};

/// The largest object that etcd takes with its default limit of 1.5 MiB for a request.
pub(super) const MAX_STORED: usize = 1536 * 1024;

/// The largest message that etcd's client sends.
const MAX_SENT: usize = 2 * 1024 * 1024;

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

/// What a write left behind.
pub(super) enum Stored {
    /// A stored version.
    Entry(Arc<Entry>),
    /// An object that is not stored: a dry run, or its last state.
    Value(Value),
}

impl Call<'_> {
    /// The request as policies and webhooks see it.
    pub(super) fn asked<'a>(
        &'a self,
        delete: Option<&'a DeleteOptions>,
        owners: Owners<'a>,
    ) -> SentRequest<'a> {
        let shown = match self.request.info.subresource.as_str() {
            "scale" => ObjectForm::Scale,
            _ => ObjectForm::Object,
        };
        SentRequest {
            request: self.request,
            resource: &self.resource,
            version: &self.version,
            conversions: &self.conversions,
            shown,
            delete,
            owners,
        }
    }

    /// Runs policies and webhooks on the body of a subresource that is not part of its object.
    ///
    /// # Errors
    /// The first rejection.
    pub(super) async fn admit_sent(&self, operation: Operation, sent: &mut Value) -> Result<()> {
        let asked = SentRequest {
            shown: ObjectForm::Sent,
            ..self.asked(None, Owners::default())
        };
        let name = match self.name() {
            "" => meta(sent, "name").to_owned(),
            named => named.to_owned(),
        };
        let attributes = Attributes {
            operation,
            resource: &self.resource,
            subresource: &self.request.info.subresource,
            namespace: self.namespace(),
            name: &name,
            user: &self.request.user,
            old: None,
            dry_run: self.dry_run,
            asked: Some(asked),
        };
        admission::admit_sent(self.core, &attributes, sent).await
    }

    /// Leaves one of each owner reference, with a warning. What was created or replaced is looked at before mutating
    /// admission and after it, what was patched after it.
    pub(super) fn single_owners(&self, object: &mut Value, admitted: bool) {
        if let Some(warning) = crate::warnings::repeated_owners(object, admitted) {
            self.request.warnings.add(warning);
        }
    }

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
        // The store rejects a resourceVersion in its check, which is last; a dry run does not reach it.
        let metadata = metadata_mut(&mut object);
        let sent_revision = metadata.remove("resourceVersion");
        for key in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(key);
        }
        let is_applied = applied.is_some();
        if !is_applied {
            self.single_owners(&mut object, false);
        }
        match is_applied {
            true => strategy::default_applied(&self.resource, &self.version, &mut object),
            false => strategy::default(&self.resource, &self.version, &mut object),
        }
        let owners = match applied {
            Some(owners) => owners,
            None => {
                let subresource = self.request.info.subresource.as_str();
                managed::with_manager(
                    &self.resource,
                    &self.version,
                    subresource,
                    &self.conversions,
                    |fields, empty| {
                        let no_owners = Managed::default();
                        fields.update(&empty(), &no_owners, &mut object, &self.manager)
                    },
                )
            }
        };
        checkpoint().await;
        managed::show_unusual(&owners, &mut object);
        let mut object = versions::to_internal(&self.resource, object)?;
        let sent_name = meta(&object, "name").to_owned();
        let base = meta(&object, "generateName").to_owned();
        let generated = sent_name.is_empty() && !base.is_empty();
        if sent_name.is_empty() && !generated && self.resource.rules.names_by_uuid {
            let name = uuid::Uuid::new_v4().to_string();
            metadata_mut(&mut object).insert("name".to_owned(), name.into());
        }
        let new = Some(&owners);
        let attributes = Attributes {
            operation: Operation::Create,
            resource: &self.resource,
            subresource: &self.request.info.subresource,
            namespace: self.namespace(),
            name: &sent_name,
            user: &self.request.user,
            old: None,
            dry_run: self.dry_run,
            asked: Some(self.asked(None, Owners { new, old: None })),
        };
        admission::mutate(self.core, &attributes, &mut object).await?;
        self.single_owners(&mut object, true);
        let service = self.resource.rules.allocates_addresses;
        // Until the service is stored, no other service is allocated the same addresses and ports.
        let _reserved = if service {
            Some(
                services::allocate(
                    self.core,
                    &self.core.services,
                    &mut object,
                    None,
                    self.dry_run,
                )
                .await?,
            )
        } else {
            None
        };
        let metadata = metadata_mut(&mut object);
        metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), object::now().into());
        for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
            object::drop_empty(metadata, key);
        }
        // Upstream says this of every object that has the field, also of one that has a name.
        let exists = |name: &str| {
            let resource: GroupResource = self.resource.group_resource();
            match base.is_empty() {
                true => Status::already_exists(&resource, name),
                false => Status::generate_name_conflict(&resource, name, 1),
            }
        };
        for attempt in 0.. {
            if generated {
                let name = object::generate_name(&base);
                strategy::set_generated_name(&self.resource, &mut object, name);
            }
            if attempt == 0 {
                strategy::prepare_for_create(
                    &self.core.config.features,
                    &self.resource,
                    &mut object,
                );
                for warning in crate::warnings::replace_annotations(&self.resource, &mut object) {
                    self.request.warnings.add(warning);
                }
                let errors =
                    strategy::validate_create(&self.core.config.features, &self.resource, &object);
                checkpoint().await;
                let errors =
                    admission::field_errors(self.core, &attributes, "create", &object, errors)
                        .await?;
                if !errors.is_empty() {
                    let name = meta(&object, "name");
                    let kind = self.resource.claimed_kind(&object);
                    return Err(Status::invalid(&kind, name, &errors).into());
                }
                for warning in crate::warnings::on_create(&self.resource, &object) {
                    self.request.warnings.add(warning);
                }
                self.require_create().await?;
                admission::validate(self.core, &attributes, &object, &self.request.warnings)
                    .await?;
                strategy::finish(&self.resource, &mut object);
            }
            let name = meta(&object, "name");
            let key = self.resource.key(self.namespace(), name);
            if self.dry_run {
                let collection = &self.resource.collection;
                if let Some(found) = self.core.backend.get(collection, &key).await? {
                    return Err(self.taken(Some(&found), exists(name)));
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
            let write = Write::put(
                self.resource.collection.clone(),
                key.as_str(),
                Expect::Absent,
                self.draft(&object, &owners, is_applied).await?,
            );
            match self.core.backend.commit(write).await {
                Ok(entry) => {
                    if service {
                        services::follow(self.core, None, Some(&object)).await?;
                    }
                    return Ok(Stored::Entry(entry));
                }
                Err(StoreError::Exists(_)) if generated && attempt + 1 < NAME_ATTEMPTS => continue,
                Err(StoreError::Exists(_)) => {
                    let status = exists(name);
                    let found = self.core.backend.get(&self.resource.collection, &key);
                    let found = found.await.ok().flatten();
                    return Err(self.taken(found.as_deref(), status));
                }
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("the loop returns")
    }

    /// The stored form of an object. If it is too large, the managed fields, often half of it, are omitted; except for
    /// an apply, which depends on them.
    ///
    /// # Errors
    /// 500 with the message of etcd, or of its client, if it is still too large.
    pub(super) async fn draft(
        &self,
        object: &Value,
        owners: &Managed,
        is_applied: bool,
    ) -> Result<Draft> {
        let draft = conversion::draft(self.core, &self.resource, object, owners).await?;
        let mut size = self.size(&draft, object, owners);
        if size <= MAX_STORED {
            return Ok(draft);
        }
        if !is_applied {
            let no_owners = Managed::default();
            let smaller = conversion::draft(self.core, &self.resource, object, &no_owners).await?;
            size = self.size(&smaller, object, &no_owners);
            if size <= MAX_STORED {
                return Ok(smaller);
            }
        }
        let sent = self.sent_to_etcd(size, object);
        Err(ApiError::unknown(match sent > MAX_SENT {
            true => format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({sent} vs. {MAX_SENT})"
            ),
            false => "etcdserver: request is too large".to_owned(),
        }))
    }

    /// The size of the object for etcd, if that matters. What counts is the form in which upstream stores it: built-in
    /// kinds are smaller there than they are here.
    fn size(&self, draft: &Draft, object: &Value, owners: &Managed) -> usize {
        if draft.size() <= MAX_STORED || self.resource.custom.is_some() {
            return draft.size();
        }
        let (object, owners) = (object.clone(), owners.clone());
        let whole = Owned { object, owners }.whole();
        crate::protobuf::message_of(&whole).map_or(draft.size(), |it| it.len())
    }

    /// The size of the request with which kube-apiserver would store an object of this size: with the key of the object,
    /// once for the comparison with what is there and once for the write, and what is around them.
    fn sent_to_etcd(&self, size: usize, object: &Value) -> usize {
        const AROUND: usize = 25;
        let own = self.resource.key(self.namespace(), meta(object, "name"));
        let prefix = strategy::storage_prefix(&self.resource);
        let key = format!("/registry/{prefix}/{own}");
        let envelope = match self.resource.custom {
            Some(_) => 0,
            None => {
                21 + self
                    .resource
                    .api_version(&self.resource.storage_version)
                    .len()
                    + self.resource.kind.len()
            }
        };
        size + envelope + AROUND + 2 * key.len()
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
