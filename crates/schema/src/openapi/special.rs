//! Types that are published under a name of their own though they are no structs, and members that only some schemas have.

use serde_json::{Value, json};

use super::Format;
use crate::types::{Field, Struct, Type};

/// Scalars that are published under a separate name.
pub(super) fn name(ty: &Type) -> Option<&'static str> {
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

/// The name of the JSON in a field, or in its elements. It depends on the field: the Go types differ.
pub(super) fn json_name(structure: &Struct, field: &Field) -> Option<&'static str> {
    let holds_json = match &field.ty {
        Type::List(element) | Type::Map(element) => **element == Type::Json,
        ty => *ty == Type::Json,
    };
    if !holds_json {
        return None;
    }
    match (structure.simple_name(), field.name) {
        ("ManagedFieldsEntry", _) => Some("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"),
        ("JSONSchemaProps", "dependencies") => Some(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        ),
        ("JSONSchemaProps", _) => {
            Some("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON")
        }
        _ => None,
    }
}

/// The schema with such a name.
pub(super) fn schema(name: &str, format: Format) -> Value {
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
        "RawExtension" | "FieldsV1" => json!({"type":"object"}),
        _ => json!({}),
    }
}

/// Whether upstream publishes nothing about the field but its type. Then a reference needs no `allOf` around it.
pub(super) fn is_bare(structure: &Struct, field: &Field) -> bool {
    match structure.simple_name() {
        "JSONSchemaProps" => field.name != "default",
        "IngressRule" => field.name == "http",
        _ => false,
    }
}

/// Types of whose fields one is set: the field that says which, and those of which it is one.
const UNIONS: [(&str, Option<&str>, &[&str]); 6] = [
    (
        "io.k8s.api.core.v1.AppArmorProfile",
        Some("type"),
        &["localhostProfile"],
    ),
    (
        "io.k8s.api.core.v1.PodSchedulingGroup",
        None,
        &["podGroupName"],
    ),
    (
        "io.k8s.api.core.v1.SeccompProfile",
        Some("type"),
        &["localhostProfile"],
    ),
    (
        "io.k8s.api.flowcontrol.v1.LimitResponse",
        Some("type"),
        &["queuing"],
    ),
    (
        "io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec",
        Some("type"),
        &["exempt", "limited"],
    ),
    (
        "io.k8s.api.flowcontrol.v1.Subject",
        Some("kind"),
        &["group", "serviceAccount", "user"],
    ),
];

/// `x-kubernetes-unions` of a type.
pub(super) fn unions(name: &str) -> Option<Value> {
    let (_, discriminator, fields) = UNIONS.iter().find(|(known, ..)| *known == name)?;
    let value_of = |field: &str| {
        let (first, rest) = field.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    };
    let fields = fields
        .iter()
        .map(|field| ((*field).to_owned(), value_of(field).into()));
    let fields: serde_json::Map<String, Value> = fields.collect();
    let mut union = json!({"fields-to-discriminateBy": fields});
    if let Some(discriminator) = discriminator {
        union["discriminator"] = (*discriminator).into();
    }
    Some(json!([union]))
}
