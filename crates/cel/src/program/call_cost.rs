//! What calls cost at run time.

use crate::{
    cost::{AUTHORIZATION_CHECK, LIST, PER_CHAR, PER_REGEX_CHAR, times_factor},
    value::{Extension, Value},
};

/// How the cost of a call follows from its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    One,
    /// An authorization check, of which an expression can afford two.
    Check,
    /// A walk over the data in the first argument.
    Walk,
    /// Characters of the first argument.
    Chars,
    /// Twice the characters of the first argument.
    CharsTwice,
    /// Twice the characters of the result.
    Result,
    /// Text times regular expression.
    Regex,
    /// Elements of the second argument.
    Elements,
    /// The shorter of two texts.
    Shorter,
    /// Two texts together.
    Both,
    /// The product of two texts.
    Product,
    /// Bytes of a network, and of a text that is parsed.
    Contains {
        network: bool,
        parsed: bool,
    },
    /// A text that is checked against a named format.
    Validate,
    /// A new list as large as the result.
    NewList,
    /// A list that is flattened.
    Flatten,
    /// Elements compared with each other, in the argument of this number.
    SelfCompare(usize),
    /// Two lists compared, once or twice.
    Sets(u8),
}

/// Cost of a regular expression of this length.
pub(super) fn regex(length: u64) -> u64 {
    times_factor(length, PER_REGEX_CHAR)
}

/// Cost of a text of this length that a regular expression runs over.
pub(super) fn regex_text(length: u64) -> u64 {
    ((1.0 + length as f64) * PER_CHAR).ceil() as u64
}

impl Rule {
    pub(super) fn of(function: &str, overload: &str) -> Self {
        match overload {
            "list_slice" | "lists_range" | "list_reverse" => return Self::NewList,
            "list_flatten" | "list_flatten_int" => return Self::Flatten,
            "list_distinct" => return Self::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => return Self::Sets(1),
            "list_sets_equivalent_list" => return Self::Sets(2),
            _ if overload.ends_with("_sort") => return Self::SelfCompare(0),
            _ if overload.ends_with("_sortByAssociatedKeys") => return Self::SelfCompare(1),
            _ => {}
        }
        match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Self::Walk,
            "ip" if overload == "cidr_ip" => return Self::One,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP"
            | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                return Self::Chars;
            }
            "replace" | "split" | "ip.isCanonical" => return Self::CharsTwice,
            "join" => return Self::Result,
            "find" | "findAll" => return Self::Regex,
            "containsIP" => {
                return Self::Contains {
                    network: false,
                    parsed: overload == "cidr_contains_ip_string",
                };
            }
            "containsCIDR" => {
                return Self::Contains {
                    network: true,
                    parsed: overload == "cidr_contains_cidr_string",
                };
            }
            "validate" => return Self::Validate,
            "check" => return Self::Check,
            _ => {}
        }
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => Self::Chars,
            "in_list" => Self::Elements,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Shorter,
            "add_string" | "add_bytes" => Self::Both,
            "matches_string" => Self::Regex,
            "contains_string" => Self::Product,
            _ => Self::One,
        }
    }

    /// The cost. `None` means an argument or a result that is an error.
    pub(super) fn cost<'v, 'a: 'v>(
        self,
        args: impl Iterator<Item = Option<&'v Value<'a>>> + Clone,
        result: Option<&Value<'_>>,
    ) -> u64 {
        let arg = |index: usize| args.clone().nth(index).flatten();
        // Only the built-in rules look through optionals.
        let library = |index: usize| arg(index).map_or(1, |value| value.cost_size(false));
        let size = |index: usize| arg(index).map_or(1, |value| value.cost_size(true));
        match self {
            Self::One => 1,
            Self::Check => AUTHORIZATION_CHECK,
            Self::Walk => arg(0).map_or(1, walk),
            Self::Chars => times_factor(size(0), PER_CHAR),
            Self::CharsTwice => times_factor(library(0), 2.0 * PER_CHAR),
            Self::Result => times_factor(
                result.map_or(1, |value| value.cost_size(false)),
                2.0 * PER_CHAR,
            ),
            Self::Regex => regex_text(size(0)) * regex(size(1)),
            Self::Elements => size(1),
            Self::Shorter => times_factor(size(0).min(size(1)), PER_CHAR),
            Self::Both => times_factor(size(0) + size(1), PER_CHAR),
            Self::Product => times_factor(size(0), PER_CHAR) * times_factor(size(1), PER_CHAR),
            Self::Contains { network, parsed } => {
                let bytes = library(0);
                let mut cost = times_factor(2 * bytes, PER_CHAR);
                if network {
                    cost += times_factor(bytes, PER_CHAR) + 1;
                }
                if parsed {
                    cost += times_factor(library(1), PER_CHAR);
                }
                cost
            }
            Self::Validate => match arg(0) {
                Some(Value::Extension(extension)) => match **extension {
                    Extension::Format(format) => regex_text(library(1)) * regex(format.regex_size),
                    _ => 1,
                },
                _ => 1,
            },
            Self::NewList => 1 + LIST + result.map_or(1, |value| value.cost_size(false)),
            Self::Flatten => {
                let depth = match arg(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                // A negative depth wraps upstream; the call fails anyway.
                ((library(0) as f64 * depth) as i64 as u64).wrapping_add(1 + LIST)
            }
            Self::SelfCompare(index) => {
                let count = library(index);
                let mut factor = 2.0;
                if let Some(Value::List(list)) = arg(index)
                    && matches!(list.get(0), Some(Value::String(_) | Value::Bytes(_)))
                {
                    factor += PER_CHAR;
                }
                ((count * count) as f64 * factor) as u64 + 1 + LIST
            }
            Self::Sets(times) => ((library(0) * library(1)) as f64 * f64::from(times)) as u64 + 1,
        }
    }
}

/// Cost of walking over all data in a value.
fn walk(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * PER_CHAR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHAR) as u64,
        Value::List(list) => list.iter().map(|element| walk(&element)).sum(),
        Value::Map(map) => map
            .keys()
            .iter()
            .map(|key| walk(key) + map.find(key).map_or(1, |value| walk(&value)))
            .sum(),
        _ => 1,
    }
}
