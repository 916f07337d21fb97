//! Custom resources: what a CustomResourceDefinition adds to the registry.
//!
//! A definition is compiled once per change into a [`CustomResource`]; the server watches definitions and keeps the registry
//! up to date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_model::validate::meta as meta_rules;
use allot_schema::decode::DecodeError;
use allot_schema::{Node, definition, rules::Rules, structural, structural::Structural};
use allot_store::{Backend, Entry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::object::split_api_version;
use crate::request::Part;

mod column;
pub mod json_path;
mod scale;

pub use column::Column;
pub use scale::Scale;

/// The next mark; an entry without one has 0.
static MARKS: AtomicU64 = AtomicU64::new(1);

/// The definition behind a custom resource, compiled.
#[derive(Debug)]
pub struct CustomResource {
    group: String,
    kind: String,
    namespaced: bool,
    versions: Vec<CustomVersion>,
    converter: Option<Arc<dyn Converter>>,
    terminating: bool,
    /// See [`CustomResource::ended`].
    ended: CancellationToken,
}

/// Converts objects of a custom resource between its versions, by the webhook of the definition.
pub trait Converter: std::fmt::Debug + Send + Sync {
    /// An object that was converted to the version before, if it has not changed since.
    fn remembered(&self, version: &str, entry: &Entry) -> Option<Arc<Entry>>;

    /// Remembers a converted object.
    fn remember(&self, version: &str, entry: &Arc<Entry>);

    /// Converts objects to the API version `wanted`.
    ///
    /// # Errors
    /// 500 with upstream's message.
    fn convert<'a>(
        &'a self,
        backend: &'a dyn Backend,
        objects: &'a [Value],
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>>>;
}

/// One version of a custom resource.
#[derive(Debug)]
struct CustomVersion {
    name: String,
    /// See [`CustomResource::mark`].
    mark: u64,
    schema: Structural,
    rules: Option<Rules>,
    status: bool,
    scale: Option<Scale>,
    /// The schema as written, for documents. As text it takes a fraction of the memory.
    source: Box<str>,
    /// See [`CustomResource::schema_digest`].
    digest: String,
    columns: Vec<column::CustomColumn>,
    selectable: Vec<String>,
}

/// Why an object that was sent cannot be read as its version; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The metadata of the object.
    #[error(transparent)]
    Metadata(#[from] DecodeError),
    /// The type or the metadata of an object embedded in it.
    #[error(transparent)]
    Embedded(#[from] Box<Error>),
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The description of an object in upstream's messages.
pub fn kind_of(object: &Value) -> String {
    let (group, version) = split_api_version(text(object, "apiVersion"));
    format!("{group}/{version}, Kind={}", text(object, "kind"))
}

impl CustomResource {
    /// Compiles a definition. `converter` calls its conversion webhook.
    pub fn new(object: &Value, converter: Option<Arc<dyn Converter>>) -> Self {
        let spec = &object["spec"];
        let versions = definition::versions(object)
            .iter()
            .map(|version| {
                let source = &version["schema"]["openAPIV3Schema"];
                let schema = Structural::from_json(source);
                let source = source.to_string();
                CustomVersion {
                    digest: BASE64.encode(digest(&SHA256, source.as_bytes())),
                    mark: MARKS.fetch_add(1, Ordering::Relaxed),
                    rules: Rules::compile(&schema),
                    name: text(version, "name").to_owned(),
                    schema,
                    status: version["subresources"]["status"].is_object(),
                    scale: Scale::of(&version["subresources"]["scale"]),
                    source: source.into(),
                    columns: column::columns(&version["additionalPrinterColumns"]),
                    selectable: version["selectableFields"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                        .collect(),
                }
            })
            .collect();
        Self {
            group: text(spec, "group").to_owned(),
            kind: text(&spec["names"], "kind").to_owned(),
            namespaced: text(spec, "scope") == "Namespaced",
            versions,
            converter,
            terminating: definition::is_true(object, "Terminating"),
            ended: CancellationToken::new(),
        }
    }

    /// Ends watches when the CRD is changed or deleted.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Watches that began with an earlier state of the definition go on: it serves the same.
    pub fn follows(&mut self, earlier: &Self) {
        self.ended = earlier.ended.clone();
    }

    /// The webhook that converts the objects, if there is one.
    pub fn converter(&self) -> Option<&dyn Converter> {
        self.converter.as_deref()
    }

    /// Whether a version has the status subresource.
    pub fn has_any_status(&self) -> bool {
        self.versions.iter().any(|version| version.status)
    }

    /// Whether a version has the scale subresource.
    pub fn has_any_scale(&self) -> bool {
        self.versions.iter().any(|version| version.scale.is_some())
    }

    /// The definition is being deleted: there will be no more objects.
    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// The mark of stored objects that this state of a CRD serves as they are stored: pruning and defaults change
    /// nothing. No other CRD and no other state of this one has the same.
    pub fn mark(&self, version: &str) -> Option<u64> {
        self.version(version).map(|version| version.mark)
    }

    fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Fields that selectors may use, such as `spec.color`; those of any version, as one watch may see several.
    pub fn selectable_fields(&self) -> Vec<String> {
        let mut fields: Vec<String> = self
            .versions
            .iter()
            .flat_map(|version| version.selectable.clone())
            .collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// The schema of a version, for merging.
    pub fn node(&self, version: &str) -> Option<Node<'_>> {
        self.version(version)
            .map(|version| Node::Custom(&version.schema))
    }

    /// The schema of a version as the definition has it.
    pub fn schema(&self, version: &str) -> Value {
        let found = self.version(version);
        let read = |version: &CustomVersion| serde_json::from_str(&version.source).ok();
        found.and_then(read).unwrap_or_default()
    }

    /// A digest of the schema of a version, which changes when the schema does: what depends on the schemas of all
    /// definitions need not read them.
    pub fn schema_digest(&self, version: &str) -> &str {
        self.version(version).map_or("", |version| &version.digest)
    }

    /// The columns of a table in a version.
    pub fn columns(&self, version: &str) -> Vec<Column> {
        self.version(version)
            .map(|version| column::headers(&version.columns))
            .unwrap_or_default()
    }

    /// The cells of a row.
    pub fn row(&self, version: &str, object: &Value) -> Vec<Value> {
        self.version(version)
            .map(|version| column::cells(&version.columns, object))
            .unwrap_or_default()
    }

    /// What the scale subresource of a version reads and writes.
    pub fn scale(&self, version: &str) -> Option<&Scale> {
        self.version(version)?.scale.as_ref()
    }

    /// Prunes fields that the version does not have; returns them, as strict decoding does. A version that does not
    /// exist has no fields.
    pub fn prune(&self, version: &str, object: &mut Value) -> Vec<String> {
        let unknown = match self.version(version) {
            Some(version) => structural::prune(object, &version.schema),
            None => structural::prune(object, &Structural::default()),
        };
        unknown
            .into_iter()
            .map(|field| format!("unknown field {field:?}"))
            .collect()
    }

    /// Reads an object that was sent, as the version that it names: metadata by its type, without fields outside of the
    /// schema. Returns the pruned fields, as strict decoding does. An object of another kind keeps everything but its
    /// metadata: validation rejects it.
    ///
    /// # Errors
    /// The metadata of the object, or of one embedded in it, has a value of a wrong type.
    pub fn read(&self, object: &mut Value) -> Result<Vec<String>, ReadError> {
        let mut unknown = structural::coerce_metadata(object)?;
        let (group, version) = crate::object::split_api_version(text(object, "apiVersion"));
        if group == self.group && text(object, "kind") == self.kind {
            let nothing = Structural::default();
            let schema = self
                .version(version)
                .map_or(&nothing, |version| &version.schema);
            unknown.extend(structural::prune(object, schema));
            let embedded = structural::coerce_embedded(object, schema);
            unknown.extend(embedded?);
        }
        let named = |field: String| format!("unknown field {field:?}");
        Ok(unknown.into_iter().map(named).collect())
    }

    /// Sets defaults; removes nulls where they are not allowed.
    pub fn default(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            structural::prune_nulls(object, &version.schema);
        }
        self.default_applied(version, object);
    }

    /// Sets defaults in the result of an apply: what it merges is not decoded, so that its nulls stay.
    pub fn default_applied(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            structural::default(object, &version.schema);
        }
    }

    /// Errors of a new object (no `old`) or of a change through an endpoint.
    pub fn validate(
        &self,
        version: &str,
        object: &Value,
        old: Option<&Value>,
        part: Part,
    ) -> ErrorList {
        let type_errors = self.validate_type(version, object);
        let Some(version) = self.version(version).filter(|_| type_errors.is_empty()) else {
            return type_errors;
        };
        let path = Path::new("metadata");
        let (schema, root) = (&version.schema, Path::root());
        let mut errors = match old {
            None => {
                let name_rule = allot_apimachinery::names::dns1123_subdomain;
                meta_rules::any_object_meta(&object["metadata"], self.namespaced, name_rule, &path)
            }
            Some(old) => {
                meta_rules::any_object_meta_update(&object["metadata"], &old["metadata"], &path)
            }
        };
        match (part, old) {
            (Part::Status, Some(old)) => {
                if let (Some(status), Some(schema)) =
                    (object.get("status"), schema.properties.get("status"))
                {
                    errors.extend(structural::validate_update(
                        status,
                        &old["status"],
                        schema,
                        &Path::new("status"),
                    ));
                }
            }
            (_, Some(old)) => {
                errors.extend(structural::validate_update(object, old, schema, &root))
            }
            (_, None) => errors.extend(structural::validate(object, schema, &root)),
        }
        if let Some(scale) = &version.scale {
            errors.extend(scale.validate(object, part));
        }
        errors.extend(structural::validate_embedded(
            object,
            schema,
            &root,
            embedded_meta,
        ));
        let lists = |object: &Value| structural::validate_lists(object, schema, &root);
        if old.is_none_or(|old| lists(old).is_empty()) {
            errors.extend(lists(object));
        }
        if let Some(rules) = &version.rules {
            if errors.iter().any(blocks_rules) {
                let detail = "some validation rules were not checked because the object was invalid; \
                              correct the existing errors to complete validation";
                errors.push(Error::invalid(&Path::new("<nil>"), &Value::Null, detail));
            } else {
                errors.extend(rules.validate(object, old, &root));
            }
        }
        errors
    }

    fn validate_type(&self, version: &str, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let kind = text(object, "kind");
        if kind != self.kind {
            errors.push(Error::invalid(
                &Path::new("kind"),
                kind,
                format!("must be {}", self.kind),
            ));
        }
        let wanted = format!("{}/{version}", self.group);
        let found = text(object, "apiVersion");
        if found != wanted {
            errors.push(Error::invalid(
                &Path::new("apiVersion"),
                found,
                format!("must be {wanted}"),
            ));
        }
        errors
    }

    /// The status endpoint of a version exists.
    pub fn has_status(&self, version: &str) -> bool {
        self.version(version).is_some_and(|version| version.status)
    }
}

/// Errors of the metadata of an object inside of another, which may have no name.
fn embedded_meta(metadata: &Value, path: &Path) -> ErrorList {
    let mut metadata = metadata.clone();
    if text(&metadata, "name").is_empty() {
        metadata["name"] = "fakename".into();
    }
    let namespaced = !text(&metadata, "namespace").is_empty();
    meta_rules::any_object_meta(
        &metadata,
        namespaced,
        allot_apimachinery::names::path_segment_name,
        path,
    )
}

/// Rules are not run on an object that has such an error: they could meet what their types exclude.
fn blocks_rules(error: &Error) -> bool {
    use allot_apimachinery::field::ErrorType;
    matches!(
        error.kind,
        ErrorType::NotSupported
            | ErrorType::Required
            | ErrorType::TooLong
            | ErrorType::TooMany
            | ErrorType::TypeInvalid
    )
}

#[cfg(test)]
mod tests;
