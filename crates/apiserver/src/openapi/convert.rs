//! The document of an extension API server that has only the older format, in the newer one.

use serde_json::{Map, Value, json};

use super::swagger::DEFINITIONS;

/// The most bytes of a schema that is repeated.
const MAX_REPEATED: usize = 1024;
const SCHEMAS: &str = "#/components/schemas/";

/// The newer format of a [reduced](super::swagger::reduce) document.
pub(super) fn newer(mut document: Value) -> Value {
    schemas(&mut document);
    if let Value::Object(paths) = &mut document["paths"] {
        for methods in paths.values_mut() {
            for (key, value) in methods.as_object_mut().into_iter().flatten() {
                match value {
                    Value::Array(list) if key == "parameters" => {
                        list.iter_mut().for_each(parameter);
                    }
                    operation if !key.starts_with("x-") => self::operation(operation),
                    _ => {}
                }
            }
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::version::VERSION},
        "paths": document["paths"].take(),
        "components": {"schemas": document["definitions"].take()},
    })
}

/// References of the newer format: beside one there is nothing else.
fn schemas(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(schemas),
        Value::Object(members) => {
            members.values_mut().for_each(schemas);
            let name = match members.get("$ref") {
                Some(Value::String(text)) => text.strip_prefix(DEFINITIONS),
                _ => None,
            };
            if let Some(name) = name {
                let reference = json!({"$ref": format!("{SCHEMAS}{name}")});
                members.remove("$ref");
                match members.is_empty() {
                    true => *value = reference,
                    false => {
                        members.insert("allOf".to_owned(), json!([reference]));
                    }
                }
            }
        }
        _ => {}
    }
}

fn operation(operation: &mut Value) {
    let Some(members) = operation.as_object_mut() else {
        return;
    };
    let (consumes, produces) = (members.remove("consumes"), members.remove("produces"));
    let mut sent = None;
    if let Some(Value::Array(list)) = members.get_mut("parameters") {
        list.retain_mut(|one| {
            let is_body = one["in"] == "body";
            match is_body {
                true => sent = Some(one["schema"].take()),
                false => parameter(one),
            }
            !is_body
        });
    }
    if let Some(schema) = sent {
        let body = json!({"content": content(consumes.as_ref(), &schema)});
        members.insert("requestBody".to_owned(), body);
    }
    let responses = members.get_mut("responses").and_then(Value::as_object_mut);
    for response in responses.into_iter().flat_map(Map::values_mut) {
        if let Some(members) = response.as_object_mut()
            && let Some(schema) = members.remove("schema")
        {
            let content = content(produces.as_ref(), &schema);
            members.insert("content".to_owned(), content.into());
        }
    }
}

/// A schema for each media type; a large one, instead of a reference to a definition, only for the first.
fn content(media: Option<&Value>, schema: &Value) -> Map<String, Value> {
    let media = media.and_then(Value::as_array).into_iter().flatten();
    let media = media.filter_map(Value::as_str);
    let most = match schema.to_string().len() {
        0..=MAX_REPEATED => usize::MAX,
        _ => 1,
    };
    media
        .take(most)
        .map(|media| (media.to_owned(), json!({"schema": schema})))
        .collect()
}

fn parameter(parameter: &mut Value) {
    let Some(members) = parameter.as_object_mut() else {
        return;
    };
    let mut schema = Map::new();
    for key in ["type", "format", "uniqueItems"] {
        if let Some(value) = members.remove(key) {
            schema.insert(key.to_owned(), value);
        }
    }
    members.entry("schema").or_insert_with(|| schema.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_answers_and_references_are_those_of_the_newer_format() {
        let thing = json!({"$ref": "#/definitions/Thing"});
        let document = json!({
            "paths": {"/apis/g/v1/things": {
                "parameters": [{"name": "pretty", "in": "query", "type": "string", "uniqueItems": true}],
                "post": {
                    "consumes": ["a/a", "b/b"], "produces": ["c/c"], "operationId": "create",
                    "parameters": [{"name": "body", "in": "body", "schema": thing}],
                    "responses": {"200": {"description": "OK", "schema": thing}, "401": {"description": "no"}},
                },
            }},
            "definitions": {"Thing": {"properties": {
                "next": {"$ref": "#/definitions/Thing", "description": "the next"},
                "$ref": {"type": "string"},
            }}},
        });
        let thing = json!({"schema": {"$ref": "#/components/schemas/Thing"}});
        let made = newer(document);
        let path = &made["paths"]["/apis/g/v1/things"];
        assert_eq!(
            path["parameters"],
            json!([{"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}])
        );
        assert_eq!(
            path["post"],
            json!({
                "operationId": "create", "parameters": [],
                "requestBody": {"content": {"a/a": thing, "b/b": thing}},
                "responses": {"200": {"description": "OK", "content": {"c/c": thing}}, "401": {"description": "no"}},
            })
        );
        assert_eq!(
            made["components"]["schemas"]["Thing"]["properties"],
            json!({
                "next": {"description": "the next", "allOf": [{"$ref": "#/components/schemas/Thing"}]},
                "$ref": {"type": "string"},
            })
        );
    }
}
