//! Reading JSON the way a Go decoder fills a struct: absent, null and mistyped values read as zero values.
//!
//! That makes every rule of this crate total on arbitrary JSON. Mistyped values never get here in the API server,
//! which rejects them while decoding.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Accessors with the zero values of Go.
pub(crate) trait View {
    /// The member, or null.
    fn at(&self, key: &str) -> &Value;
    /// The member as a string, "" when absent.
    fn text(&self, key: &str) -> &str;
    /// The member as a string when present: a Go string pointer.
    fn opt_text(&self, key: &str) -> Option<&str>;
    /// The member as an integer, 0 when absent.
    fn int(&self, key: &str) -> i64;
    /// The member as a boolean when present: a Go bool pointer.
    fn opt_bool(&self, key: &str) -> Option<bool>;
    /// The member's items, none when absent.
    fn list(&self, key: &str) -> &[Value];
    /// The member's entries, none when absent.
    fn entries(&self, key: &str) -> Entries<'_>;
    /// Whether the member is there and not null: a Go pointer, slice or map that is not nil.
    fn has(&self, key: &str) -> bool;
}

impl View for Value {
    fn at(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }

    fn text(&self, key: &str) -> &str {
        self.at(key).as_str().unwrap_or_default()
    }

    fn opt_text(&self, key: &str) -> Option<&str> {
        self.at(key).as_str()
    }

    fn int(&self, key: &str) -> i64 {
        self.at(key).as_i64().unwrap_or_default()
    }

    fn opt_bool(&self, key: &str) -> Option<bool> {
        self.at(key).as_bool()
    }

    fn list(&self, key: &str) -> &[Value] {
        self.at(key).as_array().map_or(&[], Vec::as_slice)
    }

    fn entries(&self, key: &str) -> Entries<'_> {
        Entries {
            map: self.at(key).as_object(),
        }
    }

    fn has(&self, key: &str) -> bool {
        !self.at(key).is_null()
    }
}

/// The entries of a JSON object that may be absent.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Entries<'a> {
    pub(crate) fn len(self) -> usize {
        self.map.map_or(0, Map::len)
    }

    pub(crate) fn contains(self, key: &str) -> bool {
        self.map.is_some_and(|map| map.contains_key(key))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.map
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value))
    }
}

/// The texts of a list of strings; other items read as "".
pub(crate) fn texts(list: &[Value]) -> impl Iterator<Item = &str> {
    list.iter().map(|item| item.as_str().unwrap_or_default())
}

/// The members of `value` if it is an object.
pub(crate) fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    value.as_object_mut()
}

/// The items of the list member `key`, none when absent or not a list.
pub(crate) fn items_mut<'a>(
    value: &'a mut Value,
    key: &str,
) -> impl Iterator<Item = &'a mut Value> {
    value
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Removes the member `key` if there is one.
pub(crate) fn remove(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(key);
    }
}

/// Sets the member `key`; anything but an object stays as it is.
pub(crate) fn set(value: &mut Value, key: &str, member: impl Into<Value>) {
    if let Some(map) = value.as_object_mut() {
        map.insert(key.to_owned(), member.into());
    }
}
