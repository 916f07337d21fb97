//! What a version says besides its schema: subresources, printed columns, selectable fields, deprecation.

use std::collections::BTreeSet;

use allot_apimachinery::{
    field::{BadValue, Error, ErrorList, Path},
    quote::go_json,
};
use serde_json::Value;

use super::{internal::VersionParts, schema, text};
use crate::{rules::resolve_field_path, structural::Structural};

/// The most fields that objects can be selected by.
const MAX_SELECTABLE: usize = 8;

/// Errors of what is said for a version at `path`, or for all of them: then the schema has another name there.
pub(super) fn validate_said(
    said: &VersionParts<'_>,
    with_status: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    let common = path.as_str() == "spec";
    let open_api = &said.schema["openAPIV3Schema"];
    let at_schema = path.child(if common { "validation" } else { "schema" });
    if open_api.is_object() {
        schema::validate_root(open_api, with_status, &at_schema, errors);
    }
    let at = path.child("subresources");
    validate_scale(&said.subresources["scale"], &at, errors);
    let at = path.child("additionalPrinterColumns");
    for (index, column) in said.columns.iter().enumerate() {
        validate_column(column, &at.index(index), errors);
    }
    if said.selectable_fields.is_empty() {
        return;
    }
    let at = path.child("selectableFields");
    if said.schema.is_null() || (!common && !open_api.is_object()) {
        let detail = if common {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        errors.push(Error::invalid(&at, "", detail));
        return;
    }
    if let Some(problem) = schema::unsupported(open_api) {
        let at = path.child("schema.openAPIV3Schema");
        errors.push(Error::invalid(&at, "", problem));
    }
    let compiled = Structural::from_json(open_api);
    validate_selectable(said.selectable_fields, &compiled, &at, errors);
}

pub(super) fn validate_warning(version: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(warning) = version["deprecationWarning"].as_str() else {
        return;
    };
    let at = path.child("deprecationWarning");
    let shown = BadValue::raw(go_json(&version["deprecationWarning"]));
    let mut invalid = |detail: String| errors.push(Error::invalid(&at, shown.clone(), detail));
    if version["deprecated"] != true {
        invalid("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > 256 {
        invalid("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        invalid("must not be an empty string".to_owned());
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        ));
    }
}

fn validate_scale(scale: &Value, path: &Path, errors: &mut ErrorList) {
    if !scale.is_object() {
        return;
    }
    let required = ["specReplicasPath", "statusReplicasPath"];
    for (key, roots) in [
        ("specReplicasPath", &[".spec"][..]),
        ("statusReplicasPath", &[".status"]),
        ("labelSelectorPath", &[".spec", ".status"]),
    ] {
        let at = path.child(&format!("scale.{key}"));
        let found = text(scale, key);
        if found.is_empty() {
            if required.contains(&key) {
                errors.push(Error::required(&at, ""));
            }
            continue;
        }
        let below = |root: &&str| {
            found
                .strip_prefix(*root)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if let Some(error) = simple_json_path(found, &at) {
            errors.push(error);
        } else if !roots.iter().any(below) {
            let either = if roots.len() > 1 { "either " } else { "" };
            let detail = format!("should be a json path under {either}{}", roots.join(" or "));
            errors.push(Error::invalid(&at, found, detail));
        }
    }
}

fn simple_json_path(text: &str, path: &Path) -> Option<Error> {
    let detail = "must be a simple json path starting with .";
    (!text.starts_with('.')).then(|| Error::invalid(path, text, detail))
}

fn validate_column(column: &Value, path: &Path, errors: &mut ErrorList) {
    const TYPES: &str = "boolean,date,integer,number,string";
    const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
    let one_of = |known: &str| format!("must be one of {known}");
    if text(column, "name").is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    let at = path.child("type");
    match text(column, "type") {
        "" => errors.push(Error::required(&at, one_of(TYPES))),
        kind if TYPES.split(',').any(|ty| ty == kind) => {}
        kind => errors.push(Error::invalid(&at, kind, one_of(TYPES))),
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.split(',').any(|known| known == format) {
        errors.push(Error::invalid(
            &path.child("format"),
            format,
            one_of(FORMATS),
        ));
    }
    let at = path.child("JSONPath");
    match text(column, "jsonPath") {
        "" => errors.push(Error::required(&at, "")),
        found => errors.extend(simple_json_path(found, &at)),
    }
}

fn validate_selectable(fields: &[Value], schema: &Structural, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = path.index(index).child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        let (named, found) = match resolve_field_path(json_path, schema, false) {
            Ok(found) => found,
            Err(problem) => {
                let detail = format!("is an invalid path: {problem}");
                errors.push(Error::invalid(&at, json_path, detail));
                continue;
            }
        };
        if named.split(['.', '[']).next() == Some("metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(Error::invalid(&at, json_path, detail));
        }
        let kind = found.map_or("", |found| &found.ty);
        if !matches!(kind, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(Error::invalid(&at, json_path, detail));
        }
        if !seen.insert(named) {
            errors.push(Error::duplicate(&at, json_path));
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(Error::too_many(path, seen.len(), MAX_SELECTABLE));
    }
}
