//! A request as policies and webhooks see it.

use std::borrow::Cow;
use std::sync::Arc;

use allot_apimachinery::Status;
use allot_cel::authorization::Check;
use allot_schema::apply::Managed;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::super::{Attributes, ObjectForm, Operation, SentRequest};
use crate::admission::{Admission, namespaces};
use crate::builtin;
use crate::conversion;
use crate::error::{ApiError, Result};
use crate::identity::User;
use crate::object::meta;
use crate::registry::{Create, Resource};
use crate::scale;
use crate::versions;

/// A resource in a version, and the kind that it speaks there.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// What the path of the request names, or an equivalent of it.
    pub resource: Arc<Resource>,
    /// The API version in which rules are matched and objects shown.
    pub version: String,
    /// Group of the kind, which a subresource has of its own (`autoscaling` for scale).
    pub kind_group: String,
    /// Version of the kind in that group.
    pub kind_version: String,
    /// The kind that clients send and get here.
    pub kind: String,
}

impl Target {
    /// The resource in a version, or a subresource of it; `None` if the resource has no such subresource.
    fn new(resource: &Arc<Resource>, version: &str, subresource: &str) -> Option<Self> {
        let own = |version: &str| Target {
            resource: resource.clone(),
            version: version.to_owned(),
            kind_group: resource.group.clone(),
            kind_version: version.to_owned(),
            kind: resource.kind.clone(),
        };
        let mut target = own(version);
        if subresource.is_empty() {
            return Some(target);
        }
        let spoken = resource.subresource(subresource)?;
        for (place, value) in [
            (&mut target.kind_group, &spoken.group),
            (&mut target.kind_version, &spoken.version),
            (&mut target.kind, &spoken.kind),
        ] {
            if !value.is_empty() {
                value.clone_into(place);
            }
        }
        Some(target)
    }
}

/// A request, and the sources of its lazily read parts.
pub(super) struct Request<'a> {
    /// What all requests share.
    pub core: &'a Admission,
    /// What is done.
    pub attributes: &'a Attributes<'a>,
    /// The request itself.
    pub asked: SentRequest<'a>,
    /// What the client has named.
    pub target: Target,
    /// The namespace; of a namespace, itself.
    pub namespace: &'a str,
    /// The name, empty if it is not generated yet or the request is about a collection.
    pub name: String,
    namespace_object: OnceCell<Option<Value>>,
}

impl<'a> Request<'a> {
    /// The request that leads to `object`.
    pub fn new(
        core: &'a Admission,
        attributes: &'a Attributes<'a>,
        asked: SentRequest<'a>,
        object: &Value,
    ) -> Self {
        let target = Target::new(asked.resource, asked.version, attributes.subresource);
        let many = asked.request.info.verb == "deletecollection";
        let name = match attributes.name {
            _ if many => "",
            "" => meta(object, "name"),
            named => named,
        };
        let namespace = if asked.resource.rules.is_namespace && !many {
            attributes.name
        } else {
            attributes.namespace
        };
        Request {
            core,
            attributes,
            asked,
            // The subresource exists, or the request would have been rejected before.
            target: target.unwrap_or_else(|| Target {
                resource: asked.resource.clone(),
                version: asked.version.to_owned(),
                kind_group: asked.resource.group.clone(),
                kind_version: asked.version.to_owned(),
                kind: asked.resource.kind.clone(),
            }),
            namespace,
            name: name.to_owned(),
            namespace_object: OnceCell::new(),
        }
    }

    /// The user of the request, after impersonation.
    pub fn user(&self) -> &'a User {
        self.attributes.user
    }

    /// Notes something for the audit log.
    pub fn note(&self, key: impl Into<String>, text: impl FnOnce() -> String) {
        self.asked.request.annotations.add(key, text);
    }

    /// What happens, in the API's words.
    pub fn operation(&self) -> &'static str {
        match self.attributes.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// Whether the request is for the admission configuration, which must not be able to block changes of itself.
    pub fn is_configuration(&self) -> bool {
        let resource = &self.target.resource;
        // A definition in the group is nothing that admission depends on.
        resource.group == super::backend::GROUP && resource.custom.is_none()
    }

    /// Policies in the API do not apply to themselves: they must stay changeable.
    pub fn is_policy(&self) -> bool {
        let plural = &self.target.resource.plural;
        let of_policies = ["policies", "policybindings"];
        self.is_configuration() && of_policies.iter().any(|it| plural.ends_with(it))
    }

    /// No policy applies to these: evaluating policies depends on them.
    pub fn is_review(&self) -> bool {
        matches!(self.target.resource.rules.create, Create::Review(_))
    }

    /// The other versions of the resource.
    pub fn equivalents(&self) -> Vec<Target> {
        let requested = &self.target.resource;
        let registry = self.core.registry.load();
        let mut resources = vec![requested.clone()];
        let others = builtin::sharing_collection(&requested.group, &requested.plural);
        let others = others.filter_map(|kind| registry.get(kind.group, kind.plural));
        resources.extend(others.cloned());
        let mut all = Vec::new();
        for resource in &resources {
            for version in resource.versions.iter().filter(|version| version.served) {
                let same = resource.group == requested.group && version.name == self.target.version;
                let target = Target::new(resource, &version.name, self.attributes.subresource);
                all.extend(target.filter(|_| !same));
            }
        }
        all
    }

    /// The object that is to be, as the target's kind.
    ///
    /// # Errors
    /// 400 if the object cannot be converted, 500 if a conversion webhook fails.
    pub async fn versioned<'v>(
        &self,
        object: &'v Value,
        target: &Target,
    ) -> Result<Cow<'v, Value>> {
        self.as_kind(object, self.asked.owners.new, target).await
    }

    /// The present object, as the target's kind.
    ///
    /// # Errors
    /// As [`Request::versioned`].
    pub async fn old_versioned(&self, target: &Target) -> Result<Cow<'a, Value>> {
        let old = self.attributes.old.unwrap_or(&Value::Null);
        self.as_kind(old, self.asked.owners.old, target).await
    }

    async fn as_kind<'v>(
        &self,
        object: &'v Value,
        owners: Option<&Managed>,
        target: &Target,
    ) -> Result<Cow<'v, Value>> {
        if object.is_null() || self.asked.shown == ObjectForm::Sent {
            return Ok(Cow::Borrowed(object));
        }
        let object = self.as_resource(target, object).await?;
        match self.asked.shown {
            ObjectForm::Scale => {
                scale::of_object(self.asked.resource, self.asked.version, &object).map(Cow::Owned)
            }
            _ => Ok(match owners.filter(|owners| !owners.is_empty()) {
                Some(owners) => {
                    let mut whole = object.into_owned();
                    owners.write(&mut whole);
                    Cow::Owned(whole)
                }
                None => object,
            }),
        }
    }

    /// The object in the stored form after a change in the target's form; `object` is the object before the change.
    ///
    /// # Errors
    /// 400 if the result cannot be converted, 500 if a conversion webhook fails.
    pub async fn restored(
        &self,
        object: &Value,
        mut changed: Value,
        target: &Target,
    ) -> Result<Value> {
        let resource = &target.resource;
        if self.asked.shown == ObjectForm::Sent {
            return Ok(changed);
        }
        // Webhooks do not decide about managed fields.
        Managed::take(&mut changed);
        let mut changed = match (self.asked.shown, resource.schema(&target.version)) {
            (ObjectForm::Scale, _) => {
                let object = self.as_resource(target, object).await?;
                scale::with_replicas(self.asked.resource, self.asked.version, &object, &changed)?
            }
            (_, Some(schema)) => {
                let decoded = allot_schema::decode::decode_value(changed, schema);
                decoded
                    .map_err(|error| ApiError::bad_request(error.to_string()))?
                    .value
            }
            (_, None) => changed,
        };
        crate::strategy::default(resource, &target.version, &mut changed);
        if resource.custom.is_some() {
            let version = &self.target.version;
            return conversion::object(self.core, resource, version, changed).await;
        }
        versions::to_internal(&self.target.resource, changed)
    }

    async fn as_resource<'v>(&self, target: &Target, object: &'v Value) -> Result<Cow<'v, Value>> {
        let (resource, version) = (&target.resource, target.version.as_str());
        if resource.is_converted_by_webhook() {
            let converted = conversion::object(self.core, resource, version, object.clone());
            return converted.await.map(Cow::Owned);
        }
        as_resource(resource, object, version)
    }

    /// The namespace of the request, as it is stored; none for what lives in none.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn namespace_object(&self) -> Result<Option<&Value>> {
        let found = self.namespace_object.get_or_try_init(|| async {
            let found = self.core.stored("namespaces", self.namespace).await?;
            Ok::<_, ApiError>(found.map(|mut namespace| {
                namespace["kind"] = "Namespace".into();
                namespace["apiVersion"] = "v1".into();
                namespace
            }))
        });
        Ok(found.await?.as_ref())
    }

    /// The response 404 for a request into a namespace that does not exist.
    pub fn no_namespace(&self) -> ApiError {
        namespaces::not_found(self.namespace)
    }

    /// The request as a question about its resource, without a verb.
    pub fn check(&self) -> Check {
        Check {
            group: self.target.resource.group.clone(),
            resource: self.target.resource.plural.clone(),
            subresource: self.attributes.subresource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.name.clone(),
            ..Check::default()
        }
    }

    /// `AdmissionRequest` without the objects, for a policy or webhook that has chosen `target`.
    pub fn to_json(&self, target: &Target) -> Value {
        let kind = |target: &Target| json!({"group": target.kind_group, "version": target.kind_version, "kind": target.kind});
        let resource = |target: &Target| {
            let resource = &target.resource;
            json!({"group": resource.group, "version": target.version, "resource": resource.plural})
        };
        let mut user = json!({});
        let who = self.user();
        let known = [
            ("username", !who.name.is_empty(), json!(who.name)),
            ("uid", !who.uid.is_empty(), json!(who.uid)),
            ("groups", !who.groups.is_empty(), json!(who.groups)),
            ("extra", !who.extra.is_empty(), json!(who.extra)),
        ];
        for (key, _, value) in known.into_iter().filter(|(_, known, _)| *known) {
            user[key] = value;
        }
        let mut request = json!({
            "uid": "", "kind": kind(target), "resource": resource(target),
            "requestKind": kind(&self.target), "requestResource": resource(&self.target),
            "operation": self.operation(), "userInfo": user, "object": null, "oldObject": null,
            "dryRun": self.attributes.dry_run, "options": self.options(),
        });
        for (key, value) in [
            ("subResource", self.attributes.subresource),
            ("requestSubResource", self.attributes.subresource),
            ("name", &self.name),
            ("namespace", self.namespace),
        ] {
            if !value.is_empty() {
                request[key] = value.into();
            }
        }
        request
    }

    /// The options of the request as an object.
    fn options(&self) -> Value {
        let kind = match self.attributes.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = match self.asked.delete {
            Some(delete) => delete.to_json(),
            None => {
                let query = &self.asked.request.query;
                let mut options = json!({});
                for key in ["fieldManager", "fieldValidation"] {
                    if let Some(value) = query.text(key) {
                        options[key] = value.into();
                    }
                }
                let dry_run: Vec<&str> = query.all("dryRun").collect();
                if !dry_run.is_empty() {
                    options["dryRun"] = dry_run.into();
                }
                options
            }
        };
        options["kind"] = kind.into();
        options["apiVersion"] = "meta.k8s.io/v1".into();
        options
    }

    /// 403 as admission words it; the name may still be unknown.
    pub fn forbidden(&self, object: &Value, why: &str) -> Status {
        let candidates = [
            self.name.as_str(),
            meta(object, "name"),
            meta(object, "generateName"),
        ];
        let name = candidates.into_iter().find(|name| !name.is_empty());
        let resource = self.target.resource.group_resource();
        Status::forbidden(&resource, name.unwrap_or("Unknown"), why)
    }
}

/// An object in the form in which admission holds it, in a version of a resource.
fn as_resource<'v>(
    resource: &Resource,
    object: &'v Value,
    version: &str,
) -> Result<Cow<'v, Value>> {
    const EVENTS: &str = "events.k8s.io";
    if resource.plural != "events" || !matches!(resource.group.as_str(), "" | EVENTS) {
        return versions::seen(resource, object, version);
    }
    let mut event = object.clone();
    let old_style = event["regarding"].is_null();
    if resource.group == EVENTS && old_style {
        versions::events::from_core(&mut event);
    } else if resource.group.is_empty() && !old_style {
        versions::events::to_core(&mut event);
    }
    versions::set_type(&mut event, resource, version);
    Ok(Cow::Owned(event))
}
