//! The section `parameters` of the document in the older format: parameters that many operations have.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::swagger::PARAMETERS;

/// Takes the parameters that are not about one kind out of all paths, and leaves references to them. They are named after
/// themselves and their contents.
pub(super) fn take(paths: &mut Map<String, Value>) -> Map<String, Value> {
    let mut shared = Map::new();
    for path in paths.values_mut().filter_map(Value::as_object_mut) {
        for (key, value) in path {
            let list = match key.as_str() {
                "parameters" => Some(value),
                _ => value.get_mut("parameters"),
            };
            let list = list.and_then(Value::as_array_mut);
            for one in list.into_iter().flatten().filter(|one| is_shared(one)) {
                let name = name(one);
                let reference = json!({"$ref": format!("{PARAMETERS}{name}")});
                shared.insert(name, std::mem::replace(one, reference));
            }
        }
    }
    shared
}

/// Names are told with the kind, bodies refer to it, and clients look for the two others where they are used.
fn is_shared(parameter: &Value) -> bool {
    let text = |key: &str| parameter[key].as_str().unwrap_or_default();
    match (text("in"), text("name")) {
        ("query" | "path", "name") | ("query", "fieldValidation" | "dryRun") => false,
        ("body", "body") => {
            let reference = parameter["schema"]["$ref"].as_str().unwrap_or_default();
            reference.starts_with("#/definitions/io.k8s.apimachinery")
        }
        _ => true,
    }
}

fn name(parameter: &Value) -> String {
    const SHORT: usize = 6;
    let hash = Sha256::digest(parameter.to_string());
    let short = URL_SAFE.encode(&hash[..SHORT]);
    format!("{}-{short}", parameter["name"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_about_a_kind_is_shared() {
        let limit = json!({"name": "limit", "in": "query", "type": "integer"});
        let name = json!({"name": "name", "in": "path", "type": "string"});
        let validation = json!({"name": "fieldValidation", "in": "query", "type": "string"});
        let of_meta = json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"});
        let patch = json!({"name": "body", "in": "body", "schema": of_meta});
        let of_kind = json!({"$ref": "#/definitions/io.k8s.api.core.v1.Pod"});
        let pod = json!({"name": "body", "in": "body", "schema": of_kind});
        let mut paths = Map::new();
        paths.insert(
            "/a".to_owned(),
            json!({"get": {"parameters": [limit, validation]}, "parameters": [name]}),
        );
        paths.insert(
            "/b".to_owned(),
            json!({"patch": {"parameters": [patch, pod, limit]}}),
        );
        let shared = take(&mut paths);
        assert_eq!(shared.values().collect::<Vec<_>>(), [&patch, &limit]);
        let names: Vec<&String> = shared.keys().collect();
        let reference = |name: &str| json!({"$ref": format!("#/parameters/{name}")});
        assert_eq!(
            paths["/a"],
            json!({"get": {"parameters": [reference(names[1]), validation]}, "parameters": [name]})
        );
        assert_eq!(
            paths["/b"]["patch"]["parameters"],
            json!([reference(names[0]), pod, reference(names[1])])
        );
    }
}
