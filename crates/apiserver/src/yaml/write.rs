//! Answers in YAML, as the library of kube-apiserver writes them: which quotes a text gets, and where it is folded.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::Value;

/// Column from which a text goes on in the next line.
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

/// One object as it stands in a list that is not indented.
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
        value => {
            let _ = write!(out, "{value}");
        }
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

/// The styles that can hold a text.
struct Allowed {
    plain: bool,
    single: bool,
    literal: bool,
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

impl Allowed {
    fn of(found: &str) -> Self {
        let chars: Vec<char> = found.chars().collect();
        let next_is_space = |index: usize| {
            chars
                .get(index + 1)
                .is_none_or(|c| matches!(c, ' ' | '\t') || is_break(*c))
        };
        let mut indicators = found.starts_with("---") || found.starts_with("...");
        let (mut special, mut breaks, mut space_break, mut break_space) =
            (false, false, false, false);
        for (index, c) in chars.iter().copied().enumerate() {
            let before = index.checked_sub(1).map(|index| chars[index]);
            indicators |= match (index, c) {
                (
                    0,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                    | '%' | '@' | '`',
                ) => true,
                (0, '?' | '-') | (_, ':') => next_is_space(index),
                (1.., '#') => before.is_some_and(|c| matches!(c, ' ' | '\t') || is_break(c)),
                _ => false,
            };
            special |= !is_printable(c);
            breaks |= is_break(c);
            space_break |= is_break(c) && before == Some(' ');
            break_space |= c == ' ' && before.is_some_and(is_break);
        }
        let ends = [chars.first(), chars.last()];
        let edge = |wanted: &dyn Fn(char) -> bool| ends.iter().flatten().any(|c| wanted(**c));
        let trailing_space = chars.last() == Some(&' ');
        let odd = space_break || special;
        Self {
            plain: !(edge(&|c| c == ' ' || is_break(c))
                || break_space
                || odd
                || breaks
                || indicators),
            single: !(break_space || odd),
            literal: !(trailing_space || odd),
        }
    }
}

/// Whether the text, without quotes, is read as a text: it is no number, date, boolean or null.
fn reads_as_text(found: &str) -> bool {
    const WORDS: [&str; 11] = [
        "", "~", "null", "true", "false", "y", "n", "yes", "no", "on", "off",
    ];
    let lower = found.to_ascii_lowercase();
    let one_case = found == lower
        || found == found.to_ascii_uppercase()
        || found
            .get(..1)
            .is_some_and(|first| first == first.to_ascii_uppercase())
            && found.get(1..) == lower.get(1..);
    if WORDS.contains(&lower.as_str()) && one_case {
        return false;
    }
    let bare = found.strip_prefix(['+', '-']).unwrap_or(found);
    let bare_lower = bare.to_ascii_lowercase();
    if bare_lower == ".inf" || lower == ".nan" {
        return false;
    }
    !(is_number(bare, found) || is_sexagesimal(bare) || is_time(found))
}

fn is_number(bare: &str, found: &str) -> bool {
    if !found.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return false;
    }
    let plain: String = bare.chars().filter(|c| *c != '_').collect();
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)] {
        if let Some(digits) = plain.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).is_ok();
        }
    }
    let (mantissa, exponent) = match plain.find(['e', 'E']) {
        Some(at) => (&plain[..at], Some(&plain[at + 1..])),
        None => (plain.as_str(), None),
    };
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    has_digits && digits(whole) && digits(fraction) && fits
}

/// A number of base 60, as YAML 1.1 has it: `1:20`.
fn is_sexagesimal(bare: &str) -> bool {
    let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit() || it == b'_');
    let mut count = 0;
    let small = parts.all(|part| {
        count += 1;
        part.len() <= 2 && part.parse::<u8>().is_ok_and(|part| part < 60)
    });
    small
        && count > 0
        && first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
}

/// A date, or a date with a time.
fn is_time(found: &str) -> bool {
    let Some((date, time)) =
        found.split_at_checked(found.find(['T', 't', ' ']).unwrap_or(found.len()))
    else {
        return false;
    };
    let parts: Vec<&str> = date.split('-').collect();
    let number = |text: &str, most: u32| {
        text.len() <= 2 && text.parse::<u32>().is_ok_and(|it| (1..=most).contains(&it))
    };
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let is_date = year.len() == 4
        && year.bytes().all(|it| it.is_ascii_digit())
        && number(month, 12)
        && number(day, 31);
    is_date
        && (time.is_empty()
            || time[1..].starts_with(|c: char| c.is_ascii_digit()) && time.contains(':'))
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
            // A space at the beginning of a line is told from the fold.
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
