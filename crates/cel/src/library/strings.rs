//! Functions on strings (strings library, version 2).

use super::{Args, Outcome, int, strings, text};
use crate::{
    library::Function,
    value::{Fault, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "contains" => |args| Ok(Value::Bool(text(&args[0])?.contains(text(&args[1])?))),
        "startsWith" => |args| Ok(Value::Bool(text(&args[0])?.starts_with(text(&args[1])?))),
        "endsWith" => |args| Ok(Value::Bool(text(&args[0])?.ends_with(text(&args[1])?))),
        "charAt" => char_at,
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "lowerAscii" => |args| Ok(Value::string(text(&args[0])?.to_ascii_lowercase())),
        "upperAscii" => |args| Ok(Value::string(text(&args[0])?.to_ascii_uppercase())),
        "trim" => |args| Ok(Value::string(text(&args[0])?.trim_matches(is_go_space))),
        "replace" => replace,
        "split" => split,
        "join" => join,
        "substring" => substring,
        "strings.quote" => |args| Ok(Value::string(quote(text(&args[0])?))),
        "format" => |args| match &args[1] {
            Value::List(list) => super::format::format(text(&args[0])?, list).map(Value::string),
            _ => Err(Fault::NoOverload),
        },
        _ => return None,
    })
}

fn is_go_space(c: char) -> bool {
    c.is_whitespace()
}

fn out_of_range(index: i64) -> Fault {
    Fault::new(format!("index out of range: {index}"))
}

fn char_at<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (text, index) = (text(&args[0])?, int(&args[1])?);
    let position = usize::try_from(index).map_err(|_| out_of_range(index))?;
    match text.chars().nth(position) {
        Some(c) => Ok(Value::string(c.to_string())),
        None if position == text.chars().count() => Ok(Value::str("")),
        None => Err(out_of_range(index)),
    }
}

fn index_of<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    if let (Value::List(list), [_, element]) = (&args[0], args) {
        let found = list.iter().position(|value| value.is(element));
        return Ok(Value::Int(found.map_or(-1, |index| index as i64)));
    }
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let offset = args.get(2).map_or(Ok(0), int)?;
    if part.is_empty() {
        return Ok(Value::Int(offset));
    }
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    let Some((bytes, _)) = text.char_indices().nth(start) else {
        return Ok(Value::Int(-1));
    };
    let found = text[bytes..]
        .find(part)
        .map(|at| start + text[bytes..bytes + at].chars().count());
    Ok(Value::Int(found.map_or(-1, |index| index as i64)))
}

fn last_index_of<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    if let (Value::List(list), [_, element]) = (&args[0], args) {
        let found = list.iter().rev().position(|value| value.is(element));
        return Ok(Value::Int(
            found.map_or(-1, |index| (list.len() - 1 - index) as i64),
        ));
    }
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let length = text.chars().count();
    let Some(offset) = args.get(2).map(int).transpose()? else {
        if part.is_empty() {
            return Ok(Value::Int(length as i64));
        }
        let found = text.rfind(part).map(|at| text[..at].chars().count());
        return Ok(Value::Int(found.map_or(-1, |index| index as i64)));
    };
    if part.is_empty() {
        return Ok(Value::Int(offset));
    }
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if start >= length {
        return Ok(Value::Int(-1));
    }
    // The part may begin at the offset at the latest.
    let end = text
        .char_indices()
        .nth(start)
        .map_or(text.len(), |(at, _)| at + part.len())
        .min(text.len());
    let found = text[..text.ceil_char_boundary(end)]
        .rfind(part)
        .map(|at| text[..at].chars().count())
        .filter(|index| *index <= start);
    Ok(Value::Int(found.map_or(-1, |index| index as i64)))
}

fn replace<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (text, from, to) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    let limit = args.get(3).map_or(Ok(-1), int)?;
    Ok(Value::string(match usize::try_from(limit) {
        Ok(limit) => text.replacen(from, to, limit),
        Err(_) => text.replace(from, to),
    }))
}

fn split<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (text, separator) = (text(&args[0])?, text(&args[1])?);
    let limit = args.get(2).map_or(Ok(-1), int)?;
    let Ok(limit) = usize::try_from(limit) else {
        return Ok(split_all(text, separator, usize::MAX));
    };
    Ok(if limit == 0 {
        strings(Vec::<String>::new())
    } else {
        split_all(text, separator, limit)
    })
}

fn split_all<'a>(text: &str, separator: &str, limit: usize) -> Value<'a> {
    if !separator.is_empty() {
        return strings(text.splitn(limit, separator));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (first, tail) = rest.split_at(c.len_utf8());
        parts.push(first);
        rest = tail;
    }
    strings(parts)
}

fn join<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let Value::List(list) = &args[0] else {
        return Err(Fault::NoOverload);
    };
    let separator = args.get(1).map_or(Ok(""), text)?;
    let mut out = String::new();
    for (i, element) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        match element.as_str() {
            Some(text) => out.push_str(text),
            None => return Err(Fault::new(format!("join: invalid input: {element}"))),
        }
    }
    Ok(Value::string(out))
}

fn substring<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (text, start) = (text(&args[0])?, int(&args[1])?);
    let length = text.chars().count() as i64;
    let end = args.get(2).map(int).transpose()?;
    if let Some(end) = end
        && start > end
    {
        return Err(Fault::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let end = end.unwrap_or(length);
    for index in [start, end] {
        if !(0..=length).contains(&index) {
            return Err(out_of_range(index));
        }
    }
    let part: String = text
        .chars()
        .skip(start as usize)
        .take((end - start) as usize)
        .collect();
    Ok(Value::string(part))
}

/// The text as a CEL string literal.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
