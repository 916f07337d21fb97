//! Protobuf, read into JSON text: that of upstream's encoder, except for the order of members.

use std::fmt::Write as _;
use std::ops::Range;

use allot_apimachinery::lean::Keep;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};
use serde::de::IgnoredAny;

use super::{Envelope, Error, MAX_DEPTH, Wire, next};
use crate::types::messages::{Message, Slot};
use crate::types::{self, Field, Struct, Type};

/// The type of the schemas of definitions.
pub(super) const SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// An object in JSON.
#[derive(Debug)]
pub struct Json<'a> {
    /// The object, with its kind and version.
    pub text: String,
    /// The values of its raw fields, as they are in the text.
    pub raws: Vec<&'a str>,
}

/// The object in a body, without the fields that `keep` excludes.
///
/// # Errors
/// See [`Error`].
pub fn to_json(body: &[u8], keep: Keep) -> Result<Json<'_>, Error> {
    let envelope = Envelope::read(body)?;
    let schema = envelope.schema()?;
    let mut reader = Reader {
        keep,
        out: String::with_capacity(body.len() * 2),
        raws: Vec::new(),
        fields: Vec::new(),
    };
    reader.out.push_str("{\"kind\":");
    quote(&mut reader.out, &envelope.kind);
    reader.out.push_str(",\"apiVersion\":");
    quote(&mut reader.out, &envelope.api_version);
    reader.members(envelope.message, schema.message(), &mut false, 0)?;
    reader.out.push('}');
    Ok(Json {
        text: reader.out,
        raws: reader.raws,
    })
}

/// The type of a watch event, and the body with its object.
///
/// # Errors
/// See [`Error`].
pub fn event(mut message: &[u8]) -> Result<(&str, &[u8]), Error> {
    let (mut kind, mut object) = (&b""[..], &b""[..]);
    while !message.is_empty() {
        match next(&mut message)? {
            (1, Wire::Bytes(bytes)) => kind = bytes,
            (2, Wire::Bytes(bytes)) => object = inner(bytes, 1)?,
            _ => {}
        }
    }
    let kind = std::str::from_utf8(kind).map_err(|_| Error::Truncated)?;
    Ok((kind, object))
}

struct Reader<'a> {
    keep: Keep,
    out: String,
    raws: Vec<&'a str>,
    /// The fields of the messages that are being read, those of inner ones last.
    fields: Vec<(u64, Wire<'a>)>,
}

impl<'a> Reader<'a> {
    /// The members of an object; `empty` until it has one.
    fn members(
        &mut self,
        mut bytes: &'a [u8],
        message: &'static Message,
        empty: &mut bool,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let start = self.fields.len();
        while !bytes.is_empty() {
            self.fields.push(next(&mut bytes)?);
        }
        let here = &mut self.fields[start..];
        if !here.is_sorted_by_key(|(number, _)| *number) {
            here.sort_by_key(|(number, _)| *number);
        }
        let (mut at, end) = (start, self.fields.len());
        while at < end {
            let (number, _) = self.fields[at];
            let same = self.fields[at..end].iter().take_while(|it| it.0 == number);
            let same = at..at + same.count();
            at = same.end;
            match message.slot(number) {
                Some(Slot::Field(field)) if (self.keep)(message.of, field.name) => {
                    self.field(same, field, empty, depth)?;
                }
                Some(Slot::Part(part)) => {
                    if let Wire::Bytes(bytes) = self.fields[same.end - 1].1 {
                        self.members(bytes, part, empty, depth + 1)?;
                    }
                }
                _ => {}
            }
        }
        self.fields.truncate(start);
        Ok(())
    }

    /// A field, from its occurrences.
    fn field(
        &mut self,
        all: Range<usize>,
        field: &'static Field,
        empty: &mut bool,
        depth: usize,
    ) -> Result<(), Error> {
        let mark = self.out.len();
        if !*empty {
            self.out.push(',');
        }
        quote(&mut self.out, field.name);
        self.out.push(':');
        match &field.ty {
            Type::List(element) => {
                self.out.push('[');
                for at in all.clone() {
                    if at > all.start {
                        self.out.push(',');
                    }
                    self.value(self.fields[at].1, element, depth)?;
                }
                self.out.push(']');
            }
            Type::Map(element) => {
                self.out.push('{');
                for at in all.clone() {
                    if at > all.start {
                        self.out.push(',');
                    }
                    self.entry(self.fields[at].1, element, depth)?;
                }
                self.out.push('}');
            }
            ty => {
                let zero = self.value(self.fields[all.end - 1].1, ty, depth)?;
                // The message has it nevertheless.
                let omitted = field.omit_zero || field.omit_empty && !ty.is_struct();
                if zero && omitted && !field.pointer {
                    self.out.truncate(mark);
                    return Ok(());
                }
            }
        }
        *empty = false;
        Ok(())
    }

    fn entry(&mut self, wire: Wire<'a>, element: &'static Type, depth: usize) -> Result<(), Error> {
        let Wire::Bytes(mut rest) = wire else {
            return Err(Error::Truncated);
        };
        let (mut key, mut item) = (&b""[..], None);
        while !rest.is_empty() {
            match next(&mut rest)? {
                (1, Wire::Bytes(bytes)) => key = bytes,
                (2, wire) => item = Some(wire),
                _ => {}
            }
        }
        quote(&mut self.out, &String::from_utf8_lossy(key));
        self.out.push(':');
        // A zero value may be left out.
        match (item, element) {
            (Some(item), _) => {
                self.value(item, element, depth)?;
            }
            (None, Type::String | Type::Bytes) => self.out.push_str("\"\""),
            (None, Type::Bool) => self.out.push_str("false"),
            (None, Type::Int32 | Type::Int64) => self.out.push('0'),
            (None, _) => self.out.push_str("null"),
        }
        Ok(())
    }

    /// Writes a value; true if it is the zero value.
    fn value(&mut self, wire: Wire<'a>, ty: &'static Type, depth: usize) -> Result<bool, Error> {
        let bytes = match (wire, ty) {
            (Wire::Varint(number), Type::Bool) => {
                let text = if number == 0 { "false" } else { "true" };
                self.out.push_str(text);
                return Ok(number == 0);
            }
            (Wire::Varint(number), _) => {
                // Negative numbers are sign-extended to 64 bits.
                return self.number(number as i64);
            }
            (Wire::Fixed64(bits), _) => return Ok(self.float(f64::from_bits(bits))),
            (Wire::Fixed32(bits), _) => return Ok(self.float(f32::from_bits(bits).into())),
            (Wire::Bytes(bytes), _) => bytes,
        };
        match ty {
            Type::Struct(id) => self.object(bytes, id.get(), depth),
            Type::Bytes => {
                self.out.push('"');
                STANDARD.encode_string(bytes, &mut self.out);
                self.out.push('"');
                Ok(bytes.is_empty())
            }
            Type::Time | Type::MicroTime => self.time(bytes, *ty == Type::MicroTime),
            Type::Duration => {
                let nanoseconds = numbers(bytes)?.0;
                let seconds = nanoseconds as f64 / 1e9;
                // Writing to a string does not fail.
                let _ = write!(self.out, "\"{seconds}s\"");
                Ok(nanoseconds == 0)
            }
            Type::Quantity => {
                let text = inner(bytes, 1)?;
                self.text(text);
                Ok(text.is_empty())
            }
            Type::IntOrString => match numbers(bytes)? {
                (1, _) => {
                    self.text(inner(bytes, 3)?);
                    Ok(false)
                }
                (_, number) => self.number(number),
            },
            Type::Raw | Type::Json => {
                let text = std::str::from_utf8(inner(bytes, 1)?).unwrap_or_default();
                let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
                if !is_json || text.trim() == "null" {
                    self.out.push_str("null");
                    return Ok(true);
                }
                self.out.push_str(text);
                if *ty == Type::Raw {
                    self.raws.push(text);
                }
                Ok(false)
            }
            Type::SchemaOrBool | Type::SchemaOrArray => self.definition(bytes, ty, depth),
            Type::List(element) => self.list(bytes, element, depth),
            Type::Map(_) => {
                self.out.push_str("null");
                Ok(true)
            }
            _ => {
                self.text(bytes);
                Ok(bytes.is_empty())
            }
        }
    }

    /// A message whose only field is a list; true if that is empty.
    fn list(
        &mut self,
        mut bytes: &'a [u8],
        element: &'static Type,
        depth: usize,
    ) -> Result<bool, Error> {
        let mut empty = true;
        self.out.push('[');
        while !bytes.is_empty() {
            let (number, wire) = next(&mut bytes)?;
            if number != 1 {
                continue;
            }
            if !std::mem::take(&mut empty) {
                self.out.push(',');
            }
            self.value(wire, element, depth + 1)?;
        }
        self.out.push(']');
        Ok(empty)
    }

    fn object(
        &mut self,
        bytes: &'a [u8],
        schema: &'static Struct,
        depth: usize,
    ) -> Result<bool, Error> {
        let mut empty = true;
        match &schema.alias {
            Some(Type::List(element)) => return self.list(bytes, element, depth),
            Some(alias) => return self.value(Wire::Bytes(bytes), alias, depth + 1),
            None => {
                self.out.push('{');
                self.members(bytes, schema.message(), &mut empty, depth + 1)?;
                self.out.push('}');
            }
        }
        Ok(empty)
    }

    /// The schema of a definition where other types are allowed as well.
    fn definition(&mut self, mut bytes: &'a [u8], ty: &Type, depth: usize) -> Result<bool, Error> {
        let schema = types::by_name(SCHEMA).ok_or(Error::Truncated)?.get();
        let (mut allowed, mut single, mut several) = (false, None, Vec::new());
        while !bytes.is_empty() {
            match next(&mut bytes)? {
                (1, Wire::Varint(value)) => allowed = value != 0,
                (2, Wire::Bytes(bytes)) if *ty == Type::SchemaOrArray => several.push(bytes),
                (_, Wire::Bytes(bytes)) => single = Some(bytes),
                _ => {}
            }
        }
        match single {
            Some(bytes) => {
                self.object(bytes, schema, depth + 1)?;
            }
            None if *ty == Type::SchemaOrBool => {
                self.out.push_str(if allowed { "true" } else { "false" });
            }
            None => {
                self.out.push('[');
                for (at, bytes) in several.into_iter().enumerate() {
                    if at > 0 {
                        self.out.push(',');
                    }
                    self.object(bytes, schema, depth + 1)?;
                }
                self.out.push(']');
            }
        }
        Ok(false)
    }

    fn number(&mut self, number: i64) -> Result<bool, Error> {
        let _ = write!(self.out, "{number}");
        Ok(number == 0)
    }

    fn float(&mut self, number: f64) -> bool {
        match serde_json::Number::from_f64(number) {
            Some(number) => self.out.push_str(&number.to_string()),
            None => self.out.push_str("null"),
        }
        number == 0.0
    }

    fn text(&mut self, bytes: &[u8]) {
        quote(&mut self.out, &String::from_utf8_lossy(bytes));
    }

    fn time(&mut self, bytes: &[u8], micro: bool) -> Result<bool, Error> {
        let (seconds, nanoseconds) = numbers(bytes)?;
        if (seconds, nanoseconds) == (0, 0) {
            self.out.push_str("null");
            return Ok(true);
        }
        let time = utc(seconds, nanoseconds);
        let format = match micro {
            true => "\"%Y-%m-%dT%H:%M:%S%.6fZ\"",
            false => "\"%Y-%m-%dT%H:%M:%SZ\"",
        };
        let _ = write!(self.out, "{}", time.strftime(format));
        Ok(false)
    }
}

/// A time since 1970; of those with a year of four digits the nearest one.
fn utc(seconds: i64, nanoseconds: i64) -> DateTime {
    let nanoseconds = i64::from(i32::try_from(nanoseconds).unwrap_or_default());
    datetime(1970, 1, 1, 0, 0, 0, 0)
        .saturating_add(SignedDuration::from_secs(seconds))
        .saturating_add(SignedDuration::from_nanos(nanoseconds))
        .max(datetime(0, 1, 1, 0, 0, 0, 0))
}

/// Writes a string of JSON.
fn quote(out: &mut String, text: &str) {
    let special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().any(special) {
        // A string can be written.
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
        return;
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// A bytes field of a wrapper message; empty if there is none.
fn inner(mut bytes: &[u8], wanted: u64) -> Result<&[u8], Error> {
    while !bytes.is_empty() {
        match next(&mut bytes)? {
            (number, Wire::Bytes(bytes)) if number == wanted => return Ok(bytes),
            _ => {}
        }
    }
    Ok(&[])
}

/// The first two numbers of a message.
fn numbers(mut bytes: &[u8]) -> Result<(i64, i64), Error> {
    let mut found = (0, 0);
    while !bytes.is_empty() {
        match next(&mut bytes)? {
            (1, Wire::Varint(value)) => found.0 = value as i64,
            (2, Wire::Varint(value)) => found.1 = value as i64,
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: such a time became null, with which a list cannot be read where a time is demanded.
    #[test]
    fn regression_times_of_every_second_have_a_text() {
        for (seconds, nanoseconds, expected) in [
            (0, 1, "1970-01-01T00:00:00"),
            (253_402_300_799, 999_999_999, "9999-12-31T23:59:59"),
            (253_402_300_800, 0, "9999-12-31T23:59:59"),
            (i64::MAX, i64::from(i32::MAX), "9999-12-31T23:59:59"),
            (-62_167_219_200, 0, "0000-01-01T00:00:00"),
            (-62_167_219_201, 0, "0000-01-01T00:00:00"),
            (i64::MIN, i64::MIN, "0000-01-01T00:00:00"),
        ] {
            let text = utc(seconds, nanoseconds).strftime("%Y-%m-%dT%H:%M:%S");
            assert_eq!(text.to_string(), expected, "{seconds}");
        }
    }
}
