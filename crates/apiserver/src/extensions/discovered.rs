//! What an extension API server says about its resources. Only what discovery documents have is kept, with its types: one
//! server must not break the documents of all.

use serde_json::{Map, Value, json};

/// The resources of a group version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Discovered {
    /// As in aggregated discovery.
    pub resources: Vec<Value>,
    /// The service has answered the last request for them.
    pub current: bool,
}

/// The most resources of one group version, and the most strings in a list of one.
const MOST: usize = 10_000;

/// The resources of a group version in an aggregated discovery document; `None` if that is none. A server need not list the
/// version.
pub(crate) fn of_list(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if document["kind"] != "APIGroupDiscoveryList" {
        return None;
    }
    let groups = list(document, "items");
    let mut groups = groups.filter(|it| it["metadata"]["name"].as_str().unwrap_or("") == group);
    let resources = groups.find_map(|group| {
        let found = list(group, "versions").find(|it| it["version"] == version)?;
        Some(list(found, "resources").filter_map(resource).collect())
    });
    Some(resources.unwrap_or_default())
}

/// The resources in the older document of one group version; `None` if that is none.
pub(crate) fn of_resources(document: &Value) -> Option<Vec<Value>> {
    if document["kind"] != "APIResourceList" {
        return None;
    }
    let mut resources: Vec<Value> = Vec::new();
    for entry in list(document, "resources") {
        let Some(name) = string(entry, "name") else {
            continue;
        };
        let kind = json!({
            "group": string(entry, "group").unwrap_or_default(),
            "version": string(entry, "version").unwrap_or_default(),
            "kind": string(entry, "kind").unwrap_or_default(),
        });
        let Some((parent, subresource)) = name.split_once('/') else {
            let namespaced = entry["namespaced"] == true;
            let mut made = json!({
                "resource": name, "responseKind": kind,
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": string(entry, "singularName").unwrap_or_default(),
            });
            copy_lists(entry, &mut made);
            resources.push(made);
            continue;
        };
        let parent = resources.iter_mut().find(|it| it["resource"] == parent);
        if let Some(parent) = parent {
            let mut made = json!({"subresource": subresource, "responseKind": kind});
            made["verbs"] = strings(entry, "verbs");
            match &mut parent["subresources"] {
                Value::Array(known) => known.push(made),
                none => *none = json!([made]),
            }
        }
    }
    Some(resources)
}

/// A resource of an aggregated document.
fn resource(entry: &Value) -> Option<Value> {
    let scope = string(entry, "scope").filter(|it| ["Namespaced", "Cluster"].contains(it));
    let mut made = json!({
        "resource": string(entry, "resource")?, "responseKind": kind(entry),
        "scope": scope.unwrap_or_default(),
        "singularResource": string(entry, "singularResource").unwrap_or_default(),
    });
    copy_lists(entry, &mut made);
    let subresources = list(entry, "subresources").filter_map(|sub| {
        let name = string(sub, "subresource")?;
        Some(
            json!({"subresource": name, "responseKind": kind(sub), "verbs": strings(sub, "verbs")}),
        )
    });
    let subresources: Vec<Value> = subresources.collect();
    if !subresources.is_empty() {
        made["subresources"] = subresources.into();
    }
    Some(made)
}

fn copy_lists(from: &Value, to: &mut Value) {
    to["verbs"] = strings(from, "verbs");
    for key in ["shortNames", "categories"] {
        if from[key].as_array().is_some_and(|list| !list.is_empty()) {
            to[key] = strings(from, key);
        }
    }
}

/// The kind of answers. Old clients need one, even an empty one.
fn kind(entry: &Value) -> Value {
    let mut kind = Map::new();
    for key in ["group", "version", "kind"] {
        let part = string(&entry["responseKind"], key).unwrap_or_default();
        kind.insert(key.to_owned(), part.into());
    }
    kind.into()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten().take(MOST)
}

fn string<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str()
}

fn strings(value: &Value, key: &str) -> Value {
    let strings = list(value, key).filter(|it| it.is_string());
    strings.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_documents_have_is_taken_over() {
        let document = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "other"}, "versions": [{"version": "v1", "resources": [{"resource": "stolen"}]}]},
            {"metadata": {"name": "g"}, "versions": [
                {"version": "v2", "resources": [{"resource": "later"}]},
                {"version": "v1", "freshness": "Stale", "resources": [
                    {"resource": "things", "responseKind": {"kind": "Thing", "more": {"deep": []}}, "verbs": ["get", 1],
                     "scope": "Namespaced", "singularResource": 7, "subresources": [{"subresource": "exec"}, 3]},
                    "no resource", {"resource": 5}, null, {"resource": "plain", "scope": ["Cluster"]},
                ]},
            ]},
        ]});
        let empty = json!({"group": "", "version": "", "kind": ""});
        let things = json!([{
            "resource": "things", "responseKind": {"group": "", "version": "", "kind": "Thing"}, "scope": "Namespaced",
            "singularResource": "", "verbs": ["get"],
            "subresources": [{"subresource": "exec", "responseKind": empty, "verbs": []}],
        }, {
            "resource": "plain", "responseKind": empty, "scope": "", "singularResource": "", "verbs": [],
        }]);
        assert_eq!(json!(of_list(&document, "g", "v1").unwrap()), things);
        assert_eq!(of_list(&document, "g", "v3"), Some(vec![]));
        for wrong in [json!(null), json!([]), json!({"kind": "APIResourceList"})] {
            assert_eq!(of_list(&wrong, "g", "v1"), None, "{wrong}");
        }
    }

    #[test]
    fn the_older_document_is_converted() {
        let document = json!({"kind": "APIResourceList", "groupVersion": "g/v1", "resources": [
            {"name": "things/status", "kind": "Thing", "verbs": ["get"]},
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["list"],
             "shortNames": ["th"]},
            {"name": "things/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get", "update"]},
        ]});
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        let things = json!([{
            "resource": "things", "responseKind": {"group": "", "version": "", "kind": "Thing"}, "scope": "Namespaced",
            "singularResource": "thing", "verbs": ["list"], "shortNames": ["th"],
            "subresources": [{"subresource": "scale", "responseKind": scale, "verbs": ["get", "update"]}],
        }]);
        assert_eq!(json!(of_resources(&document).unwrap()), things);
        assert_eq!(of_resources(&json!({"kind": "Status"})), None);
    }
}
