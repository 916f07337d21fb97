//! Structural schemas: the schemas of CustomResourceDefinitions.
//!
//! One compiled tree serves validation, defaulting, pruning, server-side apply and the published documents.

use serde_json::Value;

mod coerce;
mod correlate;
mod default;
mod embedded;
mod format;
mod lists;
mod patterns;
mod properties;
mod prune;
mod validate;

pub use coerce::{coerce_embedded, coerce_metadata};
/// The number of errors after which a check ends. Each has the path of its place, and a client can send any number of
/// wrong values.
const MOST_ERRORS: usize = 10_000;

pub(crate) use correlate::{Pair, key_of, keyed};
pub use default::{default, prune_nulls};
pub(crate) use embedded::validate_object;
pub use embedded::{MetaRule, validate_embedded};
pub use lists::validate_lists;
pub use properties::Properties;
pub use prune::{prune, prune_value};
pub use validate::{validate, validate_default, validate_update};

/// A compiled schema node. The logical junctors (`allOf` and its like) hold value validations only, as structural schemas demand.
#[derive(Debug, Clone, Default)]
pub struct Structural {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`, or empty.
    pub ty: String,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// Null is a value.
    pub nullable: bool,
    /// The declared fields.
    pub properties: Properties,
    /// The schema of all other keys.
    pub additional: Additional,
    /// The schema of list elements.
    pub items: Option<Box<Structural>>,
    /// What a missing field becomes.
    pub default: Option<Value>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// It, or a schema around it, keeps unknown fields: an apply may name them.
    pub open: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-list-type`: `atomic`, `set`, `map`, or empty.
    pub list_type: String,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`: `granular`, `atomic`, or empty.
    pub map_type: String,
    /// What values have to satisfy.
    pub checks: Checks,
    /// The CEL rules as written.
    pub rules: Vec<Rule>,
}

/// What `additionalProperties` says.
#[derive(Debug, Clone, Default)]
pub enum Additional {
    /// Nothing.
    #[default]
    Unset,
    /// `true` or `false`.
    Allowed(bool),
    /// A schema.
    Schema(Box<Structural>),
}

/// Value validations.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    /// `format`: the name of a format of strings or numbers; unknown names are not checked. Empty if not set.
    pub format: String,
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `maxLength`, in characters.
    pub max_length: Option<i64>,
    /// `minLength`, in characters.
    pub min_length: Option<i64>,
    /// `pattern`: an RE2 expression that matches anywhere in the string. Empty if not set.
    pub pattern: String,
    /// `maxItems` of a list.
    pub max_items: Option<i64>,
    /// `minItems` of a list.
    pub min_items: Option<i64>,
    /// `uniqueItems`: no two elements of a list are equal.
    pub unique_items: bool,
    /// `multipleOf` of a number; positive.
    pub multiple_of: Option<f64>,
    /// `enum`.
    pub allowed: Option<Vec<Value>>,
    /// `maxProperties`: how many fields or keys an object may have.
    pub max_properties: Option<i64>,
    /// `minProperties`: how many fields or keys an object must have.
    pub min_properties: Option<i64>,
    /// `required`: the names of fields that must be there.
    pub required: Vec<String>,
    /// `allOf`: a value must satisfy each of these.
    pub all_of: Vec<Structural>,
    /// `anyOf`: a value must satisfy at least one of these. Empty if not set.
    pub any_of: Vec<Structural>,
    /// `oneOf`: a value must satisfy exactly one of these. Empty if not set.
    pub one_of: Vec<Structural>,
    /// `not`: a value must not satisfy it.
    pub not: Option<Box<Structural>>,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The CEL expression.
    pub rule: String,
    /// The message if the rule evaluates to false.
    pub message: String,
    /// A CEL expression for the message.
    pub message_expression: String,
    /// The reason of the cause, such as `FieldValueInvalid`.
    pub reason: String,
    /// The field to name, relative to where the rule stands.
    pub field_path: String,
    /// The rule runs on creation as well, with `oldSelf` optional.
    pub optional_old_self: Option<bool>,
}

impl Structural {
    /// Reads the JSON form (`openAPIV3Schema`); what is not understood is left out, as validation of the CRD reports it.
    pub fn from_json(schema: &Value) -> Self {
        Self::parse(schema, false)
    }

    /// As [`Structural::from_json`], below a schema that keeps unknown fields or not.
    fn parse(schema: &Value, around: bool) -> Self {
        let text = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
        let flag = |key: &str| schema[key].as_bool().unwrap_or_default();
        let list = |key: &str| -> Vec<Structural> {
            schema[key]
                .as_array()
                .map(|items| items.iter().map(Self::from_json).collect())
                .unwrap_or_default()
        };
        let strings = |key: &str| -> Vec<String> {
            schema[key]
                .as_array()
                .map(|items| {
                    items
                        .iter()
                        .filter_map(|v| v.as_str().map(str::to_owned))
                        .collect()
                })
                .unwrap_or_default()
        };
        let open = around || flag("x-kubernetes-preserve-unknown-fields");
        Self {
            ty: text("type"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            properties: schema["properties"]
                .as_object()
                .map(|map| {
                    map.iter()
                        .map(|(name, sub)| (name.clone(), Self::parse(sub, open)))
                        .collect()
                })
                .unwrap_or_default(),
            additional: match &schema["additionalProperties"] {
                Value::Bool(allowed) => Additional::Allowed(*allowed),
                sub @ Value::Object(_) => Additional::Schema(Box::new(Self::parse(sub, open))),
                _ => Additional::Unset,
            },
            items: schema["items"]
                .is_object()
                .then(|| Box::new(Self::parse(&schema["items"], open))),
            default: schema.get("default").cloned(),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            open,
            embedded: flag("x-kubernetes-embedded-resource"),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: strings("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            checks: Checks {
                format: text("format"),
                maximum: schema["maximum"]
                    .as_f64()
                    .map(|limit| (limit, flag("exclusiveMaximum"))),
                minimum: schema["minimum"]
                    .as_f64()
                    .map(|limit| (limit, flag("exclusiveMinimum"))),
                max_length: schema["maxLength"].as_i64(),
                min_length: schema["minLength"].as_i64(),
                pattern: text("pattern"),
                max_items: schema["maxItems"].as_i64(),
                min_items: schema["minItems"].as_i64(),
                unique_items: flag("uniqueItems"),
                multiple_of: schema["multipleOf"].as_f64(),
                allowed: schema["enum"].as_array().cloned(),
                max_properties: schema["maxProperties"].as_i64(),
                min_properties: schema["minProperties"].as_i64(),
                required: strings("required"),
                all_of: list("allOf"),
                any_of: list("anyOf"),
                one_of: list("oneOf"),
                not: schema["not"]
                    .is_object()
                    .then(|| Box::new(Self::from_json(&schema["not"]))),
            },
            rules: schema["x-kubernetes-validations"]
                .as_array()
                .map(|rules| rules.iter().map(Rule::from_json).collect())
                .unwrap_or_default(),
        }
    }
}

impl Structural {
    /// Whether this schema or a schema below it has CEL rules.
    pub fn has_rules(&self) -> bool {
        let below = match &self.additional {
            Additional::Schema(sub) => sub.has_rules(),
            _ => false,
        };
        !self.rules.is_empty()
            || below
            || self.properties.values().any(Structural::has_rules)
            || self.items.as_ref().is_some_and(|items| items.has_rules())
            || self.checks.all_of.iter().any(Structural::has_rules)
    }
}

impl Structural {
    /// Collects the formats here and below that nothing checks.
    pub(crate) fn unknown_formats(&self, found: &mut Vec<String>) {
        let format = self.checks.format.as_str();
        let known = match self.ty.as_str() {
            "" | "string" => format::known(format),
            "integer" => matches!(format, "int32" | "int64"),
            "number" => matches!(format, "float" | "double"),
            _ => false,
        };
        if !format.is_empty() && !known {
            found.push(format.to_owned());
        }
        let extra = match &self.additional {
            Additional::Schema(below) => Some(&**below),
            _ => None,
        };
        let checks = &self.checks;
        let junctors = checks
            .all_of
            .iter()
            .chain(&checks.any_of)
            .chain(&checks.one_of);
        let below = self
            .properties
            .values()
            .chain(extra)
            .chain(self.items.as_deref());
        for schema in below.chain(junctors).chain(checks.not.as_deref()) {
            schema.unknown_formats(found);
        }
    }
}

impl Rule {
    fn from_json(rule: &Value) -> Self {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old_self: rule["optionalOldSelf"].as_bool(),
        }
    }
}

#[cfg(test)]
mod tests;
