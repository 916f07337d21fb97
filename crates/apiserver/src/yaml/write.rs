//! Answers in YAML, as the library of kube-apiserver writes them: which quotes a text gets, and where it is folded.

use std::cmp::Ordering;
use std::fmt::Write as _;

use allot_apimachinery::strconv::format_float;
use serde_json::Value;

mod style;

use style::{Allowed, is_break, is_printable, reads_as_text};

/// Column from which a text continues on the next line.
const WIDTH: usize = 80;
/// How much deeper a level is.
const STEP: usize = 2;

/// The document.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut out, map, 0, false),
        Value::Array(items) if !items.is_empty() => sequence(&mut out, items, 0),
        value => {
            scalar(&mut out, value, STEP);
            out.push('\n');
        }
    }
    out
}

/// An object as an item of a list that is not indented.
pub(crate) fn write_item(item: &Value) -> String {
    let mut out = String::new();
    sequence(&mut out, std::slice::from_ref(item), 0);
    out
}

fn indent(out: &mut String, by: usize) {
    out.extend(std::iter::repeat_n(' ', by));
}

/// The members of an object; `inline` where the first one follows the dash of a list.
fn mapping(out: &mut String, map: &serde_json::Map<String, Value>, at: usize, inline: bool) {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by(|(one, _), (other, _)| natural(one, other));
    for (index, (key, value)) in members.into_iter().enumerate() {
        if index > 0 || !inline {
            indent(out, at);
        }
        text(out, key, at + STEP, true);
        out.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push('\n');
                mapping(out, map, at + STEP, false);
            }
            // Lists are not deeper than what they belong to.
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                sequence(out, items, at);
            }
            value => {
                out.push(' ');
                scalar(out, value, at + STEP);
                out.push('\n');
            }
        }
    }
}

/// The order of keys: numbers in them by their value, letters after all else.
fn natural(one: &str, other: &str) -> Ordering {
    let mut before = None;
    let (mut one, mut other) = (one.chars(), other.chars());
    // Up to the first character that differs; what follows are the rests from there.
    let (a, b, one, other) = loop {
        let (rest, other_rest) = (one.as_str(), other.as_str());
        match (one.next(), other.next()) {
            (Some(a), Some(b)) if a == b => before = Some(a),
            (Some(a), Some(b)) => break (a, b, rest, other_rest),
            (a, b) => return a.is_some().cmp(&b.is_some()),
        }
    };
    let in_number = before.is_some_and(|c| c.is_ascii_digit());
    match (a.is_alphabetic(), b.is_alphabetic()) {
        (true, true) => return a.cmp(&b),
        // The end of a number comes before more of it.
        (true, false) if in_number => return Ordering::Less,
        (false, true) if in_number => return Ordering::Greater,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Within a number the longer rest is the larger one; else leading zeros do not count.
    let digits = |text: &'_ str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (mine, theirs) = (digits(one), digits(other));
    let zeros = |text: &str, length: usize| match in_number {
        true => 0,
        false => text[..length].bytes().take_while(|it| *it == b'0').count(),
    };
    let (x, y) = (
        &one[zeros(one, mine)..mine],
        &other[zeros(other, theirs)..theirs],
    );
    x.len()
        .cmp(&y.len())
        .then_with(|| x.cmp(y))
        .then(mine.cmp(&theirs))
        .then(a.cmp(&b))
}

fn sequence(out: &mut String, items: &[Value], at: usize) {
    for item in items {
        indent(out, at);
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => mapping(out, map, at + STEP, true),
            Value::Array(items) if !items.is_empty() => {
                let mut inner = String::new();
                sequence(&mut inner, items, at + STEP);
                out.push_str(inner.trim_start());
            }
            value => {
                scalar(out, value, at + STEP);
                out.push('\n');
            }
        }
    }
}

fn scalar(out: &mut String, value: &Value, at: usize) {
    match value {
        Value::String(found) => text(out, found, at, false),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::Number(number) => out.push_str(&self::number(number)),
        value => {
            let _ = write!(out, "{value}");
        }
    }
}

/// A number. The library has read it as JSON, where a float that is whole looks like an integer, unless it is very large.
fn number(number: &serde_json::Number) -> String {
    let text = match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) => float.to_string(),
        None => return number.to_string(),
    };
    match text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
        true => text,
        false => format_float(number.as_f64().unwrap_or_default()),
    }
}

/// A text, going on at column `at` where it is folded; keys are not.
fn text(out: &mut String, found: &str, at: usize, is_key: bool) {
    let allowed = Allowed::of(found);
    if found.contains('\n') && !is_key && allowed.literal {
        literal(out, found, at);
    } else if !found.contains('\n') && reads_as_text(found) {
        match (allowed.plain, allowed.single) {
            (true, _) => plain(out, found, at, is_key),
            (false, true) => single(out, found, at, is_key),
            (false, false) => double(out, found, at, is_key),
        }
    } else {
        double(out, found, at, is_key);
    }
}

/// Column of the end of what is written.
fn column(out: &str) -> usize {
    out.rsplit('\n').next().unwrap_or_default().chars().count()
}

/// Writes the characters of a text with `put`; a single space beyond the width becomes the end of a line. `edges`: also the first and
/// last character.
fn folded(
    out: &mut String,
    found: &str,
    (at, is_key, edges): (usize, bool, bool),
    mut put: impl FnMut(&mut String, char),
    folds_before: impl Fn(Option<char>) -> bool,
) {
    let mut chars = found.chars().enumerate().peekable();
    let last = found.chars().count().saturating_sub(1);
    let (mut column, mut spaces) = (column(out), false);
    while let Some((index, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let inside = edges || index > 0 && index < last;
        let long = !is_key && !spaces && column > WIDTH && inside;
        if c == ' ' && long && folds_before(next) {
            out.push('\n');
            indent(out, at);
            column = at;
            // A space at the beginning of a line is escaped to distinguish it from the fold.
            if next == Some(' ') {
                out.push('\\');
                column += 1;
            }
        } else {
            let length = out.len();
            put(out, c);
            column += out[length..].chars().count();
        }
        spaces = c == ' ';
    }
}

fn plain(out: &mut String, found: &str, at: usize, is_key: bool) {
    let place = (at, is_key, true);
    folded(out, found, place, String::push, |next| next != Some(' '));
}

fn single(out: &mut String, found: &str, at: usize, is_key: bool) {
    out.push('\'');
    let put = |out: &mut String, c: char| {
        if c == '\'' {
            out.push('\'');
        }
        out.push(c);
    };
    let place = (at, is_key, false);
    folded(out, found, place, put, |next| next != Some(' '));
    out.push('\'');
}

fn double(out: &mut String, found: &str, at: usize, is_key: bool) {
    out.push('"');
    folded(out, found, (at, is_key, false), escaped, |_| true);
    out.push('"');
}

fn escaped(out: &mut String, c: char) {
    if is_printable(c) && !is_break(c) && !matches!(c, '"' | '\\') {
        return out.push(c);
    }
    out.push('\\');
    let name = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        c => {
            let code = u32::from(c);
            let _ = match code {
                0..=0xff => write!(out, "x{code:02X}"),
                0x100..=0xffff => write!(out, "u{code:04X}"),
                _ => write!(out, "U{code:08X}"),
            };
            return;
        }
    };
    out.push(name);
}

fn literal(out: &mut String, found: &str, at: usize) {
    out.push('|');
    if found.starts_with([' ', '\n']) {
        let _ = write!(out, "{STEP}");
    }
    if !found.ends_with('\n') {
        out.push('-');
    } else if found == "\n" || found.ends_with("\n\n") {
        out.push('+');
    }
    for line in found.strip_suffix('\n').unwrap_or(found).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, at);
            out.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests;
