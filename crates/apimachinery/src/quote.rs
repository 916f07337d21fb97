//! Go's quoting of strings, as `%q` and `strconv.Quote` write them: error texts use it everywhere.

use std::fmt::Write;

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

/// Whether Go prints `c` as it is (letters, marks, numbers, punctuation, symbols and the ASCII space).
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

/// `value` as compact JSON the way Go's `json.Marshal` writes it: `<`, `>` and `&` are escaped.
pub fn go_json(value: &serde_json::Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                push(&mut out, format_args!("\\u{:04x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out
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
}
