//! Merging, comparing and pruning values by schema: the operations of server-side apply.
//!
//! The rules are those of structured-merge-diff: scalars, atomic lists and atomic objects are leaves; sets and associative lists merge by
//! element; everything else by key.

use allot_apimachinery::field::{MOST_PATH, MOST_STEP, MOST_TEXT};
use serde_json::{Map as JsonMap, Value};

use crate::{
    fields::PathElement,
    node::{Atom, List, Map, Node, Relation, Scalar},
};

mod atomics;
mod compare;
mod element;
mod join;
mod remove;
mod sets;

pub use atomics::atomics;
pub use compare::{Comparison, compare};
pub use element::{go_type, go_value};
pub use join::merge;
pub use remove::remove;
pub use sets::{ensure_named, field_set, reconcile};

/// Why a value does not fit its schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {text}")]
pub struct Error {
    /// Where, such as `.spec.colour`.
    pub path: String,
    /// What is wrong.
    pub text: String,
}

impl Error {
    fn new(text: impl Into<String>) -> Self {
        Self {
            path: String::new(),
            text: text.into(),
        }
    }

    /// The error as one of what contains the value. The keys around a value may be as long as the body, and each error
    /// below repeats them: they are cut.
    fn within(mut self, prefix: &str) -> Self {
        let cut = prefix.floor_char_boundary(MOST_STEP);
        if cut < prefix.len() {
            self.path.insert(0, '…');
        }
        self.path.insert_str(0, &prefix[..cut]);
        self.path.truncate(self.path.floor_char_boundary(MOST_PATH));
        self
    }
}

/// The number of errors after which no more are looked for. The client determines how many there are.
const MOST_ERRORS: usize = 1000;

/// Joins errors as upstream prints them, up to 64 KiB; the rest is counted.
pub fn describe(errors: &[Error]) -> String {
    let mut texts: Vec<String> = errors
        .iter()
        .map(|error| {
            if error.path.is_empty() {
                error.text.clone()
            } else {
                error.to_string()
            }
        })
        .collect();
    if texts.len() == 1 {
        return texts.remove(0);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for (index, text) in texts.iter().enumerate() {
        if length > MOST_TEXT {
            lines.push(format!("  and at least {} more", texts.len() - index));
            break;
        }
        length += text.len();
        lines.push(format!("  {text}"));
    }
    format!("errors:\n{}", lines.join("\n"))
}

/// What the value is, where the schema leaves it open.
fn resolve<'a>(node: Node<'a>, value: Option<&Value>) -> Atom<'a> {
    match (node.atom(), value) {
        (Atom::Deduced, Some(Value::Object(_))) => Atom::Map(Map::DEDUCED),
        (Atom::Deduced, Some(Value::Array(_))) => Atom::List(List::DEDUCED),
        (Atom::Deduced, Some(Value::Null)) => Atom::Map(Map::DEDUCED),
        (Atom::Deduced, Some(_)) => Atom::Scalar(Scalar::Untyped),
        (atom, _) => atom,
    }
}

/// Checks that a value fits: fields are declared, types match, associative lists have keys and (unless allowed) no duplicates.
pub fn validate(value: &Value, node: Node<'_>, allow_duplicates: bool) -> Vec<Error> {
    match resolve(node, Some(value)) {
        Atom::Scalar(scalar) => validate_scalar(scalar, value).err().into_iter().collect(),
        Atom::List(list) => match value {
            Value::Null => Vec::new(),
            Value::Array(items) => validate_list(items, list, allow_duplicates),
            _ => vec![Error::new(format!(
                "expected list, got &{{{}}}",
                element::go_value(value)
            ))],
        },
        Atom::Map(map) => match value {
            Value::Null => Vec::new(),
            Value::Object(entries) => validate_map(entries, map, allow_duplicates),
            _ => vec![Error::new(format!(
                "expected map, got &{{{}}}",
                element::go_value(value)
            ))],
        },
        Atom::Deduced | Atom::Whole => Vec::new(),
    }
}

/// [`fits`], where another object of the type is known to; the members that are the same in both are not checked.
pub fn fits_beside(value: &Value, known: &Value, node: Node<'_>) -> bool {
    match (node.atom(), value) {
        (Atom::Map(map), Value::Object(entries)) => entries.iter().all(|(key, value)| {
            known.get(key) == Some(value)
                || map.field(key).is_some_and(|(node, _)| fits(value, node))
        }),
        _ => fits(value, node),
    }
}

/// [`validate`] with duplicates allowed finds nothing; this does not compose the errors.
pub fn fits(value: &Value, node: Node<'_>) -> bool {
    match (resolve(node, Some(value)), value) {
        (Atom::Scalar(scalar), value) => fits_scalar(scalar, value),
        (Atom::List(_) | Atom::Map(_), Value::Null) => true,
        (Atom::List(list), Value::Array(items)) => items.iter().all(|item| {
            (matches!(list.relation, Relation::Atomic) || element::has_place(list, item))
                && fits(item, list.element)
        }),
        (Atom::Map(map), Value::Object(entries)) => entries
            .iter()
            .all(|(key, value)| map.field(key).is_some_and(|(node, _)| fits(value, node))),
        (Atom::List(_) | Atom::Map(_), _) => false,
        (Atom::Deduced | Atom::Whole, _) => true,
    }
}

fn fits_scalar(scalar: Scalar, value: &Value) -> bool {
    match (scalar, value) {
        (_, Value::Null) => true,
        (Scalar::Numeric, value) => value.is_number(),
        (Scalar::String, value) => value.is_string(),
        (Scalar::Boolean, value) => value.is_boolean(),
        (Scalar::Untyped, value) => !value.is_array() && !value.is_object(),
    }
}

fn validate_scalar(scalar: Scalar, value: &Value) -> Result<(), Error> {
    if fits_scalar(scalar, value) {
        return Ok(());
    }
    Err(Error::new(match scalar {
        Scalar::Numeric => format!(
            "expected numeric (int or float), got {}",
            element::go_type(value)
        ),
        Scalar::String => format!("expected string, got {}", element::go_syntax(value)),
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", element::go_value(value)),
        Scalar::Untyped => format!("expected any scalar, got &{{{}}}", element::go_value(value)),
    }))
}

fn validate_list(items: &[Value], list: List<'_>, allow_duplicates: bool) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if errors.len() > MOST_ERRORS {
            errors.push(Error::new("there are more errors"));
            break;
        }
        let place = if matches!(list.relation, Relation::Atomic) {
            PathElement::Index(index)
        } else {
            match element::of(list, item) {
                Ok(place) => {
                    if !seen.insert(place.clone()) && !allow_duplicates {
                        errors.push(Error::new(format!("duplicate entries for key {place}")));
                    }
                    place
                }
                Err(error) => {
                    errors.push(Error::new(format!("element {index}: {error}")));
                    return errors;
                }
            }
        };
        errors.extend(
            validate(item, list.element, allow_duplicates)
                .into_iter()
                .map(|error| error.within(&place.to_string())),
        );
    }
    errors
}

fn validate_map(
    entries: &JsonMap<String, Value>,
    map: Map<'_>,
    allow_duplicates: bool,
) -> Vec<Error> {
    let mut errors = Vec::new();
    for (key, value) in entries {
        if errors.len() > MOST_ERRORS {
            errors.push(Error::new("there are more errors"));
            break;
        }
        let prefix = || format!(".{key}");
        match map.field(key) {
            None => {
                errors.push(Error::new("field not declared in schema").within(&prefix()));
                return errors;
            }
            Some((node, _)) => {
                errors.extend(
                    validate(value, node, allow_duplicates)
                        .into_iter()
                        .map(|error| error.within(&prefix())),
                );
            }
        }
    }
    errors
}

fn is_empty_list(value: Option<&Value>) -> bool {
    value.and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn is_empty_map(value: Option<&Value>) -> bool {
    value
        .and_then(Value::as_object)
        .is_none_or(JsonMap::is_empty)
}

/// How the two sides are walked together: the atom for each side where they differ.
fn atoms<'a>(
    node: Node<'a>,
    left: Option<&Value>,
    right: Option<&Value>,
) -> (Atom<'a>, Option<Atom<'a>>) {
    match (left, right) {
        (left, None) => (resolve(node, left), None),
        (None, right) => (resolve(node, right), None),
        (left, right) => {
            let (of_left, of_right) = (resolve(node, left), resolve(node, right));
            if std::mem::discriminant(&of_left) == std::mem::discriminant(&of_right) {
                (of_right, None)
            } else {
                (of_right, Some(of_left))
            }
        }
    }
}
