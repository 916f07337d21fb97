//! What decoding found.

use serde_json::Value;

/// How unknown and duplicate fields are answered (`?fieldValidation=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are an error.
    Strict,
    /// They are reported as warnings.
    #[default]
    Warn,
    /// They are not mentioned.
    Ignore,
}

/// What decoding found.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object, without unknown fields.
    pub value: Value,
    /// Unknown and duplicate fields in the order of the document, such as `unknown field "spec.foo"`.
    pub strict: Vec<String>,
    /// The texts of all raw fields in the order of the document; none of an object that was no text.
    pub raws: Vec<RawText>,
    /// The lists and maps that were sent empty and are not in the object.
    pub empties: Vec<Empty>,
}

impl Decoded {
    /// The object and the warnings to send with it, or the error that strict validation gives.
    pub fn apply(self, mode: Mode) -> Result<(Value, Vec<String>), DecodeError> {
        match mode {
            Mode::Strict if !self.strict.is_empty() => Err(DecodeError::Strict(self.strict)),
            Mode::Strict | Mode::Ignore => Ok((self.value, Vec::new())),
            Mode::Warn => Ok((self.value, self.strict)),
        }
    }
}

/// Why a body is no object of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON.
    #[error("{0}")]
    Syntax(String),
    /// A value does not fit its field; the text is Go's.
    #[error("{0}")]
    Type(String),
    /// Strict validation met unknown or duplicate fields.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// A list or map that was sent without elements. It is stored and served like an absent one; upstream's validation sees
/// that it is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Empty {
    /// Where it was, as a JSON pointer.
    pub pointer: String,
    /// An empty list or map.
    pub value: Value,
}

/// A raw field as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct RawText {
    /// What it means.
    pub value: Value,
    /// How it is written, with the space between its tokens.
    pub text: String,
}
