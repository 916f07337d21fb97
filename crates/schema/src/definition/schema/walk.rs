//! What each node of a schema may say.

use std::collections::BTreeSet;
use std::ops::Bound;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{collections, list, rule_texts, text};

/// The errors, and the nodes that they belong to.
pub(super) struct SchemaWalk {
    pub(super) errors: ErrorList,
    /// In order: those below a path follow one another.
    broken: BTreeSet<String>,
}

impl SchemaWalk {
    /// Something is wrong at the path, or below.
    pub(super) fn broken_below(&self, path: &Path) -> bool {
        let from = (Bound::Included(path.as_str()), Bound::Unbounded);
        let mut following = self.broken.range::<str, _>(from);
        let first = following.next();
        first.is_some_and(|broken| broken.starts_with(path.as_str()))
    }
}

pub(super) fn walk(schema: &Value, path: &Path) -> SchemaWalk {
    let mut walked = SchemaWalk {
        errors: ErrorList::new(),
        broken: BTreeSet::new(),
    };
    let place = WalkContext {
        root: true,
        in_meta: false,
        no_defaults: None,
    };
    walked.visit(schema, path, &place);
    walked
}

/// What holds where a node stands.
#[derive(Clone)]
struct WalkContext {
    root: bool,
    /// Inside of the metadata, or the type, of an object.
    in_meta: bool,
    /// Why there can be no defaults.
    no_defaults: Option<String>,
}

impl SchemaWalk {
    fn visit(&mut self, schema: &Value, path: &Path, place: &WalkContext) {
        let before = self.errors.len();
        validate_standard(schema, path, place, &mut self.errors);
        if schema["uniqueItems"] == true {
            let detail =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            let at = path.child("uniqueItems");
            self.errors.push(Error::forbidden(&at, detail));
        }
        let additional = &schema["additionalProperties"];
        let at = path.child("additionalProperties");
        let properties = schema["properties"].as_object();
        // `true` next to properties is redundant, not a contradiction.
        if matches!(additional, Value::Object(_) | Value::Bool(false))
            && properties.is_some_and(|map| !map.is_empty())
        {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.errors.push(Error::forbidden(&at, detail));
        }
        let inner = WalkContext {
            root: false,
            ..place.clone()
        };
        if additional.is_object() {
            let mut inner = inner.clone();
            if place.in_meta {
                let why = "inside additionalProperties applying to object metadata";
                inner.no_defaults = Some(why.to_owned());
            }
            self.visit(additional, &at, &inner);
        }
        for (name, sub) in properties.into_iter().flatten() {
            let mut inner = inner.clone();
            let whole = place.root || schema["x-kubernetes-embedded-resource"] == true;
            if whole && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                inner.in_meta = true;
                if place.root {
                    inner.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.visit(sub, &path.child("properties").key(name), &inner);
        }
        self.junctors(schema, path, &inner);
        self.own(schema, path);
        if self.errors.len() > before {
            self.broken.insert(path.as_str().to_owned());
        }
    }

    fn junctors(&mut self, schema: &Value, path: &Path, place: &WalkContext) {
        if schema["not"].is_object() {
            self.visit(&schema["not"], &path.child("not"), place);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            for (index, sub) in list(schema, key).iter().enumerate() {
                self.visit(sub, &path.child(key).index(index), place);
            }
        }
        for (name, sub) in schema["definitions"].as_object().into_iter().flatten() {
            self.visit(sub, &path.child("definitions").key(name), place);
        }
        let at = path.child("items");
        match &schema["items"] {
            items @ Value::Object(_) => self.visit(items, &at, place),
            Value::Array(items) => {
                for (index, sub) in items.iter().enumerate() {
                    self.visit(sub, &at.index(index), place);
                }
            }
            _ => {}
        }
        for (name, sub) in schema["dependencies"].as_object().into_iter().flatten() {
            if sub.is_object() {
                self.visit(sub, &path.child("dependencies").key(name), place);
            }
        }
    }

    /// What is wrong with a node itself, after all that is below it.
    fn own(&mut self, schema: &Value, path: &Path) {
        if schema["x-kubernetes-preserve-unknown-fields"] == false {
            let at = path.child("x-kubernetes-preserve-unknown-fields");
            let detail = "must be true or undefined";
            self.errors.push(Error::invalid(&at, false, detail));
        }
        collections::validate(schema, path, &mut self.errors);
        rule_texts::validate(schema, path, &mut self.errors);
    }
}

/// What OpenAPI knows and definitions may not use.
fn validate_standard(schema: &Value, path: &Path, place: &WalkContext, errors: &mut ErrorList) {
    let types = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = text(schema, "type");
    let at_type = path.child("type");
    if !kind.is_empty() && !types.contains(&kind) {
        errors.push(Error::not_supported(&at_type, kind, &types));
    }
    if let Some(why) = &place.no_defaults
        && !schema["default"].is_null()
    {
        let detail = format!("must not be set {why}");
        errors.push(Error::forbidden(&path.child("default"), detail));
    }
    let filled = |key: &str| match &schema[key] {
        Value::Object(map) => !map.is_empty(),
        value => value.as_str().is_some_and(|text| !text.is_empty()),
    };
    for (key, there) in [
        ("id", filled("id")),
        ("additionalItems", !schema["additionalItems"].is_null()),
        ("patternProperties", filled("patternProperties")),
        ("definitions", filled("definitions")),
        ("dependencies", !schema["dependencies"].is_null()),
        ("$ref", !schema["$ref"].is_null()),
    ] {
        if there {
            let detail = format!("{key} is not supported");
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(Error::forbidden(&at_type, detail));
    }
    if !list(schema, "items").is_empty() {
        let detail = "items must be a schema object and not an array";
        errors.push(Error::forbidden(&path.child("items"), detail));
    }
    if place.in_meta && schema["x-kubernetes-embedded-resource"] == true {
        let at = path.child("x-kubernetes-embedded-resource");
        let detail = "must not be used inside of resource meta";
        errors.push(Error::forbidden(&at, detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each rule of a definition compared its path with those of all nodes that are not valid.
    #[test]
    fn regression_nodes_that_are_not_valid_are_found_without_looking_at_others() {
        let wrong = json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}});
        let mut properties: serde_json::Map<String, Value> = (0..2_000)
            .map(|at| (format!("p{at}"), wrong.clone()))
            .collect();
        properties.insert("q".to_owned(), json!({"type": "string"}));
        let walked = walk(
            &json!({"type": "object", "properties": properties}),
            &Path::new("s"),
        );
        let below = Path::new("s").child("properties");
        for at in 0..2_000 {
            assert!(walked.broken_below(&below.key(&format!("p{at}"))));
            assert!(!walked.broken_below(&below.key(&format!("p{at}")).child("items")));
        }
        assert!(walked.broken_below(&Path::new("s")));
        assert!(!walked.broken_below(&below.key("q")));
    }
}
