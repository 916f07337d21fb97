//! What a decoder knows on its way through an object: where it is, and what it has found.

use allot_apimachinery::quote::quote;
use serde_json::{Map, Number, Value};

use super::outcome::{DecodeError, Decoded, RawText};
use super::{empties, number, scalar};
use crate::types::{Struct, Type};

/// The maximum number of unknown and duplicate fields that are reported for an object, as in upstream's decoder.
pub const MAX_STRICT: usize = 100;
/// The length of all paths that are composed for such reports. A key of a map may be as long as the body, and every
/// unknown field below it is reported with its whole path.
const MAX_STRICT_TEXT: usize = 4 << 20;

/// What is known while an object is decoded.
pub(super) struct Context<'t> {
    /// The text of the object, where it is read from one.
    pub(super) text: Option<&'t [u8]>,
    /// How many numbers were looked for in the text.
    searches: usize,
    /// Numbers without a type stay as they are sent: a patch sets them in an object with types.
    pub(super) keeps_numbers: bool,
    /// The path as strict errors print it.
    pub(super) path: String,
    /// The path as Go's type errors print it: JSON names of struct fields only.
    pub(super) fields: Vec<&'static str>,
    pub(super) structs: Vec<&'static Struct>,
    strict: Vec<String>,
    /// The length of the paths that were composed for them.
    strict_text: usize,
    /// Go keeps the first error, continues, and reports it at the end.
    error: Option<String>,
    /// The error is of a type with its own parser: Go stops there, and what it kept before is lost.
    stopped: bool,
    /// What a repeated field continues from: Go decodes a second object into the first one.
    pub(super) earlier: Option<Map<String, Value>>,
    /// Texts of raw fields, where an object is read from its text.
    pub(super) raws: Option<Vec<RawText>>,
    /// The object still has lists or maps that the encoder leaves out because they are empty.
    pub(super) has_empties: bool,
}

impl<'t> Context<'t> {
    pub(super) fn new() -> Self {
        Self {
            text: None,
            searches: 0,
            keeps_numbers: false,
            path: String::new(),
            fields: Vec::new(),
            structs: Vec::new(),
            strict: Vec::new(),
            strict_text: 0,
            error: None,
            stopped: false,
            earlier: None,
            raws: None,
            has_empties: false,
        }
    }

    pub(super) fn finish(
        self,
        mut value: Value,
        schema: Option<&'static Struct>,
    ) -> Result<Decoded, DecodeError> {
        if let Some(text) = self.error {
            return Err(DecodeError::Type(text));
        }
        let empties = match schema.filter(|_| self.has_empties) {
            Some(schema) => empties::take(&mut value, schema),
            None => Vec::new(),
        };
        Ok(Decoded {
            value,
            strict: self.strict,
            raws: self.raws.unwrap_or_default(),
            empties,
        })
    }

    pub(super) fn save(&mut self, text: impl FnOnce() -> String) {
        if self.error.is_none() {
            self.error = Some(text());
        }
    }

    /// As [`Context::save`], for a type with its own parser.
    pub(super) fn stop(&mut self, text: impl FnOnce() -> String) {
        if !self.stopped {
            self.error = Some(text());
            self.stopped = true;
        }
    }

    /// A number as the text of the object writes it; none where there is no text, or too much was looked for in it.
    pub(super) fn as_written(&mut self, number: &Number) -> Option<&'t str> {
        let text = self.text.filter(|_| self.searches < number::MAX_SEARCHES)?;
        self.searches += 1;
        number::as_written(text, number)
    }

    /// As [`Context::mismatch`], about a number that the type does not hold.
    pub(super) fn number_mismatch(&mut self, number: &Number, expected: &str, ty: Option<&Type>) {
        let written = self.as_written(number).map(str::to_owned);
        let written = written.unwrap_or_else(|| number.to_string());
        self.mismatch(&format!("number {written}"), expected, ty);
    }

    pub(super) fn mismatch(&mut self, found: &str, expected: &str, ty: Option<&Type>) {
        let text = match self.structs.last() {
            Some(structure) if !self.fields.is_empty() => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {expected}",
                structure.simple_name(),
                self.fields.join(".")
            ),
            _ => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
        };
        match ty.is_some_and(scalar::has_parser) {
            true => self.stop(|| text),
            false => self.save(|| text),
        }
    }

    pub(super) fn strict(&mut self, what: &str, key: &str) {
        if self.strict.len() >= MAX_STRICT || self.strict_text > MAX_STRICT_TEXT {
            return;
        }
        self.strict_text += self.path.len() + key.len();
        let path = if self.path.is_empty() {
            quote(key)
        } else {
            quote(&format!("{}.{key}", self.path))
        };
        let text = format!("{what} field {path}");
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    /// Runs `inner` with `.key` added to the path.
    pub(super) fn within<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let result = inner(self);
        self.path.truncate(length);
        result
    }
}
