//! The types that expressions see of the kinds that a document publishes, as policies are checked against them.

use std::collections::BTreeMap;

use allot_cel::{env::DeclType, types::Type};
use serde_json::{Map, Value, json};

use crate::rules::escape;

const REFERENCE: &str = "#/components/schemas/";
/// The cost of expressions that are only type-checked is not estimated.
const UNLIMITED: u64 = i64::MAX as u64;

/// The type of a kind in the schemas of an OpenAPI v3 document, under a name that no other type has; `None` where they
/// do not have the kind, and a type of nothing where expressions can see nothing of it.
pub fn decl_type(
    schemas: &Map<String, Value>,
    [group, version, kind]: [&str; 3],
    name: &str,
) -> Option<Option<DeclType>> {
    let wanted = json!({"group": group, "version": version, "kind": kind});
    let (found, schema) = schemas.iter().find(|(_, schema)| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&wanted))
    })?;
    let mut document = Document {
        schemas,
        inside: vec![found.clone()],
    };
    Some(document.of(schema, name, true))
}

struct Document<'a> {
    schemas: &'a Map<String, Value>,
    /// The named schemas that lead to where we are.
    inside: Vec<String>,
}

/// The name that a schema refers to; a reference with a description or a default is in an `allOf`.
fn referred(schema: &Value) -> Option<&str> {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.strip_prefix(REFERENCE);
    }
    schema["allOf"].as_array()?.iter().find_map(referred)
}

impl Document<'_> {
    /// The type of a schema; none where expressions cannot see the value.
    fn of(&mut self, schema: &Value, name: &str, root: bool) -> Option<DeclType> {
        let Some(reference) = referred(schema) else {
            return self.plain(schema, name, root);
        };
        if self.inside.iter().any(|known| known == reference) {
            // Of what is inside of itself nothing is known.
            return Some(DeclType::object(name, []));
        }
        let target = self.schemas.get(reference)?;
        self.inside.push(reference.to_owned());
        let made = self.plain(target, name, root);
        self.inside.pop();
        made
    }

    fn plain(&mut self, schema: &Value, name: &str, root: bool) -> Option<DeclType> {
        let flag = |key: &str| schema[key] == true;
        let format = schema["format"].as_str().unwrap_or_default();
        if format == "int-or-string" || flag("x-kubernetes-int-or-string") {
            return Some(DeclType::scalar(Type::Dyn, UNLIMITED));
        }
        let scalar = |ty| Some(DeclType::scalar(ty, UNLIMITED));
        // A resource is an object, even if its schema has no type.
        match schema["type"].as_str().unwrap_or_default() {
            "array" => {
                let items = schema.get("items")?;
                let element = self.of(items, &format!("{name}.@idx"), embedded(items))?;
                Some(DeclType::list(element, UNLIMITED))
            }
            "object" => match schema
                .get("additionalProperties")
                .filter(|it| it.is_object())
            {
                Some(values) => {
                    let value = self.of(values, &format!("{name}.@elem"), embedded(values))?;
                    Some(DeclType::map(DeclType::string(UNLIMITED), value, UNLIMITED))
                }
                None => Some(self.object(schema, name, root)),
            },
            "string" => match format {
                "byte" => scalar(Type::Bytes),
                "duration" => scalar(Type::Duration),
                "date" | "date-time" => scalar(Type::Timestamp),
                _ => scalar(Type::String),
            },
            "boolean" => scalar(Type::Bool),
            "number" => scalar(Type::Double),
            "integer" => scalar(Type::Int),
            _ => None,
        }
    }

    fn object(&mut self, schema: &Value, name: &str, root: bool) -> DeclType {
        let nothing = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&nothing);
        let mut fields = BTreeMap::new();
        for (property, below) in properties {
            let Some(field) = escape(property) else {
                continue;
            };
            if let Some(ty) = self.of(below, &format!("{name}.{field}"), embedded(below)) {
                fields.insert(field, ty);
            }
        }
        if root && !self.describes_metadata(properties) {
            let text = || DeclType::string(UNLIMITED);
            let meta = [("name", text()), ("generateName", text())];
            let meta = DeclType::object(&format!("{name}.metadata"), meta);
            fields.insert("metadata".to_owned(), meta);
            fields.insert("kind".to_owned(), text());
            fields.insert("apiVersion".to_owned(), text());
        }
        let fields = fields.iter().map(|(name, ty)| (name.as_str(), ty.clone()));
        DeclType::object(name, fields)
    }

    /// The schema of a resource says itself what its type and its metadata are.
    fn describes_metadata(&self, properties: &Map<String, Value>) -> bool {
        let is = |schema: Option<&Value>, ty: &str| schema.is_some_and(|it| it["type"] == ty);
        let metadata = properties
            .get("metadata")
            .and_then(|it| match referred(it) {
                Some(name) => self.schemas.get(name),
                None => Some(it),
            });
        let names = ["name", "generateName"];
        ["kind", "apiVersion"]
            .iter()
            .all(|key| is(properties.get(*key), "string"))
            && is(metadata, "object")
            && names
                .iter()
                .all(|key| is(metadata.and_then(|it| it["properties"].get(*key)), "string"))
    }
}

fn embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, path: &str, expected: &str) {
        let schemas = json!({
            "Thing": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}],
                "properties": {
                    "kind": {"type": "string"}, "apiVersion": {"type": "string"},
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
                    "spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}},
                },
            },
            "Bare": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Bare"}],
                "properties": {"metadata": {"type": "object"}},
            },
            "Odd": {"x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Odd"}]},
            "Meta": {"type": "object", "properties": {
                "name": {"type": "string"}, "generateName": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "creationTimestamp": {"type": "string", "format": "date-time"},
            }},
            "Spec": {"type": "object", "properties": {
                "in": {"type": "integer"},
                "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                "amounts": {"type": "object", "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "number"}]}},
                "inner": {"type": "array", "items": {"$ref": "#/components/schemas/Spec"}},
            }},
        });
        let found = decl_type(schemas.as_object().unwrap(), ["g", "v1", kind], "T");
        let found = match found {
            None => "unknown".to_owned(),
            Some(None) => "nothing".to_owned(),
            Some(Some(ty)) => {
                let mut path = path.split('.').filter(|it| !it.is_empty());
                let end = path.try_fold(ty, |ty, name| ty.field(name).cloned());
                end.map_or("no such field".to_owned(), |ty| ty.ty().to_string())
            }
        };
        assert_eq!(found, expected, "{kind}.{path}");
    }

    #[test]
    fn expressions_see_what_the_document_describes() {
        check("Thing", "", "T");
        check("Thing", "metadata.labels", "map(string, string)");
        check("Thing", "metadata.creationTimestamp", "timestamp");
        check("Thing", "spec.__in__", "int");
        check("Thing", "spec.port", "dyn");
        // Quantities have no separate type in documents of this version.
        check("Thing", "spec.amounts", "no such field");
        check("Thing", "spec.inner", "list(T.spec.inner.@idx)");
        check("Bare", "metadata.name", "string");
        check("Bare", "metadata.labels", "no such field");
        check("Bare", "kind", "string");
        check("Odd", "", "nothing");
        check("Other", "", "unknown");
    }
}
