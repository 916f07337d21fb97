//! Shards of a collection: the objects for which the hash of the UID or of the namespace is in a range (KEP 5866).

use allot_store::Entry;
use serde_json::{Value, json};

use super::extract;
use crate::error::{ApiError, Result};
use crate::object::meta;

/// The end of the space of hashes; it has one digit more than a hash.
const END: &str = "0x10000000000000000";
/// The number of digits of every other bound.
const DIGITS: usize = 16;
/// Limit of ranges in a selector.
const MOST: usize = 1024;

/// Ranges of hashes: `shardRange(FIELD, 'FIRST', 'END')`, joined by `||`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    /// The field of the metadata that is hashed.
    field: &'static str,
    ranges: Vec<(u128, u128)>,
    /// The selector in the form of `shardInfo` in the metadata of lists.
    shown: String,
}

/// Why a shard selector is invalid; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
enum ShardError {
    #[error("empty shard selector is not allowed; omit the parameter for unfiltered lists")]
    Empty,
    #[error("more than {MOST} ranges")]
    TooManyRanges,
    #[error("CEL parse error: {0:?} is not a call of shardRange()")]
    NotACall(String),
    #[error("unsupported function {0:?}; only shardRange() and || are allowed")]
    Function(String),
    #[error("shardRange() requires exactly 3 arguments, got {0}")]
    Arguments(usize),
    #[error(
        "unsupported field path {0:?}; supported: object.metadata.uid, object.metadata.namespace"
    )]
    Path(String),
    #[error("shard range start {start} must be less than end {end}")]
    Order { start: String, end: String },
    #[error(
        "all shard ranges must use the same field, got \"object.metadata.{first}\" and {other:?}"
    )]
    Fields { first: &'static str, other: String },
    #[error("{name} must be a string literal (e.g. '0xff'), got {text}")]
    NotAString { name: &'static str, text: String },
    #[error("{name} must have '0x' prefix, got {text:?}")]
    Prefix { name: &'static str, text: String },
    #[error("{name} must be a 0x-prefixed 16-digit hex value, got {text:?}")]
    Length { name: &'static str, text: String },
    #[error("{name}: invalid hex character in {text:?}")]
    Digit { name: &'static str, text: String },
    #[error("{name}: {error}")]
    Number {
        name: &'static str,
        error: std::num::ParseIntError,
    },
}

impl Shard {
    /// Reads a selector.
    ///
    /// # Errors
    /// 500 for an invalid selector, as upstream, where only the storage parses it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        parse(text).map_err(|error| {
            let text = format!("invalid shard selector: {error}");
            ApiError::from(allot_apimachinery::Status::internal(&text))
        })
    }

    /// `metadata.shardInfo` of a list.
    pub(super) fn info(&self) -> Value {
        json!({"selector": self.shown})
    }

    /// Whether the stored object is in the shard.
    pub(super) fn matches(&self, entry: &Entry) -> bool {
        let found = extract(&entry.value, &["metadata.uid", "metadata.namespace"]);
        self.covers(meta(&found, self.field))
    }

    fn covers(&self, value: &str) -> bool {
        let hash = u128::from(fnv1a(value.as_bytes()));
        let mut ranges = self.ranges.iter();
        ranges.any(|(first, end)| (*first..*end).contains(&hash))
    }
}

fn parse(text: &str) -> std::result::Result<Shard, ShardError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ShardError::Empty);
    }
    let mut field = None;
    let mut ranges = Vec::new();
    let mut shown = Vec::new();
    for part in text.split("||") {
        if ranges.len() == MOST {
            return Err(ShardError::TooManyRanges);
        }
        let (name, arguments) = call(part.trim())?;
        if name != "shardRange" {
            return Err(ShardError::Function(name.to_owned()));
        }
        let [path, first, end] = arguments[..] else {
            return Err(ShardError::Arguments(arguments.len()));
        };
        let of = match path {
            "object.metadata.uid" => "uid",
            "object.metadata.namespace" => "namespace",
            path => return Err(ShardError::Path(path.to_owned())),
        };
        let (first_text, first) = bound(first, "hexStart")?;
        let (end_text, end) = bound(end, "hexEnd")?;
        if first >= end {
            return Err(ShardError::Order {
                start: first_text.to_owned(),
                end: end_text.to_owned(),
            });
        }
        let known = *field.get_or_insert(of);
        if known != of {
            return Err(ShardError::Fields {
                first: known,
                other: path.to_owned(),
            });
        }
        ranges.push((first, end));
        shown.push(format!("shardRange({path}, '{first_text}', '{end_text}')"));
    }
    let field = field.unwrap_or("uid");
    let shown = shown.join(" || ");
    Ok(Shard {
        field,
        ranges,
        shown,
    })
}

/// The name and the arguments of a call.
fn call(text: &str) -> std::result::Result<(&str, Vec<&str>), ShardError> {
    let wrong = || ShardError::NotACall(text.to_owned());
    let (name, rest) = text.split_once('(').ok_or_else(wrong)?;
    let inside = rest.strip_suffix(')').ok_or_else(wrong)?;
    let arguments = inside.split(',').map(str::trim).collect();
    Ok((name.trim(), arguments))
}

/// A bound in quotes: `0x` and 16 digits, or the end of the space.
fn bound<'a>(
    text: &'a str,
    name: &'static str,
) -> std::result::Result<(&'a str, u128), ShardError> {
    let quoted = ['\'', '"'].into_iter().find_map(|quote| {
        text.strip_prefix(quote)?
            .strip_suffix(quote)
            .filter(|inside| !inside.contains(quote))
    });
    let owned = || text.to_owned();
    let text = quoted.ok_or_else(|| ShardError::NotAString {
        name,
        text: owned(),
    })?;
    let owned = || text.to_owned();
    let digits = text.strip_prefix("0x");
    let digits = digits.ok_or_else(|| ShardError::Prefix {
        name,
        text: owned(),
    })?;
    if text != END && digits.len() != DIGITS {
        return Err(ShardError::Length {
            name,
            text: owned(),
        });
    }
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !digits.bytes().all(lower) {
        return Err(ShardError::Digit {
            name,
            text: owned(),
        });
    }
    let number = u128::from_str_radix(digits, 16);
    number
        .map(|number| (text, number))
        .map_err(|error| ShardError::Number { name, error })
}

/// FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::{fnv1a, parse};

    #[test]
    fn hashes_are_those_of_fnv() {
        // Values of the reference implementation.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn ranges_cover_each_value_once() {
        let uid = "object.metadata.uid";
        let low = format!(
            "shardRange({uid},'0x0000000000000000','0x4000000000000000') || shardRange({uid}, \"0x4000000000000000\", '0x8000000000000000')"
        );
        let high = format!("shardRange({uid}, '0x8000000000000000', '0x10000000000000000')");
        let (low, high) = (parse(&low).unwrap(), parse(&high).unwrap());
        for number in 0..100 {
            let value = format!("uid-{number}");
            assert_ne!(low.covers(&value), high.covers(&value), "{value}");
        }
        assert!(high.covers("foobar") && low.shown.contains(" || shardRange("));
    }

    #[test]
    fn wrong_selectors_are_named() {
        for (text, why) in [
            (" ", "empty shard selector"),
            ("a", "CEL parse error"),
            ("f('a')", "unsupported function \"f\""),
            (
                "shardRange(object.metadata.uid)",
                "exactly 3 arguments, got 1",
            ),
            (
                "shardRange(object.metadata.name, '0x0', '0x1')",
                "unsupported field path \"object.metadata.name\"",
            ),
            (
                "shardRange(object.metadata.uid, '0x0', '0x1')",
                "hexStart must be a 0x-prefixed 16-digit hex value",
            ),
            (
                "shardRange(object.metadata.uid, '0x000000000000000g', '0x10000000000000000')",
                "invalid hex character",
            ),
            (
                "shardRange(object.metadata.uid, 5, '0x10000000000000000')",
                "hexStart must be a string literal",
            ),
            (
                "shardRange(object.metadata.uid, '0x0000000000000002', '0x0000000000000001')",
                "must be less than end",
            ),
            (
                "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001') || shardRange(object.metadata.namespace, '0x0000000000000001', '0x0000000000000002')",
                "must use the same field",
            ),
        ] {
            let found = parse(text).unwrap_err().to_string();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
