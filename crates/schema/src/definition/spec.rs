//! The specification of a definition.

use std::collections::BTreeSet;

use allot_apimachinery::{
    field::{Error, ErrorList, Path},
    names::dns1123_subdomain,
};
use serde_json::Value;

use super::{
    conversion::{self, Authority},
    internal::InternalDefinition,
    names, schema, shown, text,
    version::{self, validate_said},
};

pub(super) fn validate(spec: &Value, authority: Authority, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let hub = InternalDefinition::new(spec);
    validate_group(text(spec, "group"), &path.child("group"), errors);
    let at = path.child("scope");
    match text(spec, "scope") {
        "" => errors.push(Error::required(&at, "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(Error::not_supported(&at, other, &["Cluster", "Namespaced"])),
    }
    let at_versions = path.child("versions");
    for (index, version) in hub.versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let at = at_versions.index(index).child("schema");
            errors.push(Error::required(&at.child("openAPIV3Schema"), ""));
        }
    }
    let preserves = spec["preserveUnknownFields"] == true;
    if preserves && hub.schemas().any(schema::has_defaults) {
        let detail = "must be false in order to use defaults in the schema";
        let at = path.child("preserveUnknownFields");
        errors.push(Error::invalid(&at, true, detail));
    }
    for (index, version) in hub.versions.iter().enumerate() {
        let at = at_versions.index(index);
        names::label(text(version, "name"), &at.child("name"), errors);
        version::validate_warning(version, &at, errors);
        let with_status = hub.subresources(version)["status"].is_object();
        validate_said(&hub.own(version), with_status, &at, errors);
    }
    validate_versions(&hub, &at_versions, errors);
    let first = hub.versions.first().map(|first| text(first, "name"));
    if let Some(first) = first.filter(|first| !first.is_empty()) {
        names::label(first, &path.child("version"), errors);
    }
    let at_names = path.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"], key).is_empty() {
            errors.push(Error::required(&at_names.child(key), ""));
        }
    }
    names::validate(&spec["names"], &at_names, errors);
    let with_status = hub
        .versions
        .iter()
        .any(|version| hub.subresources(version)["status"].is_object());
    validate_said(&hub.common(), with_status, &path, errors);
    let at = path.child("conversion");
    let strategy = text(&spec["conversion"], "strategy");
    if preserves && spec["conversion"].is_object() && strategy != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(&at.child("strategy"), strategy, detail));
    }
    conversion::validate(&spec["conversion"], authority, &at, errors);
}

fn validate_group(group: &str, path: &Path, errors: &mut ErrorList) {
    let texts = dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !texts.is_empty() {
        errors.push(Error::invalid(path, group, texts.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(Error::invalid(path, group, detail));
    }
}

fn validate_versions(hub: &InternalDefinition<'_>, path: &Path, errors: &mut ErrorList) {
    let shown = || shown::versions(hub);
    let mut seen = BTreeSet::new();
    if !hub
        .versions
        .iter()
        .all(|version| seen.insert(text(version, "name")))
    {
        let detail = "must contain unique version names";
        errors.push(Error::invalid(path, shown(), detail));
    }
    let stored = |version: &&Value| version["storage"] == true;
    if hub.versions.iter().filter(stored).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(Error::invalid(path, shown(), detail));
    }
}
