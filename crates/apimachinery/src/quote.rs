//! Go's quoting of strings, as `%q` and `strconv.Quote` write them: error texts use it everywhere.

use std::fmt::Write;
use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// `text` in double quotes, escaped as Go's `strconv.Quote` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{07}' => out.push_str("\\a"),
            '\u{08}' => out.push_str("\\b"),
            '\u{0c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0b}' => out.push_str("\\v"),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x80 => push(&mut out, format_args!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => push(&mut out, format_args!("\\u{:04x}", c as u32)),
            c => push(&mut out, format_args!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

fn push(out: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(args);
}

/// Whether Go prints `c` unescaped (letters, marks, numbers, punctuation, symbols and the ASCII space).
pub fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() || c.is_control() || c.is_whitespace() => false,
        c => c.is_alphanumeric() || !c.escape_debug().to_string().starts_with("\\u{") || is_mark(c),
    }
}

/// Combining marks are escaped by Rust's debug form but printed by Go.
fn is_mark(c: char) -> bool {
    matches!(c as u32, 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x610..=0x61a | 0x64b..=0x65f
        | 0x900..=0x903 | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f
        | 0xe0100..=0xe01ef)
}

/// `value` as compact JSON in the format of Go's `json.Marshal`: `<`, `>` and `&` are escaped, and a number with a
/// fraction has its shortest form.
pub fn go_json(value: &serde_json::Value) -> String {
    String::from_utf8(go_json_bytes(value)).unwrap_or_default()
}

/// As [`go_json`], for the body of a request.
pub fn go_json_bytes(value: &serde_json::Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, GoFormatter);
    // Writing to a vector cannot fail, and the keys of a value are text.
    let _ = value.serialize(&mut serializer);
    out
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (before, after) = rest.split_at(at);
            let mut after = after.chars();
            let escaped = after.next().map_or(0, |c| c as u32);
            write!(to, "{before}\\u{escaped:04x}")?;
            rest = after.as_str();
        }
        to.write_all(rest.as_bytes())
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        write_float(to, value)
    }
}

/// Writes `value` as compact JSON with the numbers of Go's `json.Marshal`; no character is escaped that JSON does not require.
///
/// # Errors
/// Those of the writer.
pub fn write_json<T: ?Sized + Serialize>(to: impl io::Write, value: &T) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(to, GoNumbers))
}

struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        write_float(to, value)
    }
}

/// A number with its shortest digits, and with an exponent only where it is very small or large.
fn write_float<W: ?Sized + io::Write>(to: &mut W, value: f64) -> io::Result<()> {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        // Go prints the sign of a positive exponent.
        let positive = text.find('e').filter(|at| !text[at + 1..].starts_with('-'));
        return match positive {
            Some(at) => write!(to, "{}e+{}", &text[..at], &text[at + 1..]),
            None => to.write_all(text.as_bytes()),
        };
    }
    write!(to, "{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(quote("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
        assert_eq!(quote("\u{200b}\u{1f600}"), "\"\\u200b\u{1f600}\"");
    }

    #[test]
    fn json_escapes_html() {
        assert_eq!(
            go_json(&serde_json::json!({"a": "<&>"})),
            r#"{"a":"\u003c\u0026\u003e"}"#
        );
    }

    #[test]
    fn json_numbers_are_as_short_as_in_go() {
        let check = |number: &str, wanted: &str| {
            let value: serde_json::Value = serde_json::from_str(number).unwrap();
            assert_eq!(go_json(&value), wanted);
        };
        check("1.0", "1");
        check("-0.0", "-0");
        check("1.50", "1.5");
        check("100000000000000000000.0", "100000000000000000000");
        check("1e21", "1e+21");
        check("-1.5e300", "-1.5e+300");
        check("0.000001", "0.000001");
        check("0.0000001", "1e-7");
        check("9223372036854775807", "9223372036854775807");
    }

    #[test]
    fn json_without_escapes_has_the_same_numbers() {
        let value: serde_json::Value =
            serde_json::from_str(r#"{"a":[1e20,1.50,2],"b":"<"}"#).unwrap();
        let mut out = Vec::new();
        write_json(&mut out, &value).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"a":[100000000000000000000,1.5,2],"b":"<"}"#
        );
    }

    #[test]
    fn json_escapes_are_as_short_as_in_go() {
        let value = serde_json::json!("\u{8}\u{c}\u{1}\n\"\u{2028}<");
        let wanted = r#""\b\f\u0001\n\"\u2028\u003c""#;
        assert_eq!(go_json(&value), wanted);
    }
}
