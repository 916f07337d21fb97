//! The types that rules see, with the largest sizes that a request can bring.

use allot_cel::{
    env::{DeclType, Shape},
    types::Type,
};

use crate::structural::{Additional, Structural};

/// Largest request body, in bytes.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// Most digits of a JSON duration, and of dates and times, with quotes.
const MAX_DURATION: u64 = 32;
const DATE: u64 = 12;
const MAX_DATE_TIME: u64 = 31;

/// The type of a whole object: its schema and the fields that rules may read of all objects.
pub(super) fn root(schema: &Structural) -> DeclType {
    object(schema, "selfType", true)
}

/// The type of what has none.
pub(super) fn anything() -> DeclType {
    DeclType::scalar(Type::Dyn, MAX_REQUEST - 2)
}

/// The type of a schema; none where rules cannot see the value. `name` tells object types apart.
pub(super) fn of(schema: &Structural, name: &str) -> Option<DeclType> {
    if schema.int_or_string {
        return Some(anything());
    }
    let checks = &schema.checks;
    Some(match schema.ty.as_str() {
        "array" => {
            let items = schema.items.as_deref()?;
            let element = of(items, &format!("{name}.@idx"))?;
            let most = checks
                .max_items
                .unwrap_or((MAX_REQUEST - 2) / (smallest(items) + 1));
            DeclType::list(element, most)
        }
        "object" => match &schema.additional {
            Additional::Schema(sub) => {
                let element = of(sub, &format!("{name}.@elem"))?;
                let most = checks
                    .max_properties
                    .unwrap_or((MAX_REQUEST - 2) / (smallest(sub) + 6));
                DeclType::map(DeclType::string(MAX_REQUEST - 2), element, most)
            }
            _ => object(schema, name, schema.embedded),
        },
        "string" => match checks.format.as_str() {
            "byte" => DeclType::scalar(Type::Bytes, checks.max_length.unwrap_or(MAX_REQUEST - 2)),
            "duration" => DeclType::scalar(Type::Duration, MAX_DURATION),
            "date" => DeclType::scalar(Type::Timestamp, DATE),
            "date-time" => DeclType::scalar(Type::Timestamp, MAX_DATE_TIME),
            _ => {
                let listed = checks.allowed.as_ref().and_then(|values| {
                    values
                        .iter()
                        .filter_map(|value| value.as_str().map(|text| text.chars().count() as u64))
                        .max()
                });
                DeclType::string(checks.max_length.or(listed).unwrap_or(MAX_REQUEST - 2))
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
        let field = escape(property);
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

/// How many elements a list or map can have.
pub(super) fn max_elements(decl: &DeclType) -> u64 {
    match decl.shape() {
        Shape::List(_) | Shape::Map(..) => decl.max_elements(),
        _ => 1,
    }
}

/// The least bytes that a value takes in a request.
fn smallest(schema: &Structural) -> u64 {
    if schema.int_or_string {
        return 1;
    }
    match schema.ty.as_str() {
        "string" | "array" => 2,
        "boolean" => 4,
        "object" => {
            let required = schema
                .properties
                .iter()
                .filter(|(name, _)| schema.checks.required.contains(name));
            2 + required
                .map(|(name, sub)| name.len() as u64 + smallest(sub) + 4)
                .sum::<u64>()
        }
        _ => 1,
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name by which rules reach a property that is no identifier.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
