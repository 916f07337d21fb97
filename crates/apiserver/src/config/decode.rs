//! Reading files of configuration: kinds, their versions, and the fields that they have.

use allot_apimachinery::quote::quote;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of `apiserver.config.k8s.io` whose type has all its fields, and refuses others.
pub(super) trait Strict: DeserializeOwned {
    const KIND: &'static str;

    /// `apiVersion` and `kind` as they are written.
    fn header(&self) -> (&str, &str);
}

/// Reads a strictly decoded kind in one of its versions.
///
/// # Errors
/// Upstream's words for another kind or version, and for what is not of its type. No part of the text is in them.
pub(super) fn strict<T: Strict>(text: &str) -> Result<T, String> {
    let written: T = serde_saphyr::from_str(text)
        .map_err(|error| format!("strict decoding error: {}", error.without_snippet()))?;
    let (version, kind) = written.header();
    let known = version
        .strip_prefix("apiserver.config.k8s.io")
        .and_then(|it| it.strip_prefix('/'));
    if kind != T::KIND || !matches!(known, Some("v1" | "v1beta1" | "v1alpha1")) {
        return Err(format!(
            "no kind \"{kind}\" is registered for version \"{version}\""
        ));
    }
    Ok(written)
}

/// A document of a configuration file.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// As it is written, for messages.
    pub text: String,
    /// What it contains; null if that is nothing.
    pub value: Value,
}

/// A kind of configuration.
pub(super) struct Kind {
    /// What `apiVersion` and `kind` may be.
    pub types: &'static [(&'static str, &'static str)],
    /// Its fields; without them unknown ones are permitted, as for the kinds that upstream does not decode strictly.
    pub fields: Option<Fields>,
}

/// The fields that there are.
pub(super) enum Fields {
    /// Any: the type of the value is checked where it is used.
    Any,
    /// A list of these.
    List(&'static Fields),
    /// These.
    Object(&'static [(&'static str, Fields)]),
}

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is of another kind, or of none.
    Kind(String),
    /// It has this kind, and is wrong.
    Content(String),
}

impl From<Unreadable> for String {
    fn from(why: Unreadable) -> String {
        let (Unreadable::Kind(why) | Unreadable::Content(why)) = why;
        why
    }
}

impl Document {
    /// From a text in YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = match text.trim().is_empty() {
            true => Value::Null,
            false => serde_saphyr::from_str(text).map_err(|error| error.to_string())?,
        };
        Ok(Document {
            text: text.to_owned(),
            value,
        })
    }
}

impl Kind {
    /// Reads a document of this kind.
    ///
    /// # Errors
    /// Upstream's words for a missing or unknown kind or version, and for fields that the kind does not have.
    pub fn decode<T: DeserializeOwned>(&self, document: Document) -> Result<T, Unreadable> {
        let Document { text, mut value } = document;
        let missing =
            |what: &str| Unreadable::Kind(format!("Object '{what}' is missing in '{text}'"));
        if !value.is_object() && !value.is_null() {
            let why = "couldn't get version/kind; json parse error: no object".to_owned();
            return Err(Unreadable::Content(why));
        }
        let mut header = |key: &str| match value.as_object_mut().and_then(|map| map.remove(key)) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (version, kind) = (header("apiVersion"), header("kind"));
        if kind.is_empty() {
            return Err(missing("Kind"));
        }
        if version.is_empty() {
            return Err(missing("apiVersion"));
        }
        if !self.types.contains(&(version.as_str(), kind.as_str())) {
            return Err(Unreadable::Kind(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            )));
        }
        let mut unknown = Vec::new();
        if let Some(fields) = &self.fields {
            fields.find_unknown(&value, "", &mut unknown);
        }
        if !unknown.is_empty() {
            let why = format!("strict decoding error: {}", unknown.join(", "));
            return Err(Unreadable::Content(why));
        }
        drop_nulls(&mut value);
        serde_json::from_value(value).map_err(|error| Unreadable::Content(error.to_string()))
    }
}

impl Fields {
    fn find_unknown(&self, value: &Value, path: &str, found: &mut Vec<String>) {
        match (self, value) {
            (Fields::List(fields), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    fields.find_unknown(item, &format!("{path}[{index}]"), found);
                }
            }
            (Fields::Object(fields), Value::Object(map)) => {
                for (name, value) in map {
                    let path = match path {
                        "" => name.clone(),
                        path => format!("{path}.{name}"),
                    };
                    match fields.iter().find(|(known, _)| known == name) {
                        Some((_, fields)) => fields.find_unknown(value, &path, found),
                        None => found.push(format!("unknown field {}", quote(&path))),
                    }
                }
            }
            _ => {}
        }
    }
}

/// A field that is null is one that is absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
