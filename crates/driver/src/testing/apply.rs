//! Server-side apply of the kinds whose rules are known.

use std::collections::BTreeMap;

use allot_model::{Kind, Version};
use allot_schema::Node;
pub(super) use allot_schema::apply::Error;
use allot_schema::apply::{FieldManager, Managed, Versions};
use allot_schema::fields::Set;
use allot_schema::json_patch::merge;
use allot_schema::types::{self, Struct};
use jiff::Timestamp;
use serde_json::Value;

use super::objects::{Key, Part};

/// The owners of the fields of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Owned(BTreeMap<Key, Managed>);

/// A kind in its one version.
struct One {
    api_version: String,
    schema: &'static Struct,
    part: Part,
}

impl Versions for One {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        (api_version == self.api_version).then_some(Node::Struct(self.schema))
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _: &str) -> Set {
        let paths: &[&[&str]] = match self.part {
            Part::Main => &[&["status"]],
            Part::Status => &[&["metadata"], &["spec"]],
        };
        Set::of_fields(paths.iter().copied())
    }
}

/// A configuration that a field manager applies.
pub(super) struct Configuration<'a> {
    pub(super) patch: &'a Value,
    pub(super) manager: &'a str,
    pub(super) force: bool,
}

impl Owned {
    /// Applies a configuration. Objects of other kinds are merged, without owners.
    ///
    /// # Errors
    /// Another manager owns a field that would change, or the configuration does not fit the kind.
    pub(super) fn apply(
        &mut self,
        object: &mut Value,
        of: &Configuration<'_>,
        at: &Key,
        kind: Option<Kind>,
        part: Part,
    ) -> Result<(), Error> {
        let known = kind.and_then(|kind| {
            let schema = types::lookup(allot_model::GROUP, "v1", kind.name())?;
            Some((kind, schema))
        });
        let Some((kind, schema)) = known else {
            merge(object, of.patch);
            return Ok(());
        };
        let now = Timestamp::now();
        let now = Timestamp::from_second(now.as_second())
            .unwrap_or(now)
            .to_string();
        let api_version = format!("{}/{}", allot_model::GROUP, Version::V1);
        let versions = One {
            api_version: api_version.clone(),
            schema,
            part,
        };
        let fields = FieldManager {
            versions: &versions,
            api_version: &api_version,
            kind: kind.name(),
            subresource: match part {
                Part::Main => "",
                Part::Status => "status",
            },
            now: &now,
        };
        let owners = self.0.get(at).cloned().unwrap_or_default();
        let (applied, owners) = fields.apply(object, &owners, of.patch, of.manager, of.force)?;
        *object = applied;
        self.0.insert(at.clone(), owners);
        Ok(())
    }

    pub(super) fn forget(&mut self, at: &Key) {
        self.0.remove(at);
    }
}
