//! From the object that a client sends to the one that is stored.

use allot_apimachinery::Status;
use allot_schema::apply::Managed;
use serde_json::Value;

use crate::admission::{self, Attributes, Operation, Owners};
use crate::context::Call;
use crate::custom::Scale;
use crate::error::Result;
use crate::limits::checkpoint;
use crate::object::{self, metadata_mut};
use crate::request::Part;
use crate::storage::Owned;
use crate::{managed, scale, services, strategy, versions};

impl Call<'_> {
    /// From the client's object to the stored one: identity kept, defaults, admission, validation.
    pub(super) async fn finish_update(
        &self,
        mut new: Value,
        applied: Option<Managed>,
        old: &Owned,
        seen: &Value,
        part: Part,
    ) -> Result<(Owned, Option<services::Reserved>)> {
        if part == Part::Sub {
            // A binding or an eviction is a separate object, admitted and validated as such: field ownership of the pod
            // does not change, the pod's rules do not apply, and its generation stays. The changed pod has the stored
            // form.
            let owners = old.owners.clone();
            let object = new;
            return Ok((Owned { object, owners }, None));
        }
        // The defaults of a definition's status come from its spec.
        let spec = match self.resource.rules.defaults_status_from_spec {
            true => None,
            false => set_aside(&mut new, seen, part),
        };
        match applied {
            Some(_) => strategy::default_applied(&self.resource, &self.version, &mut new),
            None => strategy::default(&self.resource, &self.version, &mut new),
        }
        put_back(&mut new, spec);
        let owners = match applied {
            Some(owners) => owners,
            None => {
                let (updated, owners) = self.update_owners(new, old, seen).await?;
                new = updated;
                owners
            }
        };
        checkpoint().await;
        managed::show_unusual(&owners, &mut new);
        let known = Owners {
            new: Some(&owners),
            old: Some(&old.owners),
        };
        let old = &old.object;
        let mut new = versions::to_internal(&self.resource, new)?;
        // Written through the other generation's version without fields it was read with: its form changes.
        let in_form = versions::in_form_of(&self.resource, old, &new)?;
        let old = in_form.as_ref().unwrap_or(old);
        keep_system_metadata(&mut new, old);
        let attributes = Attributes {
            operation: Operation::Update,
            resource: &self.resource,
            subresource: &self.request.info.subresource,
            namespace: self.namespace(),
            name: self.name(),
            user: &self.request.user,
            old: Some(old),
            dry_run: self.dry_run,
            asked: Some(self.asked(None, known)),
        };
        if self.request.info.verb != "patch" {
            self.single_owners(&mut new, false);
        }
        admission::mutate(self.core, &attributes, &mut new).await?;
        self.single_owners(&mut new, true);
        strategy::prepare_for_update(
            &self.core.config.features,
            &self.resource,
            &mut new,
            old,
            part,
        );
        let reserved = match part {
            Part::Main => self.reserve_addresses(&mut new, Some(old)).await?,
            _ => None,
        };
        self.validate_changed(&attributes, &new, old, part).await?;
        let spec = set_aside(&mut new, old, part);
        strategy::finish(&self.resource, &mut new);
        put_back(&mut new, spec);
        let object = new;
        Ok((Owned { object, owners }, reserved))
    }

    /// The strategy of the kind and validating admission.
    async fn validate_changed(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
        old: &Value,
        part: Part,
    ) -> Result<()> {
        let verb = self.request.info.verb.as_str();
        let errors =
            strategy::validate_update(&self.core.config.features, &self.resource, new, old, part);
        checkpoint().await;
        let errors = admission::field_errors(self.core, attributes, verb, new, errors).await?;
        if !errors.is_empty() {
            let kind = self.resource.claimed_kind(new);
            return Err(Status::invalid(&kind, self.name(), &errors).into());
        }
        for warning in crate::warnings::on_update(&self.resource, new, old, part) {
            self.request.warnings.add(warning);
        }
        admission::validate(self.core, attributes, new, &self.request.warnings).await
    }

    /// Updates the field ownership of a changed object; returns the object.
    async fn update_owners(
        &self,
        new: Value,
        old: &Owned,
        seen: &Value,
    ) -> Result<(Value, Managed)> {
        let subresource = self.request.info.subresource.as_str();
        let (resource, version) = (&self.resource, self.version.as_str());
        let update = |new: &mut Value| {
            let known = &self.conversions;
            managed::with_manager(resource, version, subresource, known, |fields, _| {
                fields.update(seen, &old.owners, new, &self.manager)
            })
        };
        let update = |new: &mut Value| {
            let owners = update(new);
            match subresource {
                "scale" => self.owners_of_scale(owners, &old.owners, new),
                _ => owners,
            }
        };
        if !resource.is_converted_by_webhook() {
            let mut new = new;
            let owners = update(&mut new);
            return Ok((new, owners));
        }
        self.with_conversions(|| {
            let mut tried = new.clone();
            let owners = update(&mut tried);
            (tried, owners)
        })
        .await
    }

    /// The owners after a write of the scale; `owners` are those after the same change of the object.
    fn owners_of_scale(&self, owners: Managed, before: &Managed, new: &Value) -> Managed {
        let Ok(declared) = scale::declared(&self.resource, &self.version) else {
            return owners;
        };
        let path = declared.map_or(".spec.replicas", Scale::replicas_path);
        let path: Vec<&str> = path.split('.').skip(1).collect();
        let scale = scale::read(&self.resource, new, declared).unwrap_or_default();
        let is_zero = scale["spec"].get("replicas").is_none();
        owners.of_scale(before, &path, is_zero)
    }
}

/// Takes the spec out of an object whose status is written: as it was stored, it needs neither defaults nor form.
fn set_aside(new: &mut Value, old: &Value, part: Part) -> Option<Value> {
    let new = new.as_object_mut().filter(|_| part == Part::Status)?;
    if new.get("spec")? != old.get("spec")? {
        return None;
    }
    new.remove("spec")
}

fn put_back(new: &mut Value, spec: Option<Value>) {
    if let (Some(spec), Some(new)) = (spec, new.as_object_mut()) {
        new.insert("spec".to_owned(), spec);
    }
}

/// Keeps the metadata that an update cannot change. What validation rejects is left as it was sent.
fn keep_system_metadata(new: &mut Value, old: &Value) {
    let metadata = metadata_mut(new);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
        "resourceVersion",
        "generateName",
    ] {
        let sent = metadata.remove(key);
        let kept = &old["metadata"][key];
        let value = match key {
            "generateName" => sent.filter(|value| value != ""),
            // An update cannot set these: validation rejects it.
            "deletionTimestamp" if kept.is_null() => sent.filter(|value| !value.is_null()),
            "deletionGracePeriodSeconds" if sent.as_ref().is_some_and(|it| !it.is_null()) => sent,
            "uid" if sent.as_ref().is_some_and(|uid| uid != "" && !uid.is_null()) => sent,
            _ if kept.is_null() => None,
            _ => Some(kept.clone()),
        };
        if let Some(value) = value {
            metadata.insert(key.to_owned(), value);
        }
    }
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        object::drop_empty(metadata, key);
    }
}
