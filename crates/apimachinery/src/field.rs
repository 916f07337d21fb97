//! Errors about fields of objects, with upstream's texts (`field.Error`).

use std::fmt;

use crate::quote::quote;

mod bad_value;
mod list;

pub use bad_value::BadValue;
pub use list::{ErrorList, MOST_TEXT, aggregate, joined};

/// The longest name or key in a path, in bytes. Names and keys may be as long as the body.
pub const MOST_STEP: usize = 2048;
/// The length after which a path does not grow, in bytes.
pub const MOST_PATH: usize = 4096;
/// The mark at the end of a truncated path.
const CUT: &str = "…";

/// Path of a field: `spec.devices.requests[0].exactly`, keys in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Path(String);

impl Path {
    /// The path of a top-level field.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The root path; its children are top-level fields.
    pub fn root() -> Self {
        Self::default()
    }

    /// The field `name` below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        self.step(dot, name, "")
    }

    /// The element `index` of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step("[", &index.to_string(), "]")
    }

    /// The entry `key` of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.step("[", key, "]")
    }

    /// A path is made for each element of what a client sends, and starts with the keys of the maps around it: each may
    /// be as long as the body. Long ones are cut.
    fn step(&self, before: &str, name: &str, after: &str) -> Self {
        if self.0.len() > MOST_PATH {
            let mut path = self.0.clone();
            if !path.ends_with(CUT) {
                path.push_str(CUT);
            }
            return Self(path);
        }
        let (name, cut) = match name.len() > MOST_STEP {
            true => (&name[..name.floor_char_boundary(MOST_STEP)], CUT),
            false => (name, ""),
        };
        Self([&self.0, before, name, cut, after].concat())
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of an error; the machine-readable reason is [`ErrorType::reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorType {
    /// A value that is referred to does not exist.
    NotFound,
    /// A value must be set.
    Required,
    /// A value that must be unique is not.
    Duplicate,
    /// A malformed or out-of-range value.
    Invalid,
    /// A value that is not one of an enumeration.
    NotSupported,
    /// A value that is not allowed under some condition.
    Forbidden,
    /// A string that is too long.
    TooLong,
    /// A list with too many items.
    TooMany,
    /// A list with too few items.
    TooFew,
    /// An internal error.
    Internal,
    /// A value of the wrong JSON type.
    TypeInvalid,
    /// A string that is too short.
    TooShort,
}

impl ErrorType {
    /// The cause type in a Status: `FieldValueInvalid`, `FieldValueRequired`, …
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooShort => "FieldValueTooShort",
        }
    }

    /// The words that a message starts with: `Invalid value`, `Required value`, …
    pub fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::TooShort => "Too short",
        }
    }

    /// Whether a message of this kind contains the value.
    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// An error of one field of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {}", self.body())]
pub struct Error {
    /// What kind of mistake it is.
    pub kind: ErrorType,
    /// Path of the field; `<nil>` if upstream has none.
    pub field: String,
    /// The offending value.
    pub bad_value: BadValue,
    /// The detail, or empty.
    pub detail: String,
}

impl Error {
    fn new(kind: ErrorType, path: &Path, bad_value: BadValue, detail: impl Into<String>) -> Self {
        let field = if path.0.is_empty() {
            "<nil>".to_owned()
        } else {
            path.0.clone()
        };
        Self {
            kind,
            field,
            bad_value,
            detail: detail.into(),
        }
    }

    /// The bytes that the error takes, which is at least the length of its text without quotes.
    fn size(&self) -> usize {
        let value = match &self.bad_value {
            BadValue::Omitted => 0,
            BadValue::Text(text) | BadValue::Raw(text) => text.len(),
        };
        size_of::<Self>() + self.field.len() + value + self.detail.len()
    }

    /// The message without the field: `Invalid value: "x": must be y`.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        if self.kind.shows_value() && self.bad_value != BadValue::Omitted {
            text.push_str(&format!(": {}", self.bad_value));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!(": {}", self.detail));
        }
        text
    }

    /// `value` is malformed or out of range.
    pub fn invalid(path: &Path, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, value.into(), detail)
    }

    /// `value` has the wrong type.
    pub fn type_invalid(
        path: &Path,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ErrorType::TypeInvalid, path, value.into(), detail)
    }

    /// The field must be set.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(
            ErrorType::Required,
            path,
            BadValue::Text(String::new()),
            detail,
        )
    }

    /// The field must not be set (that way).
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(
            ErrorType::Forbidden,
            path,
            BadValue::Text(String::new()),
            detail,
        )
    }

    /// `value` occurs twice but must be unique.
    pub fn duplicate(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::Duplicate, path, value.into(), "")
    }

    /// `value` refers to something that does not exist.
    pub fn not_found(path: &Path, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::NotFound, path, value.into(), "")
    }

    /// `value` is not one of `supported` (listed in the given order; upstream sorts if it uses a set).
    pub fn not_supported<S: AsRef<str>>(
        path: &Path,
        value: impl Into<BadValue>,
        supported: &[S],
    ) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<_> = supported
                .iter()
                .map(|value| quote(value.as_ref()))
                .collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(ErrorType::NotSupported, path, value.into(), detail)
    }

    /// A string longer than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(
            ErrorType::TooLong,
            path,
            "<value omitted>".into(),
            format!("may not be more than {max} {unit}"),
        )
    }

    /// A list of `actual` items with a limit of `max`.
    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(
            ErrorType::TooMany,
            path,
            actual.into(),
            format!("must have at most {max} {unit}"),
        )
    }

    /// A list of `actual` items with a minimum of `min`.
    pub fn too_few(path: &Path, actual: usize, min: usize) -> Self {
        let unit = if min == 1 { "item" } else { "items" };
        Self::new(
            ErrorType::TooFew,
            path,
            actual.into(),
            format!("must have at least {min} {unit}"),
        )
    }

    /// An error that is not the user's (`InternalError`), such as an expression that could not be evaluated.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, path, BadValue::Omitted, detail)
    }
}

#[cfg(test)]
mod tests;
