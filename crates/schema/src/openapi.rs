//! The published schemas of built-in types, made from the type data.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    decode,
    types::{self, Field, Struct, StructId, Topology, Type},
};

mod custom;
mod describe;
mod expressions;
pub mod proto;
mod special;

pub use custom::{custom_name, custom_schema, list_schema};
pub use expressions::decl_type;

/// Which of the two document formats a schema is for; they differ in how references and defaults are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenAPI v2 (`/openapi/v2`).
    V2,
    /// OpenAPI v3 (`/openapi/v3`).
    V3,
}

impl Format {
    /// A reference to a named schema.
    pub fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The schemas of these types and of all types that they refer to, by name.
pub fn schemas(roots: impl IntoIterator<Item = StructId>, format: Format) -> Map<String, Value> {
    let mut waiting: Vec<StructId> = roots.into_iter().collect();
    let mut seen: BTreeSet<&'static str> = BTreeSet::new();
    let mut special: BTreeSet<&'static str> = BTreeSet::new();
    let mut out = Map::new();
    while let Some(id) = waiting.pop() {
        let structure = id.get();
        if !seen.insert(structure.name) {
            continue;
        }
        for field in &structure.fields {
            references(&field.ty, &mut waiting, &mut special);
            special.extend(special::json_name(structure, field));
        }
        out.insert(structure.name.to_owned(), schema(structure, format));
    }
    for name in special {
        out.insert(name.to_owned(), special::schema(name, format));
    }
    out
}

fn references(ty: &Type, waiting: &mut Vec<StructId>, special: &mut BTreeSet<&'static str>) {
    match ty {
        Type::Struct(id) => waiting.push(*id),
        Type::List(element) | Type::Map(element) => references(element, waiting, special),
        ty => {
            special.extend(special::name(ty));
            if matches!(ty, Type::SchemaOrBool | Type::SchemaOrArray) {
                waiting.extend(types::by_name(JSON_SCHEMA));
            }
        }
    }
}

const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The schema of one type.
pub fn schema(structure: &'static Struct, format: Format) -> Value {
    let mut out = Map::new();
    let (name, is_kind) = (structure.simple_name(), structure.gvk.is_some());
    let properties: Map<String, Value> = structure
        .fields
        .iter()
        .map(|field| {
            let mut property = property(structure, field, format);
            if let Some(text) = describe::of_field(name, field.name, is_kind) {
                property["description"] = text.into();
            }
            (field.name.to_owned(), property)
        })
        .collect();
    out.insert("type".to_owned(), "object".into());
    if let Some(text) = describe::of_type(name) {
        out.insert("description".to_owned(), text.into());
    }
    if !properties.is_empty() {
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    let mut required: Vec<&Field> = structure
        .fields
        .iter()
        .filter(|field| field.required.is_some())
        .collect();
    required.sort_by_key(|field| field.required);
    if !required.is_empty() {
        let names: Vec<&str> = required.iter().map(|field| field.name).collect();
        out.insert("required".to_owned(), json!(names));
    }
    if let Some((group, version, kind)) = structure.gvk {
        let gvk = json!([{"group":group,"version":version,"kind":kind}]);
        out.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
    }
    if structure.atomic {
        out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
    if let Some(unions) = special::unions(structure.name) {
        out.insert("x-kubernetes-unions".to_owned(), unions);
    }
    Value::Object(out)
}

fn property(structure: &Struct, field: &Field, format: Format) -> Value {
    let json = special::json_name(structure, field);
    let mut out = match type_schema(&field.ty, format, json) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if format == Format::V3 {
        let default = field.default.clone().or_else(|| implied_default(field));
        // In v3 a reference knows no other members, which most fields have.
        let is_bare = default.is_none() && special::is_bare(structure, field);
        if let Some(reference) = out.remove("$ref") {
            match is_bare {
                true => out.insert("$ref".to_owned(), reference),
                false => out.insert("allOf".to_owned(), json!([{"$ref": reference}])),
            };
        }
        if let Some(default) = default {
            out.insert("default".to_owned(), default);
        }
    }
    if !field.values.is_empty() {
        let values = json!(field.values);
        let elements = match &field.ty {
            Type::List(_) => out.get_mut("items"),
            Type::Map(_) => out.get_mut("additionalProperties"),
            _ => None,
        };
        match elements {
            Some(element) => element["enum"] = values,
            None => {
                out.insert("enum".to_owned(), values);
            }
        }
    }
    match &field.topology {
        Topology::Unset => {}
        Topology::Granular => {
            out.insert("x-kubernetes-map-type".to_owned(), "granular".into());
        }
        Topology::Set => {
            out.insert("x-kubernetes-list-type".to_owned(), "set".into());
        }
        Topology::Map(keys) => {
            out.insert("x-kubernetes-list-type".to_owned(), "map".into());
            out.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
        }
        Topology::Atomic => {
            // Go's bytes are a list.
            let key = if matches!(field.ty, Type::List(_) | Type::Bytes) {
                "x-kubernetes-list-type"
            } else {
                "x-kubernetes-map-type"
            };
            out.insert(key.to_owned(), "atomic".into());
        }
    }
    let strategy = match (field.patch.merge, field.patch.retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) if field.patch.replace => "replace",
        (false, false) => "",
    };
    if !strategy.is_empty() {
        out.insert("x-kubernetes-patch-strategy".to_owned(), strategy.into());
    }
    if let Some(key) = field.patch.merge_key {
        out.insert("x-kubernetes-patch-merge-key".to_owned(), key.into());
    }
    Value::Object(out)
}

/// What an absent field that is no pointer reads as, where the encoder does not leave it out.
pub(crate) fn implied_default(field: &Field) -> Option<Value> {
    if field.pointer {
        return None;
    }
    match &field.ty {
        Type::Struct(_) => Some(json!({})),
        Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double
            if !field.omit_empty =>
        {
            Some(decode::zero(&field.ty))
        }
        _ => None,
    }
}

/// The schema of a type; `json` is the name of that of the JSON in it.
fn type_schema(ty: &Type, format: Format, json: Option<&str>) -> Value {
    let name = special::name(ty).or_else(|| json.filter(|_| *ty == Type::Json));
    if let Some(name) = name {
        return format.reference(name);
    }
    match ty {
        Type::String => json!({"type":"string"}),
        Type::Bool => json!({"type":"boolean"}),
        Type::Int32 => json!({"type":"integer","format":"int32"}),
        Type::Int64 => json!({"type":"integer","format":"int64"}),
        Type::Double => json!({"type":"number","format":"double"}),
        Type::Bytes => json!({"type":"string","format":"byte"}),
        Type::List(element) => {
            json!({"type":"array","items":element_schema(element, format, json)})
        }
        Type::Map(element) => {
            json!({"type":"object","additionalProperties":element_schema(element, format, json)})
        }
        Type::Struct(id) => format.reference(id.get().name),
        _ => json!({"type":"object"}),
    }
}

/// Elements carry their zero value as default in v3.
fn element_schema(ty: &Type, format: Format, json: Option<&str>) -> Value {
    let mut schema = type_schema(ty, format, json);
    if format == Format::V3 {
        match ty {
            Type::Struct(_) => schema = json!({"allOf":[schema],"default":{}}),
            Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => {
                schema["default"] = decode::zero(ty);
            }
            _ => {}
        }
    }
    schema
}

#[cfg(test)]
mod tests;
