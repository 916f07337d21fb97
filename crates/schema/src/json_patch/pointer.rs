//! JSON pointers (RFC 6901) of a patch: the place that a pointer leads to, and the changes there.

use allot_apimachinery::quote::quote;
use serde_json::{Map, Value};

/// Why an operation cannot be applied at a place; the texts are those of the library that upstream uses.
#[derive(Debug, thiserror::Error)]
pub(super) enum PointerError {
    #[error("strconv.Atoi: parsing {}: invalid syntax", quote(.0))]
    NotAnIndex(String),
    #[error("value was not a proper array index: '{0}': {cause}", cause = Self::NotAnIndex(.0.clone()))]
    NotAnInsertionIndex(String),
    #[error("Unable to access invalid index: {0}: invalid index referenced")]
    OutOfRange(i64),
    #[error("Unable to remove nonexistent key: {0}: missing value")]
    NoSuchKey(String),
}

/// The place that the last segment of a pointer names, in the object or list that has it.
pub(super) enum Target<'a> {
    Key(&'a mut Map<String, Value>, String),
    Index(&'a mut Vec<Value>, String),
}

impl<'a> Target<'a> {
    pub(super) fn key(&self) -> &str {
        match self {
            Target::Key(_, key) | Target::Index(_, key) => key,
        }
    }

    /// How many elements an insertion or a removal here moves at most.
    pub(super) fn elements(&self) -> usize {
        match self {
            Target::Index(list, key) if key != "-" => {
                let index = key.parse::<usize>().unwrap_or_default();
                list.len().saturating_sub(index)
            }
            _ => 0,
        }
    }

    /// The value; `None` for a key that the object does not have.
    pub(super) fn get(self) -> Result<Option<&'a Value>, PointerError> {
        match self {
            Target::Key(map, key) => Ok(map.get(&key)),
            Target::Index(list, key) => existing(&key, list.len()).map(|at| list.get(at)),
        }
    }

    /// Sets the key, or inserts the value before the element with the index.
    pub(super) fn add(self, value: Value) -> Result<(), PointerError> {
        match self {
            Target::Key(map, key) => {
                map.insert(key, value);
            }
            Target::Index(list, key) if key == "-" => list.push(value),
            Target::Index(list, key) => {
                let number = number(&key);
                let number = number.map_err(|_| PointerError::NotAnInsertionIndex(key))?;
                let at = index(number, list.len() + 1)?;
                list.insert(at, value);
            }
        }
        Ok(())
    }

    /// Removes the value and returns it.
    pub(super) fn take(self) -> Result<Value, PointerError> {
        match self {
            Target::Key(map, key) => map.remove(&key).ok_or(PointerError::NoSuchKey(key)),
            Target::Index(list, key) => existing(&key, list.len()).map(|at| list.remove(at)),
        }
    }
}

/// The place that a pointer leads to; `None` if the document has no object or list for its last segment.
pub(super) fn find<'a>(document: &'a mut Value, path: &str) -> Option<Target<'a>> {
    let mut segments = path.split('/').map(unescape);
    // A pointer begins with a slash; like upstream, text before it is ignored.
    segments.next();
    let mut at = document;
    let mut key = segments.next()?;
    for next in segments {
        at = match at {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(list) => {
                let at = existing(&key, list.len()).ok()?;
                list.get_mut(at)?
            }
            _ => return None,
        };
        key = next;
    }
    match at {
        Value::Object(map) => Some(Target::Key(map, key)),
        Value::Array(list) => Some(Target::Index(list, key)),
        _ => None,
    }
}

fn number(key: &str) -> Result<i64, PointerError> {
    let number = key.parse();
    number.map_err(|_| PointerError::NotAnIndex(key.to_owned()))
}

/// The index among `places`; a negative number counts from the end.
fn index(number: i64, places: usize) -> Result<usize, PointerError> {
    let from_start = if number < 0 {
        number + places as i64
    } else {
        number
    };
    usize::try_from(from_start)
        .ok()
        .filter(|at| *at < places)
        .ok_or(PointerError::OutOfRange(number))
}

/// The index of an element in a list of this length.
pub(super) fn existing(key: &str, length: usize) -> Result<usize, PointerError> {
    number(key).and_then(|number| index(number, length))
}

fn unescape(segment: &str) -> String {
    // `~01` is `~1`: the replacement is not unescaped again.
    let mut out = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (with, length) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => ("~", 2),
            Some(b'1') => ("/", 2),
            _ => ("~", 1),
        };
        out.push_str(with);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}
