//! The published schemas of built-in types, made from the type data.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    decode,
    types::{self, Field, Struct, StructId, Topology, Type},
};

mod describe;
mod expressions;
pub mod proto;

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
        }
        out.insert(structure.name.to_owned(), schema(structure, format));
    }
    for name in special {
        out.insert(name.to_owned(), special_schema(name, format));
    }
    out
}

fn references(ty: &Type, waiting: &mut Vec<StructId>, special: &mut BTreeSet<&'static str>) {
    match ty {
        Type::Struct(id) => waiting.push(*id),
        Type::List(element) | Type::Map(element) => references(element, waiting, special),
        ty => {
            special.extend(special_name(ty));
            if matches!(ty, Type::SchemaOrBool | Type::SchemaOrArray) {
                waiting.extend(types::by_name(JSON_SCHEMA));
            }
        }
    }
}

const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Scalars that are published under a separate name.
fn special_name(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Type::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Type::Duration => "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
        Type::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Type::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Type::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Type::SchemaOrBool => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        Type::SchemaOrArray => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        _ => return None,
    })
}

fn special_schema(name: &str, format: Format) -> Value {
    match name.rsplit('.').next().unwrap_or_default() {
        "Time" | "MicroTime" => json!({"type":"string","format":"date-time"}),
        "Duration" => json!({"type":"string"}),
        "Quantity" if format == Format::V3 => {
            json!({"oneOf":[{"type":"string"},{"type":"number"}]})
        }
        "Quantity" => json!({"type":"string"}),
        "IntOrString" if format == Format::V3 => {
            json!({"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]})
        }
        "IntOrString" => json!({"type":"string","format":"int-or-string"}),
        "RawExtension" => json!({"type":"object"}),
        _ => json!({}),
    }
}

/// The schema of one type.
pub fn schema(structure: &'static Struct, format: Format) -> Value {
    let mut out = Map::new();
    let (name, is_kind) = (structure.simple_name(), structure.gvk.is_some());
    let properties: Map<String, Value> = structure
        .fields
        .iter()
        .map(|field| {
            let mut property = property(field, format);
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
    Value::Object(out)
}

fn property(field: &Field, format: Format) -> Value {
    let mut out = match type_schema(&field.ty, format) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    if format == Format::V3 {
        // In v3 a reference knows no other members, which fields have.
        if let Some(reference) = out.remove("$ref") {
            out.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        }
        let default = field.default.clone().or_else(|| implied_default(field));
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
            let key = if matches!(field.ty, Type::List(_)) {
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

fn type_schema(ty: &Type, format: Format) -> Value {
    if let Some(name) = special_name(ty) {
        return format.reference(name);
    }
    match ty {
        Type::String => json!({"type":"string"}),
        Type::Bool => json!({"type":"boolean"}),
        Type::Int32 => json!({"type":"integer","format":"int32"}),
        Type::Int64 => json!({"type":"integer","format":"int64"}),
        Type::Double => json!({"type":"number","format":"double"}),
        Type::Bytes => json!({"type":"string","format":"byte"}),
        Type::List(element) => json!({"type":"array","items":element_schema(element, format)}),
        Type::Map(element) => {
            json!({"type":"object","additionalProperties":element_schema(element, format)})
        }
        Type::Struct(id) => format.reference(id.get().name),
        _ => json!({"type":"object"}),
    }
}

/// Elements carry their zero value as default in v3.
fn element_schema(ty: &Type, format: Format) -> Value {
    let mut schema = type_schema(ty, format);
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

/// The schema of a custom resource's version as it is published: its own, with the fields that all objects have.
pub fn custom_schema(
    schema: &Value,
    group: &str,
    version: &str,
    kind: &str,
    format: Format,
) -> Value {
    let mut out = match published(schema, format) {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    out.insert("type".to_owned(), "object".into());
    let meta = format.reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let meta = if format == Format::V3 {
        json!({"allOf":[meta]})
    } else {
        meta
    };
    let properties = out.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert("apiVersion".to_owned(), json!({"type":"string"}));
        properties.insert("kind".to_owned(), json!({"type":"string"}));
        properties.insert("metadata".to_owned(), meta);
    }
    let gvk = json!([{"group":group,"version":version,"kind":kind}]);
    out.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
    Value::Object(out)
}

/// OpenAPI v2 knows neither junctors nor nullable values; what uses them is published without.
fn published(schema: &Value, format: Format) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    if format == Format::V3 {
        return schema.clone();
    }
    let mut out = Map::new();
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["x-kubernetes-int-or-string"] == true;
    for (key, value) in map {
        match key.as_str() {
            "oneOf" | "anyOf" | "allOf" | "not" | "nullable" | "default" => {}
            "type" if open => {}
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                let properties: Map<String, Value> = properties
                    .map(|(name, sub)| (name.clone(), published(sub, format)))
                    .collect();
                out.insert(key.clone(), Value::Object(properties));
            }
            "items" | "additionalProperties" => {
                out.insert(key.clone(), published(value, format));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
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
            "items": {"type":"array","items":reference}, "metadata": meta,
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
mod tests;
