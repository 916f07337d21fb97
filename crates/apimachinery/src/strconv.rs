//! Numbers and booleans as Go's package `strconv` writes and reads them.

use std::fmt::{Display, LowerExp};
use std::num::IntErrorKind::{NegOverflow, PosOverflow};
use std::num::ParseIntError;
use std::ops::Range;

use crate::quote::quote;

/// Exponents of ten for which the format `g` writes none, with the shortest digits.
const PLAIN: Range<i32> = -4..6;

/// A float in the format `g` with the shortest digits that read back the same, as the verbs `%g` and `%v` print it: `1.5`,
/// `1e+06`, `1e-05`. One of 32 bits may have fewer digits than the same value in 64.
pub fn format_float<T: Display + LowerExp>(value: T) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return match scientific.as_str() {
            "inf" => "+Inf".to_owned(),
            "-inf" => "-Inf".to_owned(),
            _ => scientific,
        };
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !PLAIN.contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

/// Reads a decimal integer of 64 bits as `strconv.ParseInt` does.
///
/// # Errors
/// Go's text about a number with invalid syntax or out of range.
pub fn parse_int(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {}: {why}", quote(text))
    })
}

/// Reads a boolean in one of the spellings of `strconv.ParseBool`; none of any other text.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_go_reads_them() {
        for (text, expected) in [("-9223372036854775808", i64::MIN), ("+7", 7), ("007", 7)] {
            assert_eq!(parse_int(text), Ok(expected));
        }
        for (text, why) in [
            ("", "invalid syntax"),
            ("1_0", "invalid syntax"),
            ("1.5", "invalid syntax"),
            ("9223372036854775808", "value out of range"),
            ("-9223372036854775809", "value out of range"),
        ] {
            let error = format!("strconv.ParseInt: parsing {text:?}: {why}");
            assert_eq!(parse_int(text), Err(error));
        }
    }

    /// What Go 1.26 prints.
    #[test]
    fn floats_are_written_as_go_writes_them() {
        let check = |value: f64, expected: &str| assert_eq!(format_float(value), expected);
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.5, "1.5");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(123_456.0, "123456");
        check(1_000_000.0, "1e+06");
        check(-1.25e20, "-1.25e+20");
        check(1e300, "1e+300");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        assert_eq!(format_float(0.1f32), "0.1");
    }

    #[test]
    fn booleans_have_gos_spellings() {
        for (text, expected) in [
            ("1", Some(true)),
            ("False", Some(false)),
            ("yes", None),
            ("", None),
        ] {
            assert_eq!(parse_bool(text), expected, "{text}");
        }
    }
}
