//! What an extension API server says about its resources. Only what discovery documents have is kept, with its types: one
//! server must not break the documents of all.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// The resources of a group version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Discovered {
    /// As in aggregated discovery.
    pub resources: Vec<Value>,
    /// The service has answered the last request for them.
    pub current: bool,
}

/// The most parts of one group version: resources, subresources, and strings in their lists. As values they take a hundred
/// times the memory of the document, and each request for discovery copies them.
const MOST: usize = 10_000;

/// The parts of a document that are taken over.
struct Reader {
    /// How many more there may be.
    left: usize,
}

/// The resources of a group version in an aggregated discovery document; `None` if that is none. A server need not list the
/// version.
pub(crate) fn of_list(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if document["kind"] != "APIGroupDiscoveryList" {
        return None;
    }
    let mut groups =
        list(document, "items").filter(|it| it["metadata"]["name"].as_str().unwrap_or("") == group);
    let found = groups.find_map(|group| {
        let mut versions = list(group, "versions");
        versions.find(|it| it["version"] == version)
    });
    let mut reader = Reader { left: MOST };
    let resources = found.into_iter().flat_map(|it| list(it, "resources"));
    let read = resources.map_while(|entry| reader.resource(entry));
    Some(read.flatten().collect())
}

/// The resources in the older document of one group version; `None` if that is none.
pub(crate) fn of_resources(document: &Value) -> Option<Vec<Value>> {
    if document["kind"] != "APIResourceList" {
        return None;
    }
    let mut reader = Reader { left: MOST };
    let mut resources: Vec<Value> = Vec::new();
    // Where each of them is.
    let mut places: HashMap<&str, usize> = HashMap::new();
    for entry in list(document, "resources") {
        let Some(name) = string(entry, "name") else {
            continue;
        };
        if !reader.take() {
            break;
        }
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
            reader.copy_lists(entry, &mut made);
            places.entry(name).or_insert(resources.len());
            resources.push(made);
            continue;
        };
        let parent = places
            .get(parent)
            .and_then(|place| resources.get_mut(*place));
        if let Some(parent) = parent {
            let mut made = json!({"subresource": subresource, "responseKind": kind});
            made["verbs"] = reader.strings(entry, "verbs");
            match &mut parent["subresources"] {
                Value::Array(known) => known.push(made),
                none => *none = json!([made]),
            }
        }
    }
    Some(resources)
}

impl Reader {
    /// Whether there may be another part.
    fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// A resource of an aggregated document, if it is one; `None` if there may be no more.
    fn resource(&mut self, entry: &Value) -> Option<Option<Value>> {
        let Some(name) = string(entry, "resource") else {
            return Some(None);
        };
        if !self.take() {
            return None;
        }
        let scope = string(entry, "scope").filter(|it| ["Namespaced", "Cluster"].contains(it));
        let mut made = json!({
            "resource": name, "responseKind": kind(entry),
            "scope": scope.unwrap_or_default(),
            "singularResource": string(entry, "singularResource").unwrap_or_default(),
        });
        self.copy_lists(entry, &mut made);
        let mut subresources: Vec<Value> = Vec::new();
        for sub in list(entry, "subresources") {
            let Some(name) = string(sub, "subresource") else {
                continue;
            };
            if !self.take() {
                break;
            }
            let verbs = self.strings(sub, "verbs");
            subresources
                .push(json!({"subresource": name, "responseKind": kind(sub), "verbs": verbs}));
        }
        if !subresources.is_empty() {
            made["subresources"] = subresources.into();
        }
        Some(Some(made))
    }

    fn copy_lists(&mut self, from: &Value, to: &mut Value) {
        to["verbs"] = self.strings(from, "verbs");
        for key in ["shortNames", "categories"] {
            if from[key].as_array().is_some_and(|list| !list.is_empty()) {
                to[key] = self.strings(from, key);
            }
        }
    }

    fn strings(&mut self, value: &Value, key: &str) -> Value {
        let strings = list(value, key).filter(|it| it.is_string());
        strings.take_while(|_| self.take()).cloned().collect()
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

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[key].as_array().into_iter().flatten()
}

fn string<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str()
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

    /// The attack: each list was bounded, and a document of four megabytes, with a list in each of its many resources, took
    /// 290 MB, which each request for discovery copied.
    #[test]
    fn regression_the_parts_of_a_document_are_bounded_together() {
        let parts = |resources: &[Value]| -> usize {
            let of = |it: &Value| {
                let lists = ["subresources", "verbs", "shortNames", "categories"];
                let lists = lists.map(|key| it[key].as_array().map_or(0, Vec::len));
                1 + lists.into_iter().sum::<usize>()
            };
            resources.iter().map(of).sum()
        };
        let subresources = vec![json!({"subresource": ""}); 2000];
        let resource =
            json!({"resource": "r", "subresources": subresources, "verbs": vec!["v"; 2000]});
        let versions = json!([{"version": "v1", "resources": vec![resource; 40]}]);
        let document = json!({
            "kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "g"}, "versions": versions}],
        });
        assert_eq!(parts(&of_list(&document, "g", "v1").unwrap()), MOST);
        let plain =
            |at| json!({"name": format!("r{at}"), "shortNames": ["a", "b"], "verbs": ["get"]});
        let sub = |at| json!({"name": format!("r{at}/s")});
        let resources: Vec<Value> = (0..8000).map(plain).chain((0..8000).map(sub)).collect();
        let document = json!({"kind": "APIResourceList", "resources": resources});
        assert_eq!(parts(&of_resources(&document).unwrap()), MOST);
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
