//! Sets of field paths: what a field manager owns.
//!
//! A set is a tree of path elements. Its JSON form is `FieldsV1`: `f:name` for a field, `k:{…}` for a list element
//! identified by its keys, `v:…` for an element identified by its value, `i:…` for an index, and `.` for the element
//! itself if it has members.

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Value};
use smol_str::SmolStr;

mod compare;
mod form;
mod set;

pub use compare::compare_values;
pub(crate) use set::Member;
pub use set::Set;

/// One step of a path. The order is that of the published form: fields, keys, values, indices.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of an object or a key of a map.
    Field(SmolStr),
    /// An element of a list of objects, by its key fields (sorted by name).
    Key(Vec<(String, Value)>),
    /// An element of a set of scalars.
    Value(Value),
    /// A place in a list.
    Index(usize),
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// The key in `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let map: Map<String, Value> = fields.iter().cloned().collect();
                format!("k:{}", Value::Object(map))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads a key of `FieldsV1`.
    pub fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.into())),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(map) => {
                    let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Some(Self::Key(fields))
                }
                _ => None,
            },
            "v" => serde_json::from_str(rest).ok().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
                    let order = name_a
                        .cmp(name_b)
                        .then_with(|| compare_values(value_a, value_b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// A value as Go prints it: a whole number has no fraction, even if one was written (`1.0`).
fn go_text(value: &Value) -> String {
    let whole = |it: &f64| it.fract() == 0.0 && it.abs() < 1e21;
    match value.as_f64().filter(whole) {
        Some(number) if value.is_f64() => format!("{number:.0}"),
        _ => value.to_string(),
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", go_text(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", go_text(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as conflict messages print it, such as `.spec.containers[name="a"].image`.
pub fn display_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
