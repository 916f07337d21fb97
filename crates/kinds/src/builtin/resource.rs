//! The kinds of `resource.k8s.io`: what they do is in `allot_model`, also for the versions from before 1.31.

use std::borrow::Cow;

use allot_apimachinery::field::ErrorList;
use allot_model::Kind;
use allot_model::features::Features;
use allot_model::validate::RawTexts;
use serde_json::Value;

use crate::custom::Column;
use crate::error::{ApiError, Result};
use crate::registry::{ALL_METADATA, BASE, Builtin, Layout, Resource, Rules, Steps};
use crate::request::Part;
use crate::versions::{self, dra_kind};
use crate::{classic, empties, table};

mod device_class;
mod device_taint_rule;
pub(super) mod release;
mod resource_claim;
mod resource_claim_template;
mod resource_pool_status_request;
mod resource_slice;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &device_class::DEVICE_CLASS,
    &device_taint_rule::DEVICE_TAINT_RULE,
    &resource_claim::RESOURCE_CLAIM,
    &resource_claim_template::RESOURCE_CLAIM_TEMPLATE,
    &resource_pool_status_request::RESOURCE_POOL_STATUS_REQUEST,
    &resource_slice::RESOURCE_SLICE,
];

/// What the kinds of the group have in common: their rules are in `allot_model`.
const RESOURCE: Builtin = Builtin {
    group: "resource.k8s.io",
    versions: &["v1", "!v1beta2", "!v1beta1"],
    deprecated: &[
        ("v1beta1", "v1.35", "v1.38", ""),
        ("v1beta2", "v1.36", "v1.39", ""),
    ],
    rules: RULES,
    ..BASE
};

/// The rules of the kinds of the group, and of those that only exist in classic versions.
const RULES: Rules = Rules {
    defaults: Some(defaults),
    normalize: Some(normalize),
    convert: Some(convert),
    status_keeps: ALL_METADATA,
    status_ignores_deletion: true,
    steps: Some(&Steps {
        prepare_for_create,
        prepare_for_update,
        validate_create,
        validate_update,
    }),
    delete_returns_object: |_| true,
    layout: Some(layout),
    ..Rules::DEFAULT
};

fn defaults(resource: &Resource, version: &str, object: &mut Value) {
    if let Some(kind) = classic::kind_in(resource, version) {
        return allot_model::classic::default(kind, object);
    }
    if let (Some(kind), Ok(version)) = (dra_kind(resource), version.parse()) {
        allot_model::defaults::default(kind, version, object, jiff::Timestamp::now());
    }
}

fn normalize(resource: &Resource, object: &mut Value) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::normalize(kind, object);
    }
    if let Some(kind) = dra_kind(resource) {
        allot_model::convert::normalize(kind, object);
    }
}

fn convert(resource: &Resource, object: Value, from: &str, to: &str) -> Result<Value> {
    if let Some(converted) = classic::convert(resource, &object, from, to) {
        return converted.map_err(|error| ApiError::bad_request(error.to_string()));
    }
    let unknown =
        || ApiError::bad_request(format!("no version {to:?} of kind {:?}", resource.kind));
    let kind = dra_kind(resource).ok_or_else(unknown)?;
    let (from, to) = (
        from.parse().map_err(|_| unknown())?,
        to.parse().map_err(|_| unknown())?,
    );
    allot_model::convert::convert(kind, from, to, object)
        .map_err(|error| ApiError::bad_request(error.to_string()))
}

fn prepare_for_create(features: &Features, resource: &Resource, object: &mut Value) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::prepare_for_create(kind, object);
    }
    if let Some(kind) = dra_kind(resource) {
        allot_model::strategy::prepare_for_create(kind, object, features);
    }
}

fn prepare_for_update(
    features: &Features,
    resource: &Resource,
    object: &mut Value,
    old: &Value,
    part: Part,
) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return classic::prepare_for_update(kind, object, old, part);
    }
    let Some(kind) = dra_kind(resource) else {
        return;
    };
    match part {
        Part::Status => {
            allot_model::strategy::prepare_for_status_update(kind, object, old, features);
        }
        _ => {
            allot_model::strategy::prepare_for_update(
                kind,
                object,
                old,
                features,
                jiff::Timestamp::now(),
            );
        }
    }
}

/// The texts of raw fields in the body of the request.
const SENT: RawTexts = RawTexts {
    shown: crate::raw::shown,
    length: crate::raw::length,
};

fn validate_create(features: &Features, resource: &Resource, object: &Value) -> ErrorList {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::create(kind, object);
    }
    match dra_kind(resource) {
        Some(kind) => {
            let object = as_sent(kind, object, None, Part::Main, features);
            let validate = || allot_model::validate::create(kind, &object, features);
            allot_model::validate::showing_raw(SENT, validate)
        }
        None => ErrorList::new(),
    }
}

fn validate_update(
    features: &Features,
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part,
) -> ErrorList {
    if let Some(kind) = classic::kind_of(resource, object) {
        return classic::validate_update(kind, object, old, part);
    }
    let Some(kind) = dra_kind(resource) else {
        return ErrorList::new();
    };
    let object = as_sent(kind, object, Some(old), part, features);
    allot_model::validate::showing_raw(SENT, || match part {
        Part::Status => allot_model::validate::status_update(kind, &object, old),
        // As upstream's strategy, which alone of these does so.
        _ if kind == Kind::ResourceClaimTemplate => {
            let mut errors = allot_model::validate::create(kind, &object, features);
            errors.extend(allot_model::validate::update(kind, &object, old, features));
            errors
        }
        _ => allot_model::validate::update(kind, &object, old, features),
    })
}

/// The object as it was sent: validation tells empty lists from absent ones. Those of disabled features are absent.
fn as_sent<'a>(
    kind: Kind,
    object: &'a Value,
    old: Option<&Value>,
    part: Part,
    features: &Features,
) -> Cow<'a, Value> {
    let mut sent = empties::restored(object, part, place_in_hub);
    if let Cow::Owned(sent) = &mut sent {
        allot_model::strategy::drop_disabled_fields(kind, sent, old, features);
    }
    sent
}

/// Where a pointer into one of the versions leads in the hub: in the flat ones a request has no `exactly`, and a device
/// has the most in `basic`. None for what is nil there after the conversion.
fn place_in_hub(pointer: &str) -> Option<String> {
    let mut keys: Vec<&str> = pointer.split('/').collect();
    let below = |list: &str| {
        let at = keys.iter().position(|key| *key == list)? + 2;
        Some((at, *keys.get(at)?))
    };
    match (below("requests"), below("devices")) {
        (Some((_, "tolerations")), _) => return None,
        (Some((at, key)), _) if !matches!(key, "exactly" | "firstAvailable") => {
            keys.insert(at, "exactly");
        }
        (_, Some((at, "basic"))) => {
            keys.remove(at);
        }
        _ => {}
    }
    Some(keys.join("/"))
}

fn layout(resource: &Resource, version: &str) -> Layout {
    if let Some(kind) = classic::kind_in(resource, version) {
        let row =
            move |object: &Value| allot_model::classic::row(kind, object, jiff::Timestamp::now());
        return Layout {
            columns: owned_columns(allot_model::classic::columns(kind)),
            row: Box::new(row),
            null_when_empty: false,
        };
    }
    let Some(kind) = dra_kind(resource) else {
        return table::fallback();
    };
    let columns = owned_columns(allot_model::table::columns(kind));
    let resource = resource.clone();
    let row = Box::new(move |object: &Value| {
        // Cells are computed from the stored form, regardless of the version that the client requests.
        let hub = versions::convert(&resource, object.clone(), &resource.storage_version);
        allot_model::table::row(kind, hub.as_ref().unwrap_or(object), jiff::Timestamp::now())
    });
    Layout {
        columns,
        row,
        null_when_empty: false,
    }
}

fn owned_columns(columns: &[allot_model::table::Column]) -> Vec<Column> {
    let owned = |column: &allot_model::table::Column| Column {
        name: column.name.to_owned(),
        kind: column.kind.to_owned(),
        format: column.format.to_owned(),
        description: column.description.to_owned(),
        priority: i64::from(column.priority),
    };
    columns.iter().map(owned).collect()
}
