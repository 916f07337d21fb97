//! ResourceClaims: their requests. Templates share these rules.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use allot_cel::device;
use serde_json::Value;

use super::common::{itself, list, set};
use super::{consumable_capacity, meta, names, opaque};
use crate::features::{Feature, Features};
use crate::limits;
use crate::shape::{self, tables};
use crate::view::View;

pub(crate) fn create(claim: &Value, features: &Features) -> ErrorList {
    let mut errors = meta::object_meta(
        claim.at("metadata"),
        true,
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    errors.extend(spec(claim.at("spec"), features, &Path::new("spec")));
    errors
}

/// The spec is immutable, so it is not validated again.
pub(crate) fn update(claim: &Value, old: &Value) -> ErrorList {
    let path = Path::new("metadata");
    let mut errors = meta::object_meta(claim.at("metadata"), true, rules::dns1123_subdomain, &path);
    errors.extend(meta::object_meta_update(
        claim.at("metadata"),
        old.at("metadata"),
        &path,
    ));
    let ty = shape::Ty::Struct(&tables::CLAIM_SPEC);
    errors.extend(immutable(
        ty,
        claim.at("spec"),
        old.at("spec"),
        &Path::new("spec"),
    ));
    errors
}

/// An error when the values differ, showing the new one as upstream does.
pub(crate) fn immutable(ty: shape::Ty, value: &Value, old: &Value, path: &Path) -> Option<Error> {
    if shape::equal(ty, value, old) {
        return None;
    }
    // Upstream compares values, not pointers: a missing struct is an empty one.
    let empty = Value::Object(serde_json::Map::new());
    let shown = if value.is_null() { &empty } else { value };
    Some(Error::invalid(
        path,
        BadValue::raw(shape::quote(ty, shown)),
        "field is immutable",
    ))
}

/// Checks a claim spec, also that inside a template.
pub(crate) fn spec(spec: &Value, features: &Features, path: &Path) -> ErrorList {
    let devices = spec.at("devices");
    let path = path.child("devices");
    let names = RequestNames::of(devices);
    let mut errors = set(
        devices.list("requests"),
        limits::REQUESTS,
        &path.child("requests"),
        |request, path| self::request(request, features, path),
        |request| request.text("name").to_owned(),
    );
    errors.extend(list(
        devices.list("constraints"),
        limits::CONSTRAINTS,
        &path.child("constraints"),
        |item, path| constraint(item, &names, features, path),
    ));
    errors.extend(list(
        devices.list("config"),
        limits::CONFIGS,
        &path.child("config"),
        |item, path| {
            let mut errors = names.references(item.list("requests"), &path.child("requests"));
            errors.extend(opaque::configuration(item, path, false));
            errors
        },
    ));
    errors
}

fn request(request: &Value, features: &Features, path: &Path) -> ErrorList {
    let mut errors = names::label(request.text("name"), &path.child("name"));
    let alternatives = request.list("firstAvailable");
    match (request.has("exactly"), !alternatives.is_empty()) {
        (false, false) => {
            errors.push(Error::required(
                path,
                "exactly one of `exactly` or `firstAvailable` is required",
            ));
        }
        (true, true) => {
            let text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(Error::invalid(path, &Value::Null, text));
        }
        (false, true) => errors.extend(set(
            alternatives,
            limits::FIRST_AVAILABLE,
            &path.child("firstAvailable"),
            |alternative, path| {
                let mut errors = names::label(alternative.text("name"), &path.child("name"));
                errors.extend(wanted(alternative, features, path));
                errors
            },
            |alternative| alternative.text("name").to_owned(),
        )),
        (true, false) => errors.extend(wanted(
            request.at("exactly"),
            features,
            &path.child("exactly"),
        )),
    }
    errors
}

/// The fields that `exactly` and the alternatives share.
fn wanted(wanted: &Value, features: &Features, path: &Path) -> ErrorList {
    let mut errors = names::device_class(
        wanted.text("deviceClassName"),
        &path.child("deviceClassName"),
    );
    errors.extend(selectors(
        wanted.list("selectors"),
        features,
        false,
        &path.child("selectors"),
    ));
    let count = wanted.int("count");
    let count_path = path.child("count");
    match wanted.text("allocationMode") {
        "All" if count != 0 => {
            let text = "must not be specified when allocationMode is 'All'";
            errors.push(Error::invalid(&count_path, count, text));
        }
        "ExactCount" if count <= 0 => errors.push(Error::invalid(
            &count_path,
            count,
            "must be greater than zero",
        )),
        "All" | "ExactCount" => {}
        mode => errors.push(not_supported(
            &path.child("allocationMode"),
            mode,
            &["All", "ExactCount"],
        )),
    }
    // Upstream documents a maximum number of tolerations and does not enforce it.
    let tolerations = path.child("tolerations");
    for (index, item) in wanted.list("tolerations").iter().enumerate() {
        errors.extend(toleration(item, &tolerations.index(index)));
    }
    errors
}

/// An unknown value of an enumeration; upstream shows such values as JSON.
pub(crate) fn not_supported(path: &Path, value: &str, supported: &[&str]) -> Error {
    let shown = BadValue::raw(allot_apimachinery::quote::go_json(&Value::from(value)));
    Error::not_supported(path, shown, supported)
}

/// Checks CEL selectors. `stored` ones were accepted before and are not compiled again.
pub(crate) fn selectors(
    selectors: &[Value],
    features: &Features,
    stored: bool,
    path: &Path,
) -> ErrorList {
    list(selectors, limits::SELECTORS, path, |selector, path| {
        let path = path.child("cel");
        if !selector.has("cel") {
            return ErrorList::from([Error::required(&path, "")]);
        }
        if stored {
            return ErrorList::new();
        }
        let expression = selector.at("cel").text("expression");
        expression_error(expression, features, &path.child("expression"))
            .into_iter()
            .collect()
    })
}

fn expression_error(expression: &str, features: &Features, path: &Path) -> Option<Error> {
    if expression.len() > limits::CEL_EXPRESSION {
        return Some(Error::too_long(path, limits::CEL_EXPRESSION));
    }
    let options = device::Options {
        consumable_capacity: features.enabled(Feature::DRAConsumableCapacity),
        list_type_attributes: features.enabled(Feature::DRAListTypeAttributes),
        ..device::Options::default()
    };
    match device::compile(expression, &options) {
        Err(device::CompileError::Internal(text)) => Some(Error::internal(path, text)),
        Err(device::CompileError::Invalid(text)) => Some(Error::invalid(path, expression, text)),
        Ok(selector) if selector.max_cost() > limits::CEL_COST => {
            Some(Error::forbidden(path, "too complex, exceeds cost limit"))
        }
        Ok(_) => None,
    }
}

/// The effects of taints on devices, in the order of upstream's messages.
pub const TAINT_EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Checks a toleration, in a request or in a result.
pub(crate) fn toleration(toleration: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let key = toleration.text("key");
    if !key.is_empty() {
        errors.extend(names::label_name(key, &path.child("key")));
    }
    let value = toleration.text("value");
    let value_path = path.child("value");
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.push(Error::invalid(
                &value_path,
                value,
                "must be empty for operator `Exists`",
            ));
        }
        "Exists" => {}
        "Equal" => errors.extend(names::label_value(value, &value_path)),
        "" => errors.push(Error::required(&path.child("operator"), "")),
        operator => errors.push(not_supported(
            &path.child("operator"),
            operator,
            &["Equal", "Exists"],
        )),
    }
    let effect = toleration.text("effect");
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
        errors.push(not_supported(&path.child("effect"), effect, &TAINT_EFFECTS));
    }
    errors
}

fn constraint(
    constraint: &Value,
    names: &RequestNames<'_>,
    features: &Features,
    path: &Path,
) -> ErrorList {
    let mut errors = names.references(constraint.list("requests"), &path.child("requests"));
    // With both set upstream only looks at the first.
    if constraint.has("matchAttribute") {
        let attribute = constraint.text("matchAttribute");
        errors.extend(names::fully_qualified(
            attribute,
            &path.child("matchAttribute"),
        ));
    } else if constraint.has("distinctAttribute") {
        let attribute = constraint.text("distinctAttribute");
        errors.extend(names::fully_qualified(
            attribute,
            &path.child("distinctAttribute"),
        ));
    } else if consumable_capacity(features) {
        // The text states the opposite of the error; it is upstream's.
        let text = r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
        errors.push(Error::required(path, text));
    } else {
        errors.push(Error::required(&path.child("matchAttribute"), ""));
    }
    errors
}

/// The names of a claim's requests with those of their alternatives.
pub(crate) struct RequestNames<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(crate) fn of(devices: &'a Value) -> RequestNames<'a> {
        let alternatives = |request: &'a Value| {
            request
                .list("firstAvailable")
                .iter()
                .map(|item| item.text("name"))
        };
        let requests = devices.list("requests").iter();
        RequestNames(
            requests
                .map(|request| (request.text("name"), alternatives(request).collect()))
                .collect(),
        )
    }

    fn contains(&self, request: &str, alternative: Option<&str>) -> bool {
        self.0
            .get(request)
            .is_some_and(|names| alternative.is_none_or(|name| names.contains(name)))
    }

    /// Checks a list of references, which may not name anything twice.
    pub(crate) fn references(&self, references: &[Value], path: &Path) -> ErrorList {
        let check =
            |item: &Value, path: &Path| self.reference(item.as_str().unwrap_or_default(), path);
        set(references, limits::REQUESTS, path, check, itself)
    }

    /// Checks a reference to a request, or to an alternative as `request/alternative`.
    pub(crate) fn reference(&self, name: &str, path: &Path) -> ErrorList {
        const TEXT: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let mut segments = name.split('/');
        let (request, alternative) = (segments.next().unwrap_or_default(), segments.next());
        if segments.next().is_some() {
            return ErrorList::from([Error::invalid(path, name, TEXT)]);
        }
        let mut errors = names::label(request, path);
        if let Some(alternative) = alternative {
            errors.extend(names::label(alternative, path));
        }
        if !self.contains(request, alternative) {
            errors.push(Error::invalid(path, name, TEXT));
        }
        errors
    }
}
