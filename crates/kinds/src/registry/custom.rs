//! The registry entry for a CustomResourceDefinition.

use std::sync::Arc;

use allot_model::features::Release;
use allot_schema::definition;
use serde_json::Value;

use super::priority::version_priority;
use super::{Resource, Rules, Subresource, Version, collection_name};
use crate::custom::{Converter, CustomResource};
use crate::object::strings;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The registry entry for a CRD. `converter` calls its conversion webhook.
pub fn of_definition(object: &Value, converter: Option<Arc<dyn Converter>>) -> Resource {
    let spec = &object["spec"];
    let names = &object["status"]["acceptedNames"];
    let group = text(spec, "group").to_owned();
    let plural = text(names, "plural").to_owned();
    let kind = text(names, "kind").to_owned();
    let mut versions: Vec<&Value> = definition::versions(object).iter().collect();
    versions.sort_by_key(|version| std::cmp::Reverse(version_priority(text(version, "name"))));
    let words = |list: &[&str]| {
        list.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let sub = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: words(super::RW),
    };
    let custom = CustomResource::new(object, converter);
    let mut subresources = Vec::new();
    if custom.has_any_status() {
        subresources.push(sub("status", "", "", &kind));
    }
    if custom.has_any_scale() {
        subresources.push(sub("scale", "autoscaling", "v1", "Scale"));
    }
    let verbs = match custom.is_terminating() {
        true => &["delete", "deletecollection", "get", "list", "watch"][..],
        false => &[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
    };
    Resource {
        collection: collection_name(&group, &plural),
        storage_version: definition::storage_version(object).to_owned(),
        versions: versions
            .iter()
            .map(|version| Version {
                name: text(version, "name").to_owned(),
                served: version["served"] == true,
                internal: false,
                deprecation: deprecation(&group, &kind, version, &versions),
                removed: String::new(),
            })
            .collect(),
        list_kind: text(names, "listKind").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: words(verbs),
        subresources,
        custom: Some(Arc::new(custom)),
        rules: &Rules::CUSTOM,
        release: Release::default(),
        group,
        kind,
        plural,
    }
}

/// The deprecation warning of a version.
fn deprecation(group: &str, kind: &str, version: &Value, all: &[&Value]) -> String {
    if version["deprecated"] != true {
        return String::new();
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return warning.to_owned();
    }
    let name = text(version, "name");
    let better = all.iter().find(|other| {
        other["served"] == true
            && other["deprecated"] != true
            && version_priority(text(other, "name")) > version_priority(name)
    });
    let advice = better
        .map(|better| format!("; use {group}/{} {kind}", text(better, "name")))
        .unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_clients_prefer_them() {
        let mut names = [
            "v1alpha1",
            "foo",
            "v2",
            "v10beta3",
            "v1",
            "v11alpha2",
            "v10",
            "v12alpha1",
            "v3beta1",
            "bar",
        ];
        names.sort_by_key(|name| std::cmp::Reverse(version_priority(name)));
        assert_eq!(
            names,
            [
                "v10",
                "v2",
                "v1",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "bar",
                "foo"
            ]
        );
    }
}
