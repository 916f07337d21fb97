//! The versions of a definition as upstream's errors show them: in its internal form, with Go's names, and nothing
//! omitted.

use allot_apimachinery::field::{BadValue, MOST_TEXT};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::internal::InternalDefinition;

/// What a field is when it is not set, and how it is written otherwise.
#[derive(Clone, Copy)]
enum Form {
    /// A string, empty if it is not set.
    Text,
    /// A number, 0 if it is not set.
    Number,
    /// A boolean.
    Flag,
    /// What is null if it is not set.
    Optional,
    /// A structure behind a pointer.
    Struct(Fields),
    /// A list of structures.
    List(Fields),
    /// A schema behind a pointer.
    Schema,
    /// A list of schemas.
    Schemas,
    /// Schemas by name.
    Named,
    /// A schema, or several.
    OneOrMany,
    /// A schema, or whether anything is allowed.
    OrBool,
}

/// Go's names, the names in JSON, and the forms of fields.
type Fields = &'static [(&'static str, &'static str, Form)];

const PLAIN: Fields = &[
    ("Name", "name", Form::Text),
    ("Served", "served", Form::Flag),
    ("Storage", "storage", Form::Flag),
    ("Deprecated", "deprecated", Form::Flag),
    ("DeprecationWarning", "deprecationWarning", Form::Optional),
];
const SUBRESOURCES: Fields = &[
    ("Status", "status", Form::Struct(&[])),
    ("Scale", "scale", Form::Struct(SCALE)),
];
const SCALE: Fields = &[
    ("SpecReplicasPath", "specReplicasPath", Form::Text),
    ("StatusReplicasPath", "statusReplicasPath", Form::Text),
    ("LabelSelectorPath", "labelSelectorPath", Form::Optional),
];
const COLUMN: Fields = &[
    ("Name", "name", Form::Text),
    ("Type", "type", Form::Text),
    ("Format", "format", Form::Text),
    ("Description", "description", Form::Text),
    ("Priority", "priority", Form::Number),
    ("JSONPath", "jsonPath", Form::Text),
];
const SELECTABLE: Fields = &[("JSONPath", "jsonPath", Form::Text)];
const VALIDATION: Fields = &[("OpenAPIV3Schema", "openAPIV3Schema", Form::Schema)];
const RULE: Fields = &[
    ("Rule", "rule", Form::Text),
    ("Message", "message", Form::Text),
    ("MessageExpression", "messageExpression", Form::Text),
    ("Reason", "reason", Form::Optional),
    ("FieldPath", "fieldPath", Form::Text),
    ("OptionalOldSelf", "optionalOldSelf", Form::Optional),
];
const SCHEMA: Fields = &[
    ("ID", "id", Form::Text),
    ("Schema", "$schema", Form::Text),
    ("Ref", "$ref", Form::Optional),
    ("Description", "description", Form::Text),
    ("Type", "type", Form::Text),
    ("Nullable", "nullable", Form::Flag),
    ("Format", "format", Form::Text),
    ("Title", "title", Form::Text),
    ("Default", "default", Form::Optional),
    ("Maximum", "maximum", Form::Optional),
    ("ExclusiveMaximum", "exclusiveMaximum", Form::Flag),
    ("Minimum", "minimum", Form::Optional),
    ("ExclusiveMinimum", "exclusiveMinimum", Form::Flag),
    ("MaxLength", "maxLength", Form::Optional),
    ("MinLength", "minLength", Form::Optional),
    ("Pattern", "pattern", Form::Text),
    ("MaxItems", "maxItems", Form::Optional),
    ("MinItems", "minItems", Form::Optional),
    ("UniqueItems", "uniqueItems", Form::Flag),
    ("MultipleOf", "multipleOf", Form::Optional),
    ("Enum", "enum", Form::Optional),
    ("MaxProperties", "maxProperties", Form::Optional),
    ("MinProperties", "minProperties", Form::Optional),
    ("Required", "required", Form::Optional),
    ("Items", "items", Form::OneOrMany),
    ("AllOf", "allOf", Form::Schemas),
    ("OneOf", "oneOf", Form::Schemas),
    ("AnyOf", "anyOf", Form::Schemas),
    ("Not", "not", Form::Schema),
    ("Properties", "properties", Form::Named),
    ("AdditionalProperties", "additionalProperties", Form::OrBool),
    ("PatternProperties", "patternProperties", Form::Named),
    ("Dependencies", "dependencies", Form::Optional),
    ("AdditionalItems", "additionalItems", Form::OrBool),
    ("Definitions", "definitions", Form::Named),
    (
        "ExternalDocs",
        "externalDocs",
        Form::Struct(&[
            ("Description", "description", Form::Text),
            ("URL", "url", Form::Text),
        ]),
    ),
    ("Example", "example", Form::Optional),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        Form::Optional,
    ),
    (
        "XEmbeddedResource",
        "x-kubernetes-embedded-resource",
        Form::Flag,
    ),
    ("XIntOrString", "x-kubernetes-int-or-string", Form::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Form::Optional),
    ("XListType", "x-kubernetes-list-type", Form::Optional),
    ("XMapType", "x-kubernetes-map-type", Form::Optional),
    ("XValidations", "x-kubernetes-validations", Form::List(RULE)),
];

/// The versions of a definition. What they leave out is written, too, so that the text is many times as long as what was
/// sent: it ends after 64 KiB.
pub(super) fn versions(hub: &InternalDefinition<'_>) -> BadValue {
    if !hub.has_versions {
        return BadValue::raw("null");
    }
    let mut out = String::from("[");
    for (index, version) in hub.versions.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if out.len() > MOST_TEXT {
            out.push('…');
            break;
        }
        let own = hub.own(version);
        out.push('{');
        members(&mut out, version, PLAIN);
        out.push_str(",\"Schema\":");
        write(&mut out, own.schema, Form::Struct(VALIDATION));
        out.push_str(",\"Subresources\":");
        write(&mut out, own.subresources, Form::Struct(SUBRESOURCES));
        out.push_str(",\"AdditionalPrinterColumns\":");
        entries(&mut out, own.columns, COLUMN);
        out.push_str(",\"SelectableFields\":");
        entries(&mut out, own.selectable_fields, SELECTABLE);
        out.push('}');
    }
    out.push(']');
    BadValue::raw(out)
}

fn members(out: &mut String, value: &Value, fields: Fields) {
    for (index, (name, key, form)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        write(out, &value[*key], *form);
    }
}

fn structure(out: &mut String, value: &Value, fields: Fields) {
    if out.len() > MOST_TEXT {
        out.push('…');
        return;
    }
    out.push('{');
    members(out, value, fields);
    out.push('}');
}

/// A list that is not set if it is empty.
fn entries(out: &mut String, items: &[Value], fields: Fields) {
    match items {
        [] => out.push_str("null"),
        items => list(out, items, fields),
    }
}

fn list(out: &mut String, items: &[Value], fields: Fields) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        structure(out, item, fields);
    }
    out.push(']');
}

fn write(out: &mut String, value: &Value, form: Form) {
    match (form, value) {
        (Form::Text, Value::Null) => out.push_str("\"\""),
        (Form::Number, Value::Null) => out.push('0'),
        (Form::Flag, Value::Null) => out.push_str("false"),
        (Form::Struct(fields), Value::Object(_)) => structure(out, value, fields),
        (Form::List(fields), Value::Array(items)) => list(out, items, fields),
        (Form::Schema, Value::Object(_)) => structure(out, value, SCHEMA),
        (Form::Schemas, Value::Array(items)) => list(out, items, SCHEMA),
        (Form::Named, Value::Object(map)) => {
            out.push('{');
            for (index, (name, schema)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&go_json(&name.as_str().into()));
                out.push(':');
                structure(out, schema, SCHEMA);
            }
            out.push('}');
        }
        (Form::OneOrMany, Value::Object(_)) => {
            out.push_str("{\"Schema\":");
            structure(out, value, SCHEMA);
            out.push_str(",\"JSONSchemas\":null}");
        }
        (Form::OneOrMany, Value::Array(items)) => {
            out.push_str("{\"Schema\":null,\"JSONSchemas\":");
            list(out, items, SCHEMA);
            out.push('}');
        }
        (Form::OrBool, Value::Bool(allows)) => {
            out.push_str(&format!("{{\"Allows\":{allows},\"Schema\":null}}"));
        }
        (Form::OrBool, Value::Object(_)) => {
            out.push_str("{\"Allows\":true,\"Schema\":");
            structure(out, value, SCHEMA);
            out.push('}');
        }
        (_, Value::Null) => out.push_str("null"),
        (_, value) => out.push_str(&go_json(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_all_versions_share_is_not_in_them() {
        let spec = json!({"versions": [
            {"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]});
        assert_eq!(
            versions(&InternalDefinition::new(&spec)).to_string(),
            r#"[{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]"#
        );
    }

    #[test]
    fn no_versions_are_null() {
        for (spec, expected) in [(json!({}), "null"), (json!({"versions": []}), "[]")] {
            let shown = versions(&InternalDefinition::new(&spec));
            assert_eq!(shown.to_string(), expected);
        }
    }

    #[test]
    fn text_about_large_schemas_ends() {
        let schemas: serde_json::Map<String, Value> = (0..2000)
            .map(|number| (number.to_string(), json!({})))
            .collect();
        let spec = json!({"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"properties": schemas}}},
            {"name": "v2"},
        ]});
        let text = versions(&InternalDefinition::new(&spec)).to_string();
        assert!(text.len() < 2 * MOST_TEXT, "{}", text.len());
    }

    #[test]
    fn regression_text_about_many_versions_ends() {
        let spec = json!({"versions": vec![json!({}); 10_000]});
        let text = versions(&InternalDefinition::new(&spec)).to_string();
        assert!(text.len() < 2 * MOST_TEXT, "{}", text.len());
        assert!(text.ends_with(",…]"), "{text:.500}");
    }

    #[test]
    fn what_one_version_says_is_in_it() {
        let spec = json!({"versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v2", "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".a"}}},
        ]});
        let text = versions(&InternalDefinition::new(&spec)).to_string();
        assert!(text.ends_with(
            r#""Schema":null,"Subresources":{"Status":{},"Scale":{"SpecReplicasPath":".a","StatusReplicasPath":"","LabelSelectorPath":null}},"AdditionalPrinterColumns":null,"SelectableFields":null}]"#
        ), "{text}");
    }
}
