//! The schemas of custom resources as they are published.

use serde_json::{Map, Value, json};

use super::Format;

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

/// The schema of a custom resource's version as it is published: its own, with the fields that all objects have.
pub fn custom_schema(
    schema: &Value,
    group: &str,
    version: &str,
    kind: &str,
    format: Format,
) -> Value {
    let mut out = Map::from_iter([("type".to_owned(), "object".into())]);
    // Clients of v2 take what is not listed for an unknown field. So nothing is, where fields may be unknown.
    if format == Format::V3 || schema[OPEN] != true {
        if let Value::Object(said) = published(schema, format) {
            out.extend(said);
        }
        out.insert("type".to_owned(), "object".into());
        add_object_fields(&mut out, format);
    }
    let gvk = json!([{"group":group,"version":version,"kind":kind}]);
    out.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
    Value::Object(out)
}

/// Adds the fields that every object has.
fn add_object_fields(schema: &mut Map<String, Value>, format: Format) {
    let meta = format.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert("apiVersion".to_owned(), json!({"type":"string"}));
        properties.insert("kind".to_owned(), json!({"type":"string"}));
        properties.insert("metadata".to_owned(), described(meta, format));
    }
}

/// A reference beside which there is a description.
fn described(reference: Value, format: Format) -> Value {
    match format {
        Format::V2 => reference,
        Format::V3 => json!({"allOf":[reference]}),
    }
}

/// A schema with the fields of embedded objects. OpenAPI v2 knows neither junctors nor nullable values, and its clients
/// no object whose fields may be unknown: what uses them is published without.
fn published(schema: &Value, format: Format) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("oneOf" | "anyOf" | "allOf" | "not" | "nullable" | "default", _)
                if format == Format::V2 =>
            {
                continue;
            }
            ("properties", Value::Object(properties)) => {
                let below = properties.iter();
                let below = below.map(|(name, sub)| (name.clone(), published(sub, format)));
                Value::Object(below.collect())
            }
            ("items" | "additionalProperties", value) => published(value, format),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    let is_open = schema[OPEN] == true;
    if format == Format::V2 {
        close(&mut out, schema, is_open);
    }
    if schema[EMBEDDED] == true && !(is_open && format == Format::V2) {
        add_object_fields(&mut out, format);
        let required = out.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required {
            for key in ["kind", "apiVersion"] {
                if !required.iter().any(|known| known == key) {
                    required.push(key.into());
                }
            }
        }
    }
    Value::Object(out)
}

/// Takes out of the published form of a schema what clients of v2 cannot read.
fn close(out: &mut Map<String, Value>, schema: &Value, is_open: bool) {
    let is_nullable = |schema: &Value| schema["nullable"] == true;
    if is_nullable(schema) || is_open {
        out.remove("items");
        out.remove("properties");
    }
    let ty = schema["type"].as_str().unwrap_or_default();
    let is_unknown = ty == "array" && !out.contains_key("items") || ty == "object" && is_open;
    if is_nullable(schema) || is_unknown || schema["x-kubernetes-int-or-string"] == true {
        out.remove("type");
    }
    if let Some(Value::Array(required)) = out.get_mut("required") {
        let properties = schema["properties"].as_object();
        let properties = properties.filter(|_| !is_nullable(schema) && !is_open);
        required.retain(|name| {
            let of_name = name.as_str().and_then(|name| properties?.get(name));
            !of_name.is_some_and(is_nullable)
        });
        if required.is_empty() || is_nullable(&schema["additionalProperties"]) {
            out.remove("required");
        }
    }
}

/// The schema of the list of a kind whose schema has this name.
pub fn list_schema(
    item: &str,
    group: &str,
    version: &str,
    list_kind: &str,
    format: Format,
) -> Value {
    let reference = format.reference(item);
    let meta = format.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    json!({
        "type": "object", "required": ["items"],
        "properties": {
            "apiVersion": {"type":"string"}, "kind": {"type":"string"},
            "items": {"type":"array","items":reference}, "metadata": described(meta, format),
        },
        "x-kubernetes-group-version-kind": [{"group":group,"version":version,"kind":list_kind}],
    })
}

/// The name under which a custom kind is published: the group reversed.
pub fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, format: Format, expected: Value) {
        assert_eq!(published(&schema, format), expected, "{schema}");
    }

    #[test]
    fn what_clients_of_v2_cannot_read_is_left_out() {
        let text = json!({"type": "string"});
        check(
            json!({"type": "object", "nullable": true, "properties": {"a": text}, "oneOf": []}),
            Format::V2,
            json!({}),
        );
        check(
            json!({"type": "object", OPEN: true, "properties": {"a": text}}),
            Format::V2,
            json!({OPEN: true}),
        );
        check(
            json!({"type": "array", OPEN: true, "items": text}),
            Format::V2,
            json!({OPEN: true}),
        );
        check(
            json!({
                "type": "object", "required": ["a", "b"],
                "properties": {"a": {"type": "string", "nullable": true}, "b": text},
            }),
            Format::V2,
            json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": text}}),
        );
    }

    #[test]
    fn embedded_objects_have_the_fields_of_objects() {
        let embedded = json!({"type": "object", EMBEDDED: true, "required": ["kind"]});
        let made = published(&json!({"properties": {"o": embedded}}), Format::V3);
        let made = &made["properties"]["o"];
        assert_eq!(made["required"], json!(["kind", "apiVersion"]));
        assert_eq!(made["properties"]["kind"], json!({"type": "string"}));
        assert!(made["properties"]["metadata"]["allOf"].is_array());
        let open = json!({"type": "object", EMBEDDED: true, OPEN: true});
        check(open, Format::V2, json!({EMBEDDED: true, OPEN: true}));
    }

    #[test]
    fn regression_an_open_object_lists_no_fields_in_v2() {
        let open = json!({"type": "object", OPEN: true});
        let made = custom_schema(&open, "g", "v1", "K", Format::V2);
        let gvk = json!([{"group": "g", "version": "v1", "kind": "K"}]);
        assert_eq!(
            made,
            json!({"type": "object", "x-kubernetes-group-version-kind": gvk})
        );
        let made = custom_schema(&open, "g", "v1", "K", Format::V3);
        assert!(made["properties"]["metadata"].is_object());
    }
}
