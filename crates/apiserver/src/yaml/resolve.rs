//! What the text of a scalar means: the rules of YAML 1.1 as upstream's parser (go-yaml v2) knows them.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::PAD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const PREFIX: &str = "tag:yaml.org,2002:";
/// Go accepts bits that do not belong to any byte.
const BASE64: GeneralPurpose = {
    let lenient: GeneralPurposeConfig = PAD.with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, lenient)
};

/// The value of a scalar.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    /// Any integer of 64 bits, with a sign or without.
    Int(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn tag(&self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "bool",
            Scalar::Int(_) => "int",
            Scalar::Float(_) => "float",
            Scalar::Text(_) => "str",
        }
    }
}

/// The value of a scalar with a tag; an `implicit` one has none, and is not quoted.
///
/// # Errors
/// The text does not mean a value of the tag.
pub(super) fn resolve(tag: Option<&str>, implicit: bool, text: String) -> Result<Scalar, String> {
    let Some(tag) = tag.filter(|tag| !tag.is_empty()) else {
        return Ok(match implicit {
            true => untagged(&text).unwrap_or(Scalar::Text(text)),
            false => Scalar::Text(text),
        });
    };
    let wanted = match tag.strip_prefix(PREFIX) {
        Some("str") | None => return Ok(Scalar::Text(text)),
        Some("binary") => return binary(&text).map(Scalar::Text),
        Some(wanted @ ("bool" | "int" | "float" | "null" | "timestamp")) => wanted,
        Some(_) => return Ok(Scalar::Text(text)),
    };
    if wanted == "timestamp" && is_date(&text) {
        return Ok(Scalar::Text(text));
    }
    let found = untagged(&text);
    match found {
        Some(Scalar::Int(number)) if wanted == "float" => Ok(Scalar::Float(number as f64)),
        Some(found) if found.tag() == wanted => Ok(found),
        found => {
            let found = found.map_or("str", |found| found.tag());
            Err(format!("cannot decode !!{found} `{text}` as a !!{wanted}"))
        }
    }
}

/// The value of a plain text, if it is none of text.
fn untagged(text: &str) -> Option<Scalar> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Some(Scalar::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Some(Scalar::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return Some(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Some(Scalar::Float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let plain = text.replace('_', "");
            integer(&plain).map(Scalar::Int).or_else(|| float(&plain))
        }
        _ => None,
    }
}

/// An integer as Go reads one whose base its prefix tells.
fn integer(text: &str) -> Option<i128> {
    let (negative, signed, digits) = match text.as_bytes().first()? {
        b'-' => (true, true, &text[1..]),
        b'+' => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let lower = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (base, digits) = match lower.as_str() {
        "0x" => (16, &digits[2..]),
        "0b" => (2, &digits[2..]),
        "0o" => (8, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // The standard library would take a sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let number = i128::from(u64::from_str_radix(digits, base).ok()?);
    let number = if negative { -number } else { number };
    let fits = i64::try_from(number).is_ok() || !signed;
    fits.then_some(number)
}

/// A number in decimal digits, with a point or an exponent; none if it is too large.
fn float(text: &str) -> Option<Scalar> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !is_mantissa || !is_exponent {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(Scalar::Float(number))
}

/// The bytes of a binary scalar as text, in which other bytes than UTF-8 are replaced, as in JSON that Go writes.
fn binary(text: &str) -> Result<String, String> {
    let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = BASE64
        .decode(text)
        .map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Four digits and a dash begin every time that upstream knows.
fn is_date(text: &str) -> bool {
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    year == 4 && text.as_bytes().get(4) == Some(&b'-')
}
