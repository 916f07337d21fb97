//! String formats and patterns.

use std::net::IpAddr;

use allot_apimachinery::names;
use base64::Engine as _;

use super::patterns::matches;

/// The formats that texts are held to, without dashes.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether texts are held to the format.
pub(super) fn known(format: &str) -> bool {
    !format.is_empty() && KNOWN.contains(&format.replace('-', "").as_str())
}

/// Whether the text has the format; formats that are not known are not checked.
pub(super) fn check(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => date_time(text),
        "date" => date(text),
        "duration" => matches(GO_DURATION, text) || spoken_duration(text),
        "byte" => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            decoded.is_ok_and(|bytes| !bytes.is_empty())
        }
        "ipv4" => text.contains('.') && without_zeros(text).parse::<IpAddr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<IpAddr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid("[0-9a-f]", "[0-9a-f]", text),
        "uuid3" => uuid("3", "[0-9a-f]", text),
        "uuid4" => uuid("4", "[89ab]", text),
        "uuid5" => uuid("5", "[89ab]", text),
        "hostname" => {
            text.len() <= 255
                && text.split('.').all(|label| label.len() <= 63)
                && matches(HOSTNAME, text)
        }
        "email" => matches(EMAIL, text),
        "uri" => matches(r"^([a-zA-Z][a-zA-Z0-9+.-]*:[^\s]*|/[^\s]*)$", text),
        "hexcolor" => matches("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", text),
        "rgbcolor" => matches(
            r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
            text,
        ),
        "bsonobjectid" => matches("^[0-9a-fA-F]{24}$", text),
        "ssn" => text.len() == 11 && matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text),
        "creditcard" => credit_card(text),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        _ => true,
    }
}

/// A name without dots, or names that end in a top-level domain. In a name without dots, a dash is allowed after the first character only:
/// what is strange about it is upstream's.
const HOSTNAME: &str = r"^([a-zA-Z0-9\p{S}\p{L}](-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?|([a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,63})$";

/// An address, alone or in angle brackets after the name of a person (RFC 5322).
const EMAIL: &str = r#"^\s*((([\w!#$%&'*+/=?^`{|}~.-]|[^\x00-\x7f])+|"([^"\\]|\\.)*"|\s)*<\s*)?(([\w!#$%&'*+/=?^`{|}~-]|[^\x00-\x7f])+(\.([\w!#$%&'*+/=?^`{|}~-]|[^\x00-\x7f])+)*|"([^"\\]|\\.)*")@(([\w!#$%&'*+/=?^`{|}~-]|[^\x00-\x7f])+(\.([\w!#$%&'*+/=?^`{|}~-]|[^\x00-\x7f])+)*|\[[^\]\[]*\])(\s*>)?\s*$"#;

/// What Go reads as a duration.
const GO_DURATION: &str = r"^[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$";

fn date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    date(day)
        && matches(
            r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$",
            time,
        )
}

/// Numbers with units in words, such as `2 days`, anywhere in the text. Of each row the last name may go on in any way.
fn spoken_duration(text: &str) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[start..];
        let end = number.find(|c: char| !c.is_ascii_digit());
        let (digits, after) = number.split_at(end.unwrap_or(number.len()));
        let word = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let (unit, next) = word.split_at(word.find(|c| !is_unit(c)).unwrap_or(word.len()));
        rest = if unit.is_empty() { after } else { next };
        if unit.is_empty() {
            continue;
        }
        if digits.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_lowercase();
        found |= UNITS.iter().any(|names| {
            let last = names.last().is_some_and(|last| unit.starts_with(last));
            last || names.contains(&unit.as_str())
        });
    }
    found
}

/// Numbers of an IPv4 address may have leading zeros.
fn without_zeros(text: &str) -> String {
    let strip = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        stripped => stripped.to_owned(),
    };
    if text.contains(':') {
        return text.to_owned();
    }
    text.split('.').map(strip).collect::<Vec<_>>().join(".")
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let max = match without_zeros(address).parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

/// 6, 8 or 20 bytes: in pairs with colons or dashes, in fours with dots, or with nothing between them.
fn mac(text: &str) -> bool {
    let (separator, width) = match text.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(c @ (':' | '-')) => (Some(c), 2),
        Some('.') => (Some('.'), 4),
        Some(_) => return false,
        None => (None, 2),
    };
    let digits = match separator {
        Some(separator) => {
            let groups: Vec<&str> = text.split(separator).collect();
            let whole =
                |group: &&str| group.len() == width && group.chars().all(|c| c.is_ascii_hexdigit());
            if !groups.iter().all(whole) {
                return false;
            }
            groups.len() * width
        }
        None => text.len(),
    };
    matches!(digits, 12 | 16 | 40)
}

fn uuid(version: &str, variant: &str, text: &str) -> bool {
    let pattern = format!(
        "(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}$"
    );
    matches(&pattern, text)
}

fn digits(text: &str) -> Vec<u32> {
    text.chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .map(|c| c.to_digit(10).unwrap_or(99))
        .collect()
}

fn credit_card(text: &str) -> bool {
    let clean: String = text.chars().filter(char::is_ascii_digit).collect();
    let known = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$";
    let doubled = |(index, digit): (usize, &u32)| match (index % 2, digit * 2) {
        (0, _) => *digit,
        (_, twice) if twice > 9 => twice - 9,
        (_, twice) => twice,
    };
    matches(known, &clean)
        && digits(&clean)
            .iter()
            .rev()
            .enumerate()
            .map(doubled)
            .sum::<u32>()
            % 10
            == 0
}

fn isbn10(text: &str) -> bool {
    let clean: String = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .collect();
    let value = |c: char| c.to_digit(10).unwrap_or(10);
    matches("^[0-9]{9}[0-9X]$", &clean)
        && clean
            .chars()
            .zip(1..)
            .map(|(c, place)| value(c) * place)
            .sum::<u32>()
            % 11
            == 0
}

fn isbn13(text: &str) -> bool {
    let digits = digits(text);
    let weighted = |(index, digit): (usize, &u32)| digit * if index % 2 == 0 { 1 } else { 3 };
    digits.len() == 13
        && !digits.contains(&99)
        && digits.iter().enumerate().map(weighted).sum::<u32>() % 10 == 0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Texts, each with the formats that upstream finds in it.
    const TEXTS: &str = include_str!("format/formats.jsonl");

    #[test]
    fn texts_have_the_formats_that_upstream_finds() {
        let mut wrong = Vec::new();
        for line in TEXTS.lines() {
            let case: Value = serde_json::from_str(line).expect("a line of JSON");
            let text = case["text"].as_str().expect("a text");
            let has = |format: &str| {
                let found = case["formats"].as_array().expect("a list");
                found
                    .iter()
                    .filter_map(Value::as_str)
                    .any(|found| found.replace('-', "") == format)
            };
            for format in KNOWN {
                assert!(known(format));
                if check(format, text) != has(format) {
                    wrong.push(format!("{format} {text:?}: upstream {}", has(format)));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
