//! JSON patches (RFC 6902) and JSON merge patches (RFC 7386), as lenient as upstream's library.
//!
//! Where the documents and that library differ, clients have come to rely on the library: an index may be negative and counts from the end,
//! a replaced key need not exist, a missing value is null and equal to it, and a merge drops nulls below what it puts anew.

use serde_json::{Map, Value};

/// The most that all copies of one patch may amount to, in bytes of JSON.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// A JSON patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch(Vec<Operation>);

#[derive(Debug, Clone, PartialEq)]
struct Operation {
    kind: String,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

/// Why a patch can not be carried out; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Patch {
    /// Reads a patch from its JSON form.
    ///
    /// # Errors
    /// It is no list of objects.
    pub fn from_json(patch: &Value) -> Result<Self, Error> {
        let mismatch = |value: &Value, wanted: &str| {
            let found = crate::decode::json_type(value);
            Error(format!(
                "json: cannot unmarshal {found} into Go value of type jsonpatch.{wanted}"
            ))
        };
        let operations = match patch {
            Value::Null => &[][..],
            Value::Array(operations) => operations,
            other => return Err(mismatch(other, "Patch")),
        };
        let read = |operation: &Value| match operation {
            Value::Object(operation) => Ok(Operation::read(operation)),
            Value::Null => Ok(Operation::read(&Map::new())),
            other => Err(mismatch(other, "Operation")),
        };
        operations
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths that operations look at or change.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .flat_map(|operation| [&operation.path, &operation.from])
            .filter_map(Option::as_deref)
    }

    /// Carries out the operations in order; the document is of no use after an error.
    ///
    /// # Errors
    /// The first operation that does not apply.
    pub fn apply(&self, document: &mut Value) -> Result<(), Error> {
        let mut copied = 0;
        self.0
            .iter()
            .try_for_each(|operation| operation.apply(document, &mut copied))
    }
}

impl Operation {
    fn read(operation: &Map<String, Value>) -> Self {
        let text = |key: &str| Some(operation.get(key)?.as_str()?.to_owned());
        Self {
            kind: text("op").unwrap_or_else(|| "unknown".to_owned()),
            path: text("path"),
            from: text("from"),
            value: operation.get("value").cloned(),
        }
    }

    fn path(&self) -> Result<&str, Error> {
        let missing = || {
            let kind = &self.kind;
            Error(format!(
                "{kind} operation failed to decode path: missing value"
            ))
        };
        self.path.as_deref().ok_or_else(missing)
    }

    fn from(&self) -> Result<&str, Error> {
        let missing = || {
            let kind = &self.kind;
            Error(format!(
                "{kind} operation failed to decode from: operation, missing from field: missing value"
            ))
        };
        self.from.as_deref().ok_or_else(missing)
    }

    fn value(&self) -> Value {
        self.value.clone().unwrap_or_default()
    }

    fn apply(&self, document: &mut Value, copied: &mut usize) -> Result<(), Error> {
        let kind = self.kind.as_str();
        match kind {
            "add" => self.put(document, self.value()),
            "remove" => take(document, self.path()?, kind).map(drop),
            "replace" => self.replace(document),
            "move" => {
                let value = take(document, self.from()?, kind)?;
                self.put(document, value)
            }
            "copy" => {
                let from = self.from()?;
                let value = find(document, from, kind)?
                    .get(from)?
                    .cloned()
                    .unwrap_or_default();
                *copied += value.to_string().len();
                if *copied > MAX_COPIED {
                    let text = format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                    );
                    return Err(Error(text));
                }
                self.put(document, value)
            }
            "test" => self.test(document),
            other => Err(Error(format!("Unexpected kind: {other}"))),
        }
    }

    fn put(&self, document: &mut Value, value: Value) -> Result<(), Error> {
        let path = self.path()?;
        match find(document, path, &self.kind)? {
            Place::Key(map, key) => {
                map.insert(key, value);
            }
            Place::Index(list, key) if key == "-" => list.push(value),
            Place::Index(list, key) => {
                let at = index(&key, list.len() + 1).and_then(|at| {
                    let fits = at <= list.len();
                    fits.then_some(at).ok_or_else(|| no_index(&key))
                });
                let at = at.map_err(|error| {
                    let kind = &self.kind;
                    Error(format!("error in {kind} for path: '{path}': {error}"))
                })?;
                list.insert(at, value);
            }
        }
        Ok(())
    }

    fn replace(&self, document: &mut Value) -> Result<(), Error> {
        let path = self.path()?;
        if path.is_empty() {
            let value = self.value();
            if !value.is_object() && !value.is_array() {
                let text = "replace operation value must be object or array";
                return Err(Error(text.to_owned()));
            }
            *document = value;
            return Ok(());
        }
        match find(document, path, &self.kind)? {
            Place::Key(map, key) => {
                map.insert(key, self.value());
            }
            Place::Index(list, key) => {
                let missing = |_| {
                    Error(format!(
                        "replace operation does not apply: doc is missing key: {path}: missing value"
                    ))
                };
                let at = existing(&key, list.len()).map_err(missing)?;
                list[at] = self.value();
            }
        }
        Ok(())
    }

    fn test(&self, document: &mut Value) -> Result<(), Error> {
        let path = self.path()?;
        let found = if path.is_empty() {
            Some(&*document)
        } else {
            find(document, path, &self.kind)?.get(path)?
        };
        // What is not there counts as null, here and there.
        let null = |value: Option<&Value>| value.is_none_or(Value::is_null);
        if null(found) && null(self.value.as_ref()) || found == self.value.as_ref() {
            return Ok(());
        }
        Err(Error(format!("testing value {path} failed: test failed")))
    }
}

/// The place that the last segment of a path names, in what is there.
enum Place<'a> {
    Key(&'a mut Map<String, Value>, String),
    Index(&'a mut Vec<Value>, String),
}

impl<'a> Place<'a> {
    /// The value; none for a key that is not there.
    fn get(self, path: &str) -> Result<Option<&'a Value>, Error> {
        match self {
            Place::Key(map, key) => Ok(map.get(&key)),
            Place::Index(list, key) => existing(&key, list.len())
                .map(|at| list.get(at))
                .map_err(|error| Error(format!("error for path: '{path}': {error}"))),
        }
    }
}

fn find<'a>(document: &'a mut Value, path: &str, kind: &str) -> Result<Place<'a>, Error> {
    let missing = || {
        Error(format!(
            "{kind} operation does not apply: doc is missing path: {path}: missing value"
        ))
    };
    let mut segments = path.split('/').map(unescape);
    // What stands before the first slash says nothing.
    segments.next();
    let mut at = document;
    let mut key = segments.next().ok_or_else(missing)?;
    for next in segments {
        at = match at {
            Value::Object(map) => map.get_mut(&key),
            Value::Array(list) => existing(&key, list.len())
                .ok()
                .and_then(|at| list.get_mut(at)),
            _ => None,
        }
        .ok_or_else(missing)?;
        key = next;
    }
    match at {
        Value::Object(map) => Ok(Place::Key(map, key)),
        Value::Array(list) => Ok(Place::Index(list, key)),
        _ => Err(missing()),
    }
}

fn take(document: &mut Value, path: &str, kind: &str) -> Result<Value, Error> {
    let failed = |error: Error| Error(format!("error in {kind} for path: '{path}': {error}"));
    match find(document, path, kind)? {
        Place::Key(map, key) => map.remove(&key).ok_or_else(|| {
            failed(Error(format!(
                "Unable to remove nonexistent key: {key}: missing value"
            )))
        }),
        Place::Index(list, key) => {
            let at = existing(&key, list.len()).map_err(failed)?;
            Ok(list.remove(at))
        }
    }
}

fn no_index(key: &str) -> Error {
    Error(format!(
        "Unable to access invalid index: {key}: invalid index referenced"
    ))
}

/// The index that a segment names in a list of this length; a negative one counts from the end.
fn index(key: &str, length: usize) -> Result<usize, Error> {
    let number: i64 = key.parse().map_err(|_| {
        let key = allot_apimachinery::quote::quote(key);
        Error(format!("strconv.Atoi: parsing {key}: invalid syntax"))
    })?;
    let from_start = if number < 0 {
        number + length as i64
    } else {
        number
    };
    usize::try_from(from_start).map_err(|_| no_index(key))
}

fn existing(key: &str, length: usize) -> Result<usize, Error> {
    index(key, length).and_then(|at| (at < length).then_some(at).ok_or_else(|| no_index(key)))
}

fn unescape(segment: &str) -> String {
    // `~01` is `~1`: what has been replaced is not looked at again.
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

/// Merges a patch into an object: null takes a key away, objects merge, all else replaces.
pub fn merge(document: &mut Value, patch: &Value) {
    let (Value::Object(map), Value::Object(patch)) = (&mut *document, patch) else {
        *document = match document {
            Value::Object(_) => patch.clone(),
            _ => without_nulls(patch),
        };
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
            continue;
        }
        match map.get_mut(key).filter(|old| !old.is_null()) {
            Some(old) => merge(old, value),
            None => {
                map.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

/// Without the fields that are null, at any depth; elements of lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
