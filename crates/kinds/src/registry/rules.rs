//! What differs from kind to kind: the rules of a kind, as data and functions.
//!
//! The modules that serve requests (`strategy`, `validate`, `warnings`, `select`, `table`, …) read the rules of the
//! resource at hand and name no kind. A kind states in its file below `builtin` what differs from [`Rules::DEFAULT`].

use std::borrow::Cow;

use allot_apimachinery::field::ErrorList;
use allot_apimachinery::names;
use allot_model::features::{Feature, Features};
use allot_model::validate::meta::NameRule;
use serde_json::Value;

mod choices;

pub use choices::{Connect, Create, Generation, MetadataErrors, Review, UnsupportedField};

use super::Resource;
use crate::custom::Column;
use crate::error::Result;
use crate::request::{DeleteOptions, Part};

/// Converts an object of a resource from one version to another.
pub type Convert = fn(&Resource, Value, from: &str, to: &str) -> Result<Value>;

/// The fields by which objects of a resource can be selected, where that depends on the resource.
pub type SelectableIn = fn(&Resource) -> Vec<Cow<'static, str>>;

/// What the rows of a table are sorted by.
pub type RowOrder = fn(object: &Value) -> (i64, &str);

/// Makes the cells of a row.
pub type Cells = Box<dyn Fn(&Value) -> Vec<Value>>;

/// Adds the errors of an object.
pub type Check = fn(object: &Value, errors: &mut ErrorList);
/// Adds the errors of a changed object, given the one before.
pub type CheckChange = fn(object: &Value, old: &Value, errors: &mut ErrorList);
/// Makes the cells of a table's row.
pub type Row = fn(object: &Value) -> Vec<Value>;

/// The rules of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    // Names and requests.
    /// Errors of an object's name.
    pub name: NameRule,
    /// Errors of a new object's name, as long as a feature is off.
    pub name_without: Option<(Feature, NameRule)>,
    /// Upstream's prefix of the keys in its storage, which messages about conflicts contain; empty: the plural.
    pub storage_prefix: &'static str,
    /// The resource that an error about an object that is not found names; empty: the plural.
    pub missing: &'static str,
    /// A `PUT` can create an object.
    pub create_on_update: bool,
    /// Updates through this version must name the `resourceVersion`.
    pub requires_version: fn(version: &str) -> bool,
    /// The server generates a UUID as the name if the name is empty.
    pub names_by_uuid: bool,
    /// The server allocates addresses and ports before an object is stored, and releases them on deletion.
    pub allocates_addresses: bool,
    /// What a create request does; most store an object.
    pub create: Create,
    /// Where the requests go that are passed on.
    pub connect: Option<Connect>,
    /// A get comes from the store; upstream reads other kinds from a cache, which rejects a resource version that is no
    /// number with another error.
    pub reads_from_store: bool,
    /// The finalizer that an object has from its creation on, until a controller has found it unused.
    pub protection_finalizer: Option<&'static str>,
    /// Objects are namespaces: requests for one carry its name as their namespace.
    pub is_namespace: bool,
    /// Answers of the status subresource can be tables.
    pub status_has_table: bool,

    // Defaults and form.
    /// Fills in defaults in a version, instead of those of the schema.
    pub defaults: Option<fn(&Resource, version: &str, object: &mut Value)>,
    /// Defaults of the status come from the spec, so that a write of the status must include the spec.
    pub defaults_status_from_spec: bool,
    /// Brings an admitted and validated object into its stored form, instead of normalization by the schema.
    pub normalize: Option<fn(&Resource, object: &mut Value)>,
    /// Converts an object between versions of different shape; `None`: only the `apiVersion` differs.
    pub convert: Option<Convert>,
    /// Objects are stored as those of another group.
    pub stored_form: Option<StoredForm>,
    /// Changes the metadata of a metadata-only object to upstream's internal form.
    pub partial_metadata: Option<fn(&mut Value)>,

    // Preparation of a write.
    /// Path of the pod or pod template in an object; `None` if it has neither.
    pub pod_template: Option<&'static [&'static str]>,
    /// What a generated name is written to besides `metadata.name`.
    pub on_generated_name: Option<fn(object: &mut Value, name: &str)>,
    /// Removes fields of disabled features that the object before does not use.
    pub drop_disabled: Option<fn(&Features, object: &mut Value, old: &Value)>,
    /// Sets the state of a new object; `None`: a status subresource starts empty.
    pub initialize: Option<fn(object: &mut Value)>,
    /// The last step of the preparation of a new object.
    pub prepare_create: Option<fn(object: &mut Value)>,
    /// Reverts what an update through a subresource other than status and scale cannot change.
    pub prepare_part: Option<fn(object: &mut Value, old: &Value, part: Part)>,
    /// The last step of the preparation of a changed object, before its generation is counted.
    pub prepare_update: Option<fn(object: &mut Value, old: &Value, part: Part)>,
    /// Whether `metadata.generation` counts changes.
    pub generation: Generation,
    /// Whether the change increments the generation.
    pub spec_changed: fn(new: &Value, old: &Value) -> bool,
    /// Members of the metadata that a status update cannot change, of [`ALL_METADATA`].
    pub status_keeps: &'static [&'static str],
    /// A status update ignores a deletion timestamp instead of rejecting it.
    pub status_ignores_deletion: bool,
    /// A status update ignores UID, name and namespace instead of comparing them.
    pub status_ignores_identity: bool,
    /// Fields that writes through a subresource do not own, where they differ from the rule of most kinds.
    pub reset_fields: &'static [(&'static str, &'static [&'static [&'static str]])],
    /// The kind does these steps of a write on its own.
    pub steps: Option<&'static Steps>,

    // Validation.
    /// Errors of an object, in its stored version; the metadata is validated elsewhere.
    pub validate: Check,
    /// Errors of a new object; `None`: those of `validate`.
    pub validate_create: Option<Check>,
    /// Errors of an update of the object itself; `None`: those of `validate`.
    pub validate_update: Option<CheckChange>,
    /// Errors of a status update; `None`: none.
    pub validate_status: Option<CheckChange>,
    /// Errors of an update through another subresource; `None`: those of `validate`.
    pub validate_part: Option<fn(object: &Value, old: &Value, part: Part, errors: &mut ErrorList)>,
    /// Errors of fields that the preparation generates; they come before all others but those of the metadata.
    pub validate_generated: Option<Check>,
    /// Errors of fields that depend on feature gates, after all others of the spec; `old` is null for a new object.
    pub validate_gated: Option<fn(&Features, object: &Value, old: &Value, errors: &mut ErrorList)>,
    /// Where the errors of a new object's metadata are among the others.
    pub metadata_errors: MetadataErrors,
    /// Finalizers need no domain: upstream validates them like those of custom resources.
    pub own_finalizers: bool,
    /// The rules for updates check changes of the metadata a second time.
    pub checks_metadata_change: fn(object: &Value) -> bool,
    /// The rules for updates validate the metadata as that of a new object.
    pub validates_metadata_again: bool,

    // Warnings.
    /// Replaces old annotations of a new object by fields; returns the warnings about them.
    pub replace_annotations: Option<fn(object: &mut Value) -> Vec<String>>,
    /// Warnings about an object.
    pub warnings: fn(object: &Value) -> Vec<String>,
    /// Warnings about a new object; `None`: those of `warnings`.
    pub warnings_create: Option<fn(object: &Value) -> Vec<String>>,
    /// Warnings about a changed object; `None`: those of `warnings`.
    pub warnings_update: Option<fn(object: &Value, old: &Value) -> Vec<String>>,
    /// Warnings about a write of the status; `None`: none.
    pub warnings_status: Option<fn(object: &Value) -> Vec<String>>,
    /// The warning about a delete.
    pub warning_delete: Option<fn(&DeleteOptions) -> Option<&'static str>>,

    // Deletion.
    /// The reason why clients cannot delete the object of a name.
    pub refuses_delete: Option<fn(name: &str) -> Option<&'static str>>,
    /// A delete is an update that writes this, and keeps the generation.
    pub delete_by_update: Option<fn(object: &mut Value)>,
    /// Dependents are orphaned if the client sets no propagation policy. kubectl always sets one.
    pub orphans_by_default: bool,
    /// Objects have no dependents: a propagation policy adds no finalizer.
    pub has_no_dependents: bool,
    /// Objects end with a phase, in which they stay until `spec.finalizers` is empty.
    pub spec_finalizers: bool,
    /// The grace period in seconds of a deletion, given the requested one.
    pub grace_period: Option<fn(object: &Value, requested: Option<i64>) -> i64>,
    /// A delete in this version returns the object instead of a `Status`.
    pub delete_returns_object: fn(version: &str) -> bool,

    // Watches.
    /// Adds what upstream's conversion of an empty object adds to a bookmark.
    pub fill_bookmark: fn(object: &mut Value),

    // Lists.
    /// Fields of field selectors besides name and namespace, in upstream's names.
    pub selectable: &'static [&'static str],
    /// The same, where it depends on the release.
    pub selectable_in: Option<SelectableIn>,
    /// Selectable fields that are no paths into the object.
    pub computed_fields: &'static [ComputedField],
    /// Selectable fields by their stored and their public name; an empty public name hides the field.
    pub renamed_fields: &'static [(&'static str, &'static str)],
    /// Field selectors can name a namespace.
    pub selects_namespace: bool,
    /// Upstream's message for a field that cannot be selected.
    pub unsupported_field: UnsupportedField,
    /// Columns as `table::parse_columns` reads them, and the cells of a row; `None`: name and creation time.
    pub table: Option<(&'static str, Row)>,
    /// The same, where it depends on the version.
    pub layout: Option<fn(&Resource, version: &str) -> Layout>,
    /// The condition of an object's row.
    pub row_condition: Option<fn(object: &Value) -> Option<Value>>,
    /// The order of rows, if it is not that of the keys.
    pub row_order: Option<RowOrder>,
    /// `spec.selector` is a map of labels, which the scale subresource shows as a selector.
    pub plain_selector: bool,
}

impl Rules {
    /// The rules of a kind without any of its own.
    pub const DEFAULT: Rules = Rules {
        name: names::dns1123_subdomain,
        name_without: None,
        storage_prefix: "",
        missing: "",
        create_on_update: false,
        requires_version: |_| false,
        names_by_uuid: false,
        allocates_addresses: false,
        create: Create::Store,
        connect: None,
        reads_from_store: false,
        protection_finalizer: None,
        is_namespace: false,
        status_has_table: true,
        defaults: None,
        defaults_status_from_spec: false,
        normalize: None,
        convert: None,
        stored_form: None,
        partial_metadata: None,
        pod_template: None,
        on_generated_name: None,
        drop_disabled: None,
        initialize: None,
        prepare_create: None,
        prepare_part: None,
        prepare_update: None,
        generation: Generation::None,
        spec_changed: |new, old| new["spec"] != old["spec"],
        status_keeps: &[],
        status_ignores_deletion: false,
        status_ignores_identity: false,
        reset_fields: &[],
        steps: None,
        validate: |_, _| {},
        validate_create: None,
        validate_update: None,
        validate_status: None,
        validate_part: None,
        validate_generated: None,
        validate_gated: None,
        metadata_errors: MetadataErrors::First,
        own_finalizers: false,
        checks_metadata_change: |_| true,
        validates_metadata_again: true,
        replace_annotations: None,
        warnings: |_| Vec::new(),
        warnings_create: None,
        warnings_update: None,
        warnings_status: None,
        warning_delete: None,
        refuses_delete: None,
        delete_by_update: None,
        orphans_by_default: false,
        has_no_dependents: false,
        spec_finalizers: false,
        grace_period: None,
        delete_returns_object: |_| false,
        fill_bookmark: |_| {},
        selectable: &[],
        selectable_in: None,
        computed_fields: &[],
        renamed_fields: &[],
        selects_namespace: true,
        unsupported_field: UnsupportedField::Unknown,
        table: None,
        layout: None,
        row_condition: None,
        row_order: None,
        plain_selector: false,
    };

    /// The rules of custom resources; the rest is in their definitions.
    pub const CUSTOM: Rules = Rules {
        requires_version: |_| true,
        generation: Generation::FromCreate,
        spec_changed: anything_changed,
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        status_ignores_identity: true,
        unsupported_field: UnsupportedField::NotSupported,
        ..Rules::DEFAULT
    };

    /// A status update cannot change any metadata.
    pub fn status_keeps_metadata(&self) -> bool {
        self.status_keeps.len() == ALL_METADATA.len()
    }
}

/// The metadata that a status update of most kinds can change; newer kinds reset it (`ResetObjectMetaForStatus`).
pub const ALL_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Anything but status, metadata and type changed: the rule of kinds whose fields are not in a `spec`.
pub fn anything_changed(new: &Value, old: &Value) -> bool {
    let strip = |value: &Value| {
        let mut map = value.as_object().cloned().unwrap_or_default();
        for key in ["metadata", "status", "kind", "apiVersion"] {
            map.remove(key);
        }
        map
    };
    strip(new) != strip(old)
}

/// How objects of a kind become those of another group, as which they are stored.
#[derive(Debug, Clone, Copy)]
pub struct StoredForm {
    /// Converts an object that was read from the store to the kind of this resource.
    pub read: fn(&mut Value),
    /// Converts an object to the form that is stored.
    pub write: fn(&mut Value),
}

/// A selectable field that is no path into the object.
#[derive(Debug, Clone, Copy)]
pub struct ComputedField {
    /// Upstream's name.
    pub name: &'static str,
    /// The paths that its value depends on, besides name, namespace and labels.
    pub reads: &'static [&'static str],
    /// Computes what selectors compare with.
    pub value: fn(&Value) -> String,
}

/// Steps of a write that a kind does on its own.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Sets the initial state of a new object.
    pub prepare_for_create: fn(&Features, &Resource, object: &mut Value),
    /// Reverts the fields of an update that its endpoint must not change.
    pub prepare_for_update: fn(&Features, &Resource, object: &mut Value, old: &Value, part: Part),
    /// All errors of a new object.
    pub validate_create: fn(&Features, &Resource, object: &Value) -> ErrorList,
    /// Errors of a changed object, besides those of the metadata of all kinds.
    pub validate_update:
        fn(&Features, &Resource, object: &Value, old: &Value, part: Part) -> ErrorList,
}

/// The columns of a table and the function for its rows.
pub struct Layout {
    /// Names, types and descriptions of the columns.
    pub columns: Vec<Column>,
    /// Makes the cells of a row.
    pub row: Cells,
    /// Upstream's default printer leaves the rows of an empty list null.
    pub null_when_empty: bool,
}
