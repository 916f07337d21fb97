//! The types that rules see, with the largest sizes that a request can bring.

use allot_cel::env::{DeclType, RESERVED};
use allot_cel::types::Type;

use crate::structural::{Additional, Structural};

/// Largest request body, in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// Most digits of a JSON duration, and of dates and times, with quotes.
const MAX_DURATION: u64 = 32;
const DATE: u64 = 12;
const MAX_DATE_TIME: u64 = 32;

/// The type of a whole object: its schema and the fields that rules may read of all objects.
pub(super) fn root(schema: &Structural) -> DeclType {
    object(schema, "selfType", true)
}

/// The type of a schema; none where rules cannot see the value. `name` tells object types apart.
pub(super) fn of(schema: &Structural, name: &str) -> Option<DeclType> {
    let checks = &schema.checks;
    let limit = |limit: Option<i64>| limit.map(|limit| limit.max(0) as u64);
    // Limits of texts count characters, of which each can take four bytes.
    let most_bytes = limit(checks.max_length).map(|most| most.saturating_mul(4));
    if schema.int_or_string {
        return Some(DeclType::scalar(
            Type::Dyn,
            most_bytes.unwrap_or(MAX_REQUEST - 2),
        ));
    }
    Some(match schema.ty.as_str() {
        "array" => {
            let items = schema.items.as_deref()?;
            let element = of(items, &format!("{name}.@idx"))?;
            let most = limit(checks.max_items)
                .unwrap_or_else(|| (MAX_REQUEST - 2) / (smallest(items) + 1));
            DeclType::list(element, most)
        }
        "object" => match &schema.additional {
            Additional::Schema(sub) => {
                let element = of(sub, &format!("{name}.@elem"))?;
                let most = limit(checks.max_properties)
                    .unwrap_or_else(|| (MAX_REQUEST - 2) / (smallest(sub) + 6));
                // Nothing limits keys, and upstream's estimate takes that for no size at all.
                DeclType::map(DeclType::string(0), element, most)
            }
            _ => object(schema, name, schema.embedded),
        },
        "string" => match checks.format.as_str() {
            "byte" => DeclType::scalar(
                Type::Bytes,
                limit(checks.max_length).unwrap_or(MAX_REQUEST - 2),
            ),
            "duration" => DeclType::scalar(Type::Duration, MAX_DURATION),
            "date" => DeclType::scalar(Type::Timestamp, DATE),
            "date-time" => DeclType::scalar(Type::Timestamp, MAX_DATE_TIME),
            _ => {
                let listed = checks
                    .allowed
                    .as_ref()
                    .filter(|values| !values.is_empty())
                    .map(|values| {
                        let sizes = values
                            .iter()
                            .filter_map(|value| Some(value.as_str()?.len()));
                        sizes.max().unwrap_or_default() as u64
                    });
                DeclType::string(most_bytes.or(listed).unwrap_or(MAX_REQUEST - 2))
            }
        },
        "boolean" => DeclType::bool(),
        "number" => DeclType::scalar(Type::Double, 0),
        "integer" => DeclType::int(),
        _ => return None,
    })
}

fn object(schema: &Structural, name: &str, with_meta: bool) -> DeclType {
    let mut fields: Vec<(String, DeclType)> = Vec::new();
    if with_meta {
        let text = || DeclType::string(MAX_REQUEST - 2);
        let meta = [("name", text()), ("generateName", text())];
        fields.push(("apiVersion".to_owned(), text()));
        fields.push(("kind".to_owned(), text()));
        fields.push((
            "metadata".to_owned(),
            DeclType::object(&format!("{name}.metadata"), meta),
        ));
    }
    for (property, sub) in &schema.properties {
        if with_meta && matches!(property.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let Some(field) = escape(property) else {
            continue;
        };
        if let Some(decl) = of(sub, &format!("{name}.{field}")) {
            let decl = if field == *property {
                decl
            } else {
                decl.from_property(property)
            };
            fields.push((field, decl));
        }
    }
    DeclType::object(
        name,
        fields
            .iter()
            .map(|(name, decl)| (name.as_str(), decl.clone())),
    )
}

/// How often a value can stand in a request where nothing else limits it.
pub(super) fn max_cardinality(schema: &Structural) -> u64 {
    MAX_REQUEST / (smallest(schema) + 1)
}

/// Whether [`of`] has a type for a schema. To make the type here would take twice the time for each level of lists: it
/// asks for the sizes of the types in it.
fn is_declared(schema: &Structural) -> bool {
    match schema.ty.as_str() {
        _ if schema.int_or_string => true,
        "array" => schema.items.as_deref().is_some_and(is_declared),
        "object" => match &schema.additional {
            Additional::Schema(sub) => is_declared(sub),
            _ => true,
        },
        "string" | "boolean" | "number" | "integer" => true,
        _ => false,
    }
}

/// The least bytes that a value takes in a request.
fn smallest(schema: &Structural) -> u64 {
    if schema.int_or_string {
        return 1;
    }
    match schema.ty.as_str() {
        "string" => match schema.checks.format.as_str() {
            "duration" => 3,
            "date" => DATE,
            "date-time" => 21,
            _ => 2,
        },
        "array" => 2,
        "boolean" => 4,
        "object" if matches!(schema.additional, Additional::Schema(_)) => 2,
        "object" => {
            let required = schema.properties.iter().filter(|(name, sub)| {
                schema.checks.required.contains(name)
                    && sub.default.as_ref().is_none_or(serde_json::Value::is_null)
                    && is_declared(sub)
            });
            2 + required
                .map(|(name, sub)| name.len() as u64 + smallest(sub) + 4)
                .sum::<u64>()
        }
        _ => 1,
    }
}

/// The name by which rules reach a property; none where no identifier can stand for it.
pub(crate) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(known)
    {
        return None;
    }
    let name = name.replace("__", "__underscores__");
    Some(
        name.replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}
