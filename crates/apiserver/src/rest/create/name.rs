//! The name of a new object, which may be generated.

use allot_apimachinery::Status;
use serde_json::Value;

use crate::object::{self, meta};
use crate::registry::Resource;
use crate::strategy;

/// How a new object comes to its name.
pub(super) struct NewName {
    /// `metadata.name` as it was sent.
    pub(super) sent: String,
    /// `metadata.generateName`.
    base: String,
}

impl NewName {
    pub(super) fn of(object: &Value) -> NewName {
        NewName {
            sent: meta(object, "name").to_owned(),
            base: meta(object, "generateName").to_owned(),
        }
    }

    pub(super) fn is_generated(&self) -> bool {
        self.sent.is_empty() && !self.base.is_empty()
    }

    pub(super) fn is_missing(&self) -> bool {
        self.sent.is_empty() && self.base.is_empty()
    }

    /// Gives the object a name that begins with the base, if it has none of its own.
    pub(super) fn generate(&self, resource: &Resource, object: &mut Value) {
        if self.is_generated() {
            let name = object::generate_name(&self.base);
            strategy::set_generated_name(resource, object, name);
        }
    }

    /// 409 for a name that exists. As upstream, the message is that of a generated name if the object has `generateName`,
    /// even if its name was sent.
    pub(super) fn conflict(&self, resource: &Resource, object: &Value) -> Status {
        let (group_resource, name) = (resource.group_resource(), meta(object, "name"));
        match self.base.is_empty() {
            true => Status::already_exists(&group_resource, name),
            false => Status::generate_name_conflict(&group_resource, name, 1),
        }
    }
}
