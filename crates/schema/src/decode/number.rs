//! Numbers: the form in which those without a type are kept, and how a text writes them.

use serde_json::{Number, Value};

/// How many numbers of one object are looked for in its text. A search takes as long as the text is.
pub(super) const MAX_SEARCHES: usize = 64;

/// A float without fraction prints as an integer in Go, and so it is kept as one.
pub(super) fn whole(value: Value) -> Value {
    if let Value::Number(number) = &value
        && number.is_f64()
        && let Some(float) = number.as_f64()
        && float.fract() == 0.0
        && float.abs() < 9.0e15
    {
        return Value::from(float as i64);
    }
    value
}

/// A number of an object without a type: an integer of 64 bits with a sign, or else a float.
pub(super) fn untyped(value: Value) -> Value {
    match &value {
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            let float = number.as_f64().and_then(Number::from_f64);
            float.map_or(value, Value::Number)
        }
        _ => whole(value),
    }
}

/// Brings the numbers of an object without a type into the form in which they are kept, as after a patch.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = untyped(value.take()),
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(members) => members.values_mut().for_each(settle_numbers),
        _ => {}
    }
}

/// How a JSON text writes a number, which Go's errors and quantities show: the first number in it that reads the same.
pub(super) fn as_written<'t>(text: &'t [u8], number: &Number) -> Option<&'t str> {
    let mut rest = text;
    loop {
        let at = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
        rest = &rest[at..];
        if rest[0] == b'"' {
            rest = after_string(rest)?;
            continue;
        }
        let part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let end = rest.iter().position(|byte| !part(byte));
        let (found, after) = rest.split_at(end.unwrap_or(rest.len()));
        let found = std::str::from_utf8(found).ok()?;
        let reads_same =
            |read: Number| read == *number && is_negative(&read) == is_negative(number);
        if serde_json::from_str(found).is_ok_and(reads_same) {
            return Some(found);
        }
        rest = after;
    }
}

/// Zero has a sign, too, which comparison does not tell.
fn is_negative(number: &Number) -> bool {
    number.as_f64().is_some_and(f64::is_sign_negative)
}

/// What follows the string at the beginning of a text.
fn after_string(text: &[u8]) -> Option<&[u8]> {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    text.get(end + 2..)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_without_a_type_are_integers_with_a_sign_or_floats() {
        let mut value: Value = serde_json::from_str(
            r#"{"a":[1.0,-2e3,1.5,9223372036854775807],"b":{"c":9223372036854775808},"d":"1.0"}"#,
        )
        .unwrap();
        settle_numbers(&mut value);
        assert_eq!(
            value,
            json!({"a":[1,-2000,1.5,i64::MAX],"b":{"c":9_223_372_036_854_775_808_f64},"d":"1.0"})
        );
    }

    /// Without the feature `float_roundtrip` of serde_json these were read as their neighbours.
    #[test]
    fn regression_floats_are_read_as_they_are_written() {
        for text in ["11.285739033213071", "123456789.12345679", "5e-324"] {
            let read: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn a_number_is_found_as_it_is_written() {
        let text = br#"{"1e3":"a\"1.50","b":[1,1.50,0.0,-0,1e3],"c":99999999999999999999}"#;
        let check = |number: Value, expected: Option<&str>| {
            let Value::Number(number) = number else {
                unreachable!("a number");
            };
            assert_eq!(as_written(text, &number), expected, "{number}");
        };
        check(json!(1.5), Some("1.50"));
        check(json!(1), Some("1"));
        check(json!(-0.0), Some("-0"));
        check(json!(1000.0), Some("1e3"));
        check(json!(1e20), Some("99999999999999999999"));
        check(json!(7), None);
        assert_eq!(as_written(br#"["1"#, &Number::from(1)), None);
    }
}
