//! Selectors of lists and watches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::labels::Selector;
use allot_model::features::{Feature, Features};
use allot_store::Entry;
use serde_json::Value;

use crate::error::{ApiError, Result};
use crate::object;
use crate::registry::{ComputedField, Resource, UnsupportedField};
use crate::request::Query;
use crate::versions;

pub use extract::extract;

mod extract;
mod shard;
#[cfg(test)]
mod tests;

/// A field that every classic slice has, and no newer one.
pub(crate) const CLASSIC_DRIVER: &str = "driverName";

/// What of an object a selector can see; derived once per stored version.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    labels: BTreeMap<String, String>,
    /// The fields that are not empty, since there is one set for each stored version.
    fields: Box<[(Cow<'static, str>, Box<str>)]>,
    /// The state of the CRD that defines these fields, for custom objects.
    definition: Option<u64>,
}

impl Attributes {
    /// Reads them from an object.
    pub fn of(resource: &Resource, object: &Value) -> Self {
        let labels = crate::object::string_map(&object["metadata"]["labels"]);
        let name = crate::object::meta(object, "name").into();
        let namespace = crate::object::meta(object, "namespace").into();
        let mut fields: Vec<(Cow<'static, str>, Box<str>)> = vec![
            ("metadata.name".into(), name),
            ("metadata.namespace".into(), namespace),
        ];
        for field in selectable(resource) {
            let value = field_value(resource, object, &field).into();
            fields.push((field, value));
        }
        fields.retain(|(_, value)| !value.is_empty());
        let fields = fields.into();
        Attributes {
            labels,
            fields,
            definition: definition(resource),
        }
    }

    /// The labels that a label selector is matched against.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The value of a selectable field; `None` if it is empty.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    /// The fields of a stored version, cached with it.
    pub fn of_entry(resource: &Resource, entry: &Entry) -> Arc<Self> {
        let derive = |entry: &Entry| {
            // What the store holds was written by this server as JSON.
            let object = match resource.custom {
                Some(_) => versions::stored(resource, &entry.value).unwrap_or(Value::Null),
                None => extract(&entry.value, &visible(resource)),
            };
            Attributes::of(resource, &object)
        };
        let known = entry.memo(derive);
        if known.definition == definition(resource) {
            return known;
        }
        // The CRD has other selectable fields, or other defaults for them, than at the first use.
        Arc::new(derive(entry))
    }
}

/// The identity of a state of a CRD.
fn definition(resource: &Resource) -> Option<u64> {
    resource.custom.as_ref()?.mark(&resource.storage_version)
}

/// Fields besides name and namespace, in upstream's names.
fn selectable(resource: &Resource) -> Vec<Cow<'static, str>> {
    match (&resource.custom, resource.rules.selectable_in) {
        (Some(custom), _) => {
            let fields = custom.selectable_fields().into_iter();
            fields.map(Cow::Owned).collect()
        }
        (None, Some(fields)) => fields(resource),
        (None, None) => {
            let fields = resource.rules.selectable.iter();
            fields.copied().map(Cow::Borrowed).collect()
        }
    }
}

/// The rule for a selectable field that is no path.
fn computed(resource: &Resource, field: &str) -> Option<&'static ComputedField> {
    let mut fields = resource.rules.computed_fields.iter();
    fields.find(|computed| computed.name == field)
}

/// All paths that selectors of a built-in kind read.
fn visible(resource: &Resource) -> Vec<Cow<'static, str>> {
    let fixed = ["metadata.labels", "metadata.name", "metadata.namespace"];
    let mut paths: Vec<Cow<'static, str>> = fixed.map(Cow::Borrowed).into();
    for field in selectable(resource) {
        match computed(resource, &field) {
            Some(computed) => paths.extend(computed.reads.iter().copied().map(Cow::Borrowed)),
            None => paths.push(field),
        }
    }
    paths
}

fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    if let Some(computed) = computed(resource, field) {
        return (computed.value)(object);
    }
    let path: Vec<&str> = field.split('.').collect();
    match object::at(object, &path) {
        Value::String(value) => value.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// The label and field selectors of a request.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
    /// If objects of both generations are stored that cannot be converted to the other one: which of them the request
    /// selects.
    classic: Option<bool>,
    /// The part of the collection that the request is about.
    shard: Option<shard::Shard>,
    /// The only namespace that can match, if the selector names one.
    pub namespace: Option<String>,
}

impl Selection {
    /// The selectors of a request as they are written.
    ///
    /// # Errors
    /// 400 for bad syntax.
    pub fn read(query: &Query) -> Result<(Option<Selector>, Option<FieldSelector>)> {
        let labels = query
            .text("labelSelector")
            .map(|selector| {
                Selector::parse(selector).map_err(|error| ApiError::bad_request(error.to_string()))
            })
            .transpose()?;
        let fields = query
            .text("fieldSelector")
            .map(|selector| {
                FieldSelector::parse(selector)
                    .map_err(|error| ApiError::bad_request(error.to_string()))
            })
            .transpose()?;
        Ok((labels, fields))
    }

    /// Reads `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// 400 for bad syntax and for fields that the resource does not offer.
    pub fn parse(resource: &Resource, version: &str, query: &Query) -> Result<Self> {
        Self::of(resource, version, Self::read(query)?)
    }

    /// The selection by selectors that have been read.
    ///
    /// # Errors
    /// 400 for fields that the resource does not offer.
    pub fn of(
        resource: &Resource,
        version: &str,
        (labels, mut fields): (Option<Selector>, Option<FieldSelector>),
    ) -> Result<Self> {
        if let Some(fields) = &fields {
            let known = selectable(resource);
            let known: Vec<&str> = known
                .iter()
                .filter_map(|field| public_name(resource, field))
                .collect();
            for requirement in fields.requirements() {
                let field = requirement.field.as_str();
                // Custom objects of the cluster have none, while built-in ones only do not match.
                let has_namespace = resource.custom.is_none() || resource.namespaced;
                let everywhere = field == "metadata.name"
                    || field == "metadata.namespace"
                        && has_namespace
                        && resource.rules.selects_namespace;
                if !everywhere && !known.contains(&field) {
                    return Err(ApiError::bad_request(unsupported_field(
                        resource, version, field,
                    )));
                }
            }
        }
        if !resource.rules.renamed_fields.is_empty() {
            fields = fields.map(|fields| fields.renamed(|field| stored_name(resource, field)));
        }
        let exact = |field| {
            fields
                .as_ref()
                .and_then(|fields| fields.exact(field))
                .map(str::to_owned)
        };
        Ok(Selection {
            namespace: exact("metadata.namespace"),
            labels: labels.filter(|labels| !labels.is_empty()),
            fields: fields.filter(|fields| !fields.is_empty()),
            classic: crate::classic::is_apart(resource)
                .then(|| crate::classic::is_version(version)),
            shard: None,
        })
    }

    /// Confines the selection to the shard of the request, if it names one and the feature is enabled.
    ///
    /// # Errors
    /// 500 for bad syntax.
    pub fn sharded(mut self, features: &Features, query: &Query) -> Result<Self> {
        self.shard = query
            .text("shardSelector")
            .filter(|_| features.enabled(Feature::ShardedListAndWatch))
            .map(shard::Shard::parse)
            .transpose()?;
        Ok(self)
    }

    /// What the metadata of a list say about its shard.
    pub fn shard_info(&self) -> Option<Value> {
        self.shard.as_ref().map(shard::Shard::info)
    }

    /// Everything matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_none()
            && self.fields.is_none()
            && self.classic.is_none()
            && self.shard.is_none()
    }

    /// The stored version matches.
    pub fn matches(&self, resource: &Resource, entry: &Entry) -> bool {
        if self.is_everything() {
            return true;
        }
        self.shard.as_ref().is_none_or(|shard| shard.matches(entry))
            && self.matches_attributes(&Attributes::of_entry(resource, entry))
    }

    fn matches_attributes(&self, attributes: &Attributes) -> bool {
        self.labels
            .as_ref()
            .is_none_or(|labels| labels.matches(&attributes.labels))
            && self
                .fields
                .as_ref()
                .is_none_or(|fields| fields.matches(|name| attributes.field(name)))
            && self.classic.is_none_or(|classic| {
                let driver = attributes.field(CLASSIC_DRIVER);
                classic == driver.is_some_and(|driver| !driver.is_empty())
            })
    }
}

/// The name by which clients select a field; `None` if they cannot.
fn public_name<'a>(resource: &Resource, stored: &'a str) -> Option<&'a str> {
    let mut renamed = resource.rules.renamed_fields.iter();
    match renamed.find(|(known, _)| *known == stored) {
        Some((_, "")) => None,
        Some((_, public)) => Some(public),
        None => Some(stored),
    }
}

fn stored_name(resource: &Resource, public: &str) -> String {
    let mut renamed = resource.rules.renamed_fields.iter();
    let known = renamed.find(|(_, known)| *known == public);
    known.map_or(public, |(stored, _)| stored).to_owned()
}

/// Upstream's text for a field that cannot be selected.
fn unsupported_field(resource: &Resource, version: &str, field: &str) -> String {
    let (group, kind) = (&resource.group, &resource.kind);
    match resource.rules.unsupported_field {
        UnsupportedField::NotSupported => format!("field label not supported: {field}"),
        UnsupportedField::NotSupportedForVersion => {
            format!("field label not supported for {group}/{version}, Kind={kind}: {field}")
        }
        UnsupportedField::NotSupportedForKind => {
            format!("field label {field:?} not supported for {kind}")
        }
        UnsupportedField::Unknown => format!(
            "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
    }
}
