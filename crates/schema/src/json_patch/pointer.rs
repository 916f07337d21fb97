//! JSON pointers (RFC 6901) of a patch: the place that one leads to, and what can be done there.

use serde_json::{Map, Value};

/// The place that the last segment of a path names, in what is there.
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

    /// The value; none for a key that is not there.
    pub(super) fn get(self) -> Result<Option<&'a Value>, String> {
        match self {
            Target::Key(map, key) => Ok(map.get(&key)),
            Target::Index(list, key) => existing(&key, list.len()).map(|at| list.get(at)),
        }
    }

    pub(super) fn add(self, value: Value) -> Result<(), String> {
        match self {
            Target::Key(map, key) => {
                map.insert(key, value);
            }
            Target::Index(list, key) if key == "-" => list.push(value),
            Target::Index(list, key) => {
                let no_index =
                    |error| format!("value was not a proper array index: '{key}': {error}");
                let number = number(&key).map_err(no_index)?;
                let at = index(number, list.len() + 1)?;
                list.insert(at, value);
            }
        }
        Ok(())
    }

    pub(super) fn take(self) -> Result<Value, String> {
        match self {
            Target::Key(map, key) => map
                .remove(&key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
            Target::Index(list, key) => existing(&key, list.len()).map(|at| list.remove(at)),
        }
    }
}

pub(super) fn find<'a>(document: &'a mut Value, path: &str) -> Option<Target<'a>> {
    let mut segments = path.split('/').map(unescape);
    // What stands before the first slash says nothing.
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

fn number(key: &str) -> Result<i64, String> {
    let key_shown = || allot_apimachinery::quote::quote(key);
    key.parse()
        .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", key_shown()))
}

/// The place of an index among so many; a negative one counts from the end.
fn index(number: i64, places: usize) -> Result<usize, String> {
    let from_start = if number < 0 {
        number + places as i64
    } else {
        number
    };
    usize::try_from(from_start)
        .ok()
        .filter(|at| *at < places)
        .ok_or_else(|| {
            format!("Unable to access invalid index: {number}: invalid index referenced")
        })
}

pub(super) fn existing(key: &str, length: usize) -> Result<usize, String> {
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
