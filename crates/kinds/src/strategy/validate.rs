//! The rules of a kind for an object as a whole.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::features::{Feature, Features};
use allot_model::tolerations::is_comparison_operator;
use allot_model::validate::meta as meta_rules;
use serde_json::Value;

use crate::object::{at, items, text};
use crate::registry::{MetadataErrors, Resource};
use crate::request::Part;
use crate::validate;

/// Errors of a new object.
pub fn validate_create(features: &Features, resource: &Resource, object: &Value) -> ErrorList {
    let rules = resource.rules;
    if let Some(steps) = rules.steps {
        return (steps.validate_create)(features, resource, object);
    }
    if let Some(custom) = &resource.custom {
        return custom.validate(version_of(object), object, None, Part::Main);
    }
    let path = Path::new("metadata");
    if rules.metadata_errors == MetadataErrors::Alone {
        let errors = validate::create(rules, object);
        return match errors.is_empty() {
            true => meta_rules::any_object_meta(
                &object["metadata"],
                resource.namespaced,
                names::path_segment_name,
                &path,
            ),
            false => errors,
        };
    }
    let name = match rules.name_without {
        Some((feature, name)) if !features.enabled(feature) => name,
        _ => rules.name,
    };
    let mut errors = validate_meta(resource, object, name, &path);
    if let Some(check) = rules.validate_generated {
        check(object, &mut errors);
    }
    let mut found = validate::create(rules, object);
    allow_comparison_operators(features, resource, object, &Value::Null, &mut found);
    if let Some(check) = rules.validate_gated {
        check(features, object, &Value::Null, &mut found);
    }
    match rules.metadata_errors {
        MetadataErrors::First | MetadataErrors::Alone => errors.append(found),
        MetadataErrors::WithName => {
            for error in found {
                match error.field.as_str() {
                    "metadata.name" => add_name_error(&mut errors, error),
                    _ => errors.push(error),
                }
            }
        }
        MetadataErrors::AfterInvolvedObject => {
            let before = found
                .iter()
                .take_while(|error| error.field.starts_with("involvedObject"))
                .count();
            let rest = found.split_off(before);
            found.append(errors);
            found.append(rest);
            return found;
        }
    }
    errors
}

/// Adds an error about the name in upstream's order: after other errors about it, before those about the rest of the
/// metadata.
fn add_name_error(errors: &mut ErrorList, error: Error) {
    let about_name = |known: &Error| known.field == error.field;
    let at = errors.iter().rposition(about_name).map_or(0, |at| at + 1);
    errors.insert(at, error);
}

/// Errors of the metadata of an object as that of a new one.
fn validate_meta(
    resource: &Resource,
    object: &Value,
    name: meta_rules::NameRule,
    path: &Path,
) -> ErrorList {
    let rules = if resource.rules.own_finalizers {
        meta_rules::any_object_meta
    } else {
        meta_rules::object_meta
    };
    let metadata = &object["metadata"];
    rules(metadata, resource.namespaced, name, path)
}

/// The `apiVersion` of an object.
fn version_of(object: &Value) -> &str {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    api_version.rsplit('/').next().unwrap_or_default()
}

/// Errors of a changed object.
pub fn validate_update(
    features: &Features,
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part,
) -> ErrorList {
    // Upstream checks the metadata once for all kinds and again for each: mistakes count twice.
    let path = Path::new("metadata");
    let path_name = names::path_segment_name;
    let mut generic =
        meta_rules::any_object_meta(&object["metadata"], resource.namespaced, path_name, &path);
    generic.extend(meta_rules::any_object_meta_update(
        &object["metadata"],
        &old["metadata"],
        &path,
    ));
    generic.append(validate_kind_update(features, resource, object, old, part));
    generic
}

/// Errors of a changed object as its kind sees them.
fn validate_kind_update(
    features: &Features,
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part,
) -> ErrorList {
    let rules = resource.rules;
    if let Some(steps) = rules.steps {
        return (steps.validate_update)(features, resource, object, old, part);
    }
    if let Some(custom) = &resource.custom {
        return custom.validate(version_of(object), object, Some(old), part);
    }
    let path = Path::new("metadata");
    let checked = if rules.own_finalizers {
        meta_rules::any_object_meta_update
    } else {
        meta_rules::object_meta_update
    };
    let mut errors = ErrorList::new();
    if part != Part::Main || (rules.checks_metadata_change)(object) {
        errors = checked(&object["metadata"], &old["metadata"], &path);
    }
    if part == Part::Main && rules.validates_metadata_again {
        errors.extend(validate_meta(resource, object, rules.name, &path));
    }
    if let Some(check) = rules.validate_generated
        && part == Part::Main
    {
        check(object, &mut errors);
    }
    let mut found = validate::update(rules, object, old, part);
    // Other parts of a pod are validated with all of its spec.
    allow_comparison_operators(features, resource, object, old, &mut found);
    if let Some(check) = rules.validate_gated
        && part == Part::Main
    {
        check(features, object, old, &mut found);
    }
    errors.append(found);
    errors
}

/// Allows tolerations that compare numbers in a pod or template, if their feature is on or the stored object has some already:
/// replaces the errors about the operators by those about their values.
fn allow_comparison_operators(
    features: &Features,
    resource: &Resource,
    new: &Value,
    old: &Value,
    errors: &mut ErrorList,
) {
    let Some(template) = resource.rules.pod_template else {
        return;
    };
    let tolerations = |object| items(&at(object, template)["spec"]["tolerations"]);
    let compares = |it: &Value| is_comparison_operator(text(it, &["operator"]));
    if features.enabled(Feature::TaintTolerationComparisonOperators)
        || tolerations(old).iter().any(compares)
    {
        let path = template.iter().chain(&["spec", "tolerations"]);
        let path = path.fold(Path::root(), |path, key| path.child(key));
        validate::scheduling::allow_comparison_operators(tolerations(new), &path, errors);
    }
}

#[cfg(test)]
mod tests;
