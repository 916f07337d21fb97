//! Numbers in queries and resource versions, parsed as Go parses them, with the texts of its errors.

use allot_apimachinery::quote::quote;
use allot_apimachinery::strconv;

use crate::error::{ApiError, Result};

const RANGE: &str = "value out of range";
const SYNTAX: &str = "invalid syntax";

/// A number in a query.
///
/// # Errors
/// 400 with Go's text.
pub(crate) fn parse_int(text: &str) -> Result<i64> {
    strconv::parse_int(text).map_err(ApiError::bad_request)
}

/// A number without a sign.
///
/// # Errors
/// Go's text about a number with invalid syntax or out of range.
pub(crate) fn parse_uint(text: &str) -> std::result::Result<u64, String> {
    let error = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", quote(text));
    if text.is_empty() {
        return Err(error(SYNTAX));
    }
    let mut number = 0u64;
    for byte in text.bytes() {
        if !byte.is_ascii_digit() {
            return Err(error(SYNTAX));
        }
        let digit = u64::from(byte - b'0');
        let next = number.checked_mul(10).and_then(|it| it.checked_add(digit));
        number = next.ok_or_else(|| error(RANGE))?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_sign_are_read_as_go_does() {
        assert_eq!(parse_uint("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_uint("007"), Ok(7));
        // The error is about the first fault.
        for (text, why) in [
            ("", SYNTAX),
            ("+1", SYNTAX),
            ("1_0", SYNTAX),
            (" 1", SYNTAX),
            ("18446744073709551616", RANGE),
            ("99999999999999999999x", RANGE),
            ("9x", SYNTAX),
        ] {
            let error = parse_uint(text).unwrap_err();
            assert_eq!(error, format!("strconv.ParseUint: parsing {text:?}: {why}"));
        }
    }
}
