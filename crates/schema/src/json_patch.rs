//! JSON patches (RFC 6902) and JSON merge patches (RFC 7386), as lenient as upstream's library.
//!
//! Where the documents and that library differ, clients have come to rely on the library: an index may be negative and counts from the end,
//! a replaced key need not exist, a missing value is null and equal to it, and a merge drops nulls below what it puts again.

use allot_apimachinery::interrupt;
use serde_json::{Map, Value};

mod pointer;
mod spent;

use pointer::{Target, existing, find};
use spent::PatchBudget;

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

/// The reason why a patch cannot be applied, with upstream's messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no list of operations, or one of them does not apply.
    #[error("{0}")]
    Broken(String),
    /// The document does not have the value that a test at this path asks for.
    #[error("testing value {0} failed: test failed")]
    Test(String),
}

impl Patch {
    /// Reads a patch from its JSON form.
    ///
    /// # Errors
    /// It is no list of objects.
    pub fn from_json(patch: &Value) -> Result<Self, Error> {
        let mismatch = |value: &Value, wanted: &str| {
            let found = crate::decode::json_type(value);
            Error::Broken(format!(
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
        let mut spent = PatchBudget::default();
        self.0.iter().try_for_each(|operation| {
            if interrupt::is_requested() {
                return Err(broken(interrupt::TEXT.to_owned()));
            }
            operation.apply(document, &mut spent)
        })
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
        let detail = match self.kind.as_str() {
            "add" | "remove" | "copy" => "",
            _ => "operation missing path field: ",
        };
        self.path.as_deref().ok_or_else(|| {
            let kind = &self.kind;
            broken(format!(
                "{kind} operation failed to decode path: {detail}missing value"
            ))
        })
    }

    fn from(&self) -> Result<&str, Error> {
        self.from.as_deref().ok_or_else(|| {
            let kind = &self.kind;
            broken(format!(
                "{kind} operation failed to decode from: operation, missing from field: missing value"
            ))
        })
    }

    /// The place in the document; an error calls the path `what`.
    fn find<'a>(
        &self,
        document: &'a mut Value,
        path: &str,
        what: &str,
    ) -> Result<Target<'a>, Error> {
        find(document, path).ok_or_else(|| {
            let kind = &self.kind;
            let shown = match kind.as_str() {
                "add" | "remove" => format!("\"{path}\""),
                _ => path.to_owned(),
            };
            broken(format!(
                "{kind} operation does not apply: {what}: {shown}: missing value"
            ))
        })
    }

    fn value(&self) -> Value {
        self.value.clone().unwrap_or_default()
    }

    fn apply(&self, document: &mut Value, spent: &mut PatchBudget) -> Result<(), Error> {
        match self.kind.as_str() {
            "add" => self.put(document, self.value(), "doc is missing path", spent),
            "remove" => {
                let path = self.path()?;
                let place = self.find(document, path, "doc is missing path")?;
                let failed = |error| broken(format!("error in remove for path: '{path}': {error}"));
                spent.moves(place.elements())?;
                place.take().map(drop).map_err(failed)
            }
            "replace" => self.replace(document, spent),
            "move" => {
                let from = self.from()?;
                let place = self.find(document, from, "doc is missing from path")?;
                let key = place.key().to_owned();
                let failed = |error| broken(format!("error in move for path: '{key}': {error}"));
                spent.moves(place.elements())?;
                let value = place.take().map_err(failed)?;
                self.put(document, value, "doc is missing destination path", spent)
            }
            "copy" => self.copy(document, spent),
            "test" => self.test(document),
            other => Err(broken(format!("Unexpected kind: {other}"))),
        }
    }

    fn put(
        &self,
        document: &mut Value,
        value: Value,
        what: &str,
        spent: &mut PatchBudget,
    ) -> Result<(), Error> {
        let path = self.path()?;
        let place = self.find(document, path, what)?;
        spent.check_depth(path, &value)?;
        spent.moves(place.elements())?;
        place.add(value).map_err(|error| {
            broken(match self.kind.as_str() {
                "copy" => format!("error while adding value during copy: {error}"),
                kind => format!("error in {kind} for path: '{path}': {error}"),
            })
        })
    }

    fn copy(&self, document: &mut Value, spent: &mut PatchBudget) -> Result<(), Error> {
        let from = self.from()?;
        let place = self.find(document, from, "doc is missing from path")?;
        let failed = |error| broken(format!("error in copy for from: '{from}': {error}"));
        let value = place.get().map_err(failed)?.cloned().unwrap_or_default();
        spent.copied += value.to_string().len();
        if spent.copied > MAX_COPIED {
            let copied = spent.copied;
            return Err(broken(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
            )));
        }
        self.put(document, value, "doc is missing destination path", spent)
    }

    fn replace(&self, document: &mut Value, spent: &mut PatchBudget) -> Result<(), Error> {
        let path = self.path()?;
        spent.check_depth(path, self.value.as_ref().unwrap_or(&Value::Null))?;
        if path.is_empty() {
            let value = self.value();
            if !value.is_object() && !value.is_array() {
                let text = "replace operation value must be object or array";
                return Err(broken(text.to_owned()));
            }
            *document = value;
            return Ok(());
        }
        match self.find(document, path, "doc is missing path")? {
            Target::Key(map, key) => {
                map.insert(key, self.value());
            }
            Target::Index(list, key) => {
                let missing = |_| {
                    broken(format!(
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
            let place = self.find(document, path, "is missing path")?;
            let failed = |error| broken(format!("error in test for path: '{path}': {error}"));
            place.get().map_err(failed)?
        };
        // What is not there counts as null, here and there.
        let null = |value: Option<&Value>| value.is_none_or(Value::is_null);
        if null(found) && null(self.value.as_ref()) || found == self.value.as_ref() {
            return Ok(());
        }
        Err(Error::Test(path.to_owned()))
    }
}

fn broken(text: String) -> Error {
    Error::Broken(text)
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
