//! String formats and patterns.

use std::sync::OnceLock;

use base64::Engine as _;
use parking_lot::Mutex;
use regex::Regex;
use rustc_hash::FxHashMap;

/// Whether the text matches a pattern anywhere. A pattern that cannot be compiled matches nothing.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: OnceLock<Mutex<FxHashMap<String, Option<Regex>>>> = OnceLock::new();
    let mut compiled = COMPILED.get_or_init(Mutex::default).lock();
    if compiled.len() > 4096 {
        // Patterns come from definitions that users write; they must not grow without bound.
        compiled.clear();
    }
    compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| {
            regex::RegexBuilder::new(pattern)
                .size_limit(1 << 20)
                .build()
                .ok()
        })
        .as_ref()
        .is_some_and(|regex| regex.is_match(text))
}

/// Whether the text has the format; formats that are not known are not checked.
pub(super) fn check(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text),
        "byte" => base64::engine::general_purpose::STANDARD
            .decode(text)
            .is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => matches(
            r"^([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){0,2})$|^([0-9A-Fa-f]{4}\.){2,3}[0-9A-Fa-f]{4}$",
            text,
        ),
        "uuid" => matches(
            r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            text,
        ),
        "uuid3" => matches(
            r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$",
            text,
        ),
        "uuid4" => matches(
            r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            text,
        ),
        "uuid5" => matches(
            r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$",
            text,
        ),
        "hostname" => {
            text.len() <= 255
                && matches(
                    r"^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*\.?$",
                    text,
                )
        }
        "email" => matches(r#"^[^\s@<>(),;:\\"\[\]]+@[^\s@]+\.?[^\s@]*$"#, text),
        "uri" => matches(r"^([a-zA-Z][a-zA-Z0-9+.-]*:[^\s]*|/[^\s]*)$", text),
        "hexcolor" => matches("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", text),
        "rgbcolor" => matches(
            r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
            text,
        ),
        "bsonobjectid" => matches("^[0-9a-fA-F]{24}$", text),
        "ssn" => matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text),
        "creditcard" => credit_card(text),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        _ => true,
    }
}

fn date_time(text: &str) -> bool {
    let form = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$";
    matches(form, text)
        && text
            .to_ascii_uppercase()
            .replace(' ', "T")
            .parse::<jiff::Timestamp>()
            .is_ok()
}

/// Go's durations, and a number with a unit in words.
fn duration(text: &str) -> bool {
    matches(
        r"^[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$",
        text,
    ) || matches(
        r"^\d+\s*(ns|nano|nanosecond|us|µs|micro|microsecond|ms|milli|millisecond|s|sec|second|m|min|minute|h|hr|hour|d|day|w|wk|week)s?$",
        text,
    )
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn digits(text: &str) -> Vec<u32> {
    text.chars()
        .filter(|c| !matches!(c, ' ' | '-'))
        .map(|c| c.to_digit(10).unwrap_or(99))
        .collect()
}

fn credit_card(text: &str) -> bool {
    let digits = digits(text);
    if !(12..=19).contains(&digits.len()) || digits.contains(&99) {
        return false;
    }
    let doubled = |(index, digit): (usize, &u32)| match (index % 2, digit * 2) {
        (0, _) => *digit,
        (_, twice) if twice > 9 => twice - 9,
        (_, twice) => twice,
    };
    digits.iter().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

fn isbn10(text: &str) -> bool {
    let clean: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    if clean.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (index, c) in clean.iter().enumerate() {
        let value = match c {
            'X' | 'x' if index == 9 => 10,
            c => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += value * (10 - index as u32);
    }
    sum % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let digits = digits(text);
    digits.len() == 13
        && !digits.contains(&99)
        && digits
            .iter()
            .enumerate()
            .map(|(index, digit)| if index % 2 == 0 { *digit } else { digit * 3 })
            .sum::<u32>()
            % 10
            == 0
}
