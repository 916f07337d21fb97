//! Reading quantities.

use num_bigint::BigInt;

use super::{Amount, Decimal, Format, ParseError, Quantity};

/// Decimal digits that surely fit 64 bits.
const MAX_DIGITS: i64 = 18;
const NANO: i32 = -9;

struct Parts<'a> {
    positive: bool,
    /// Digits before the dot without leading zeros; `0` if there are none.
    whole: &'a str,
    /// Digits after the dot.
    fraction: &'a str,
    suffix: &'a str,
    /// There is a digit at all.
    written: bool,
}

pub(super) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let parts = split(text)?;
    let (exponent, format) = suffix(parts.suffix).ok_or(ParseError::Suffix)?;
    if let Some(quantity) = small(&parts, exponent, format, text) {
        return Ok(quantity);
    }
    large(&parts, exponent, format)
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let (positive, rest) = match text.as_bytes() {
        [b'-', ..] => (false, &text[1..]),
        [b'+', ..] => (true, &text[1..]),
        _ => (true, text),
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest.trim_start_matches('.');
    let written = number.starts_with(|c: char| c.is_ascii_digit());
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = rest
        .bytes()
        .take_while(|b| b"eEinumkKMGTP".contains(b))
        .count();
    let mut tail = &rest[letters..];
    if tail.starts_with(['-', '+']) {
        tail = &tail[1..];
    }
    if digits(tail) != tail.len() {
        return Err(ParseError::Format);
    }
    Ok(Parts {
        positive,
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix: rest,
        written,
    })
}

/// The power (of ten, or of two for binary notation) and the notation of a suffix.
fn suffix(suffix: &str) -> Option<(i32, Format)> {
    Some(match suffix {
        "" => (0, Format::DecimalSi),
        "n" => (-9, Format::DecimalSi),
        "u" => (-6, Format::DecimalSi),
        "m" => (-3, Format::DecimalSi),
        "k" => (3, Format::DecimalSi),
        "M" => (6, Format::DecimalSi),
        "G" => (9, Format::DecimalSi),
        "T" => (12, Format::DecimalSi),
        "P" => (15, Format::DecimalSi),
        "E" => (18, Format::DecimalSi),
        "Ki" => (10, Format::BinarySi),
        "Mi" => (20, Format::BinarySi),
        "Gi" => (30, Format::BinarySi),
        "Ti" => (40, Format::BinarySi),
        "Pi" => (50, Format::BinarySi),
        "Ei" => (60, Format::BinarySi),
        _ => (
            suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
            Format::DecimalExponent,
        ),
    })
}

/// Numbers that fit 64 bits times a power of ten.
fn small(parts: &Parts<'_>, exponent: i32, format: Format, text: &str) -> Option<Quantity> {
    let digits = (parts.whole.len() + parts.fraction.len()) as i64;
    let (scale, factor) = match format {
        Format::BinarySi => {
            let room = 15 - digits - i64::from(exponent) * 3 / 10 - 1;
            if !parts.fraction.is_empty() || room < 0 {
                return None;
            }
            (0, 1_i64 << exponent)
        }
        _ if digits > MAX_DIGITS => return None,
        _ => (exponent, 1),
    };
    let scale = i32::try_from(i64::from(scale) - parts.fraction.len() as i64)
        .ok()
        .filter(|scale| *scale >= NANO)?;
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let number = digits.fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
    let mut value = number.checked_mul(factor)?;
    if !parts.positive {
        value = -value;
    }
    let mut quantity = Quantity::scaled(value, scale, format);
    // Upstream prints some texts as they were written although they are not canonical (`+5`, `1.500`).
    let shifted = (parts.whole, parts.fraction);
    let kept = match format {
        Format::BinarySi => number & 7 != 0,
        _ => scale % 3 == 0 && !ends_in_zeros(shifted) && !parts.whole.starts_with('0'),
    };
    let plain = text.as_bytes()[0].is_ascii_digit()
        && parts.fraction.is_empty()
        && !text.contains('.')
        && !text.starts_with('0');
    if kept
        && !(plain && canonical_integer(number, exponent, format))
        && quantity.to_string() != text
    {
        quantity.text = Some(text.into());
    }
    Some(quantity)
}

/// Whether an integer with a known suffix is printed unchanged, determined without printing it.
fn canonical_integer(number: i64, exponent: i32, format: Format) -> bool {
    match format {
        Format::BinarySi => number % 1024 != 0,
        Format::DecimalSi => number % 1000 != 0 && exponent % 3 == 0,
        Format::DecimalExponent => false,
    }
}

fn ends_in_zeros((whole, fraction): (&str, &str)) -> bool {
    let mut reversed = fraction.bytes().rev().chain(whole.bytes().rev());
    (0..3).all(|_| reversed.next() == Some(b'0'))
}

fn large(parts: &Parts<'_>, exponent: i32, format: Format) -> Result<Quantity, ParseError> {
    let digits: String = [parts.whole, parts.fraction].concat();
    if !parts.written {
        return Err(ParseError::Numeric);
    }
    let mut unscaled: BigInt = digits.parse().map_err(|_| ParseError::Numeric)?;
    let fraction = i64::try_from(parts.fraction.len()).map_err(|_| ParseError::Numeric)?;
    let scale = match format {
        Format::BinarySi => {
            unscaled <<= exponent;
            -fraction
        }
        _ => i64::from(exponent) - fraction,
    };
    let scale = i32::try_from(scale).map_err(|_| ParseError::Numeric)?;
    let mut decimal = Decimal { unscaled, scale }.round_away(NANO);
    let mut format = format;
    if format == Format::BinarySi && decimal.signum() != 0 {
        let one = Decimal {
            unscaled: BigInt::from(1),
            scale: 0,
        };
        let most = Decimal {
            unscaled: BigInt::from(i64::MAX),
            scale: 0,
        };
        if decimal.compare(&most).is_gt() {
            decimal = most;
        } else if decimal.compare(&one).is_lt() {
            format = Format::DecimalSi;
        }
    }
    if !parts.positive {
        decimal.unscaled = -decimal.unscaled;
    }
    let quantity = Quantity::from_decimal(decimal, format);
    debug_assert!(!matches!(quantity.amount, Amount::Small { .. }));
    Ok(quantity)
}
