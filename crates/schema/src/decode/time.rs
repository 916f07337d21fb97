//! Times of RFC 3339, parsed as Go's `time.Parse` does, with its errors.

use jiff::civil::DateTime;
use jiff::{Span, civil};

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Why a text is not a time of RFC 3339, with the text of Go's `time.ParseError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TimeError {
    #[error(
        "parsing time {} as \"{layout}\": cannot parse {} as \"{part}\"",
        quote(text),
        quote(rest)
    )]
    Mismatch {
        text: String,
        layout: &'static str,
        rest: String,
        part: &'static str,
    },
    #[error("parsing time {}: {part} out of range", quote(text))]
    Range { text: String, part: &'static str },
    #[error("parsing time {}: extra text: {}", quote(text), quote(rest))]
    Extra { text: String, rest: String },
}

/// A time as it is stored: in UTC, in seconds or, if `micro`, microseconds. `None` for the first second of year 1, Go's zero
/// time.
pub(super) fn convert(text: &str, micro: bool) -> Result<Option<String>, TimeError> {
    let layout = if micro { MICROSECONDS } else { SECONDS };
    let mut reader = Reader { rest: text };
    let time = reader.read(micro).map_err(|problem| {
        let (text, rest) = (text.to_owned(), reader.rest.to_owned());
        match problem {
            Problem::Mismatch(part) => TimeError::Mismatch {
                text,
                layout,
                rest,
                part,
            },
            Problem::Range(part) => TimeError::Range { text, part },
            Problem::Extra => TimeError::Extra { text, rest },
        }
    })?;
    if time == civil::datetime(1, 1, 1, 0, 0, 0, 0) {
        return Ok(None);
    }
    let form = if micro {
        "%Y-%m-%dT%H:%M:%S%.6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(Some(time.strftime(form).to_string()))
}

/// Where reading a time failed.
enum Problem {
    /// The rest of the text does not begin with this part of the layout.
    Mismatch(&'static str),
    /// The number of this part is out of range.
    Range(&'static str),
    /// There is text behind the time.
    Extra,
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn read(&mut self, micro: bool) -> Result<DateTime, Problem> {
        let year = self.number("2006", 4, 4)?;
        self.literal("-")?;
        let month = self.number("01", 2, 2)?;
        check("month", month, 1, 12)?;
        self.literal("-")?;
        let day = self.number("02", 2, 2)?;
        self.literal("T")?;
        let hour = self.number("15", 1, 2)?;
        check("hour", hour, 0, 23)?;
        self.literal(":")?;
        let minute = self.number("04", 2, 2)?;
        check("minute", minute, 0, 59)?;
        self.literal(":")?;
        let second = self.number("05", 2, 2)?;
        check("second", second, 0, 59)?;
        let nanosecond = self.fraction(micro)?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(Problem::Extra);
        }
        let time = civil::Date::new(year as i16, month as i8, day as i8)
            .map(|date| date.at(hour as i8, minute as i8, second as i8, nanosecond))
            .map_err(|_| Problem::Range("day"))?;
        // A year beyond four digits in UTC could be stored, and not be read again.
        let time = time.checked_sub(Span::new().minutes(offset)).ok();
        time.filter(|time| time.year() >= 0)
            .ok_or(Problem::Range("year"))
    }

    fn literal(&mut self, text: &'static str) -> Result<(), Problem> {
        self.rest = self
            .rest
            .strip_prefix(text)
            .ok_or(Problem::Mismatch(text))?;
        Ok(())
    }

    fn digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    fn number(&mut self, part: &'static str, least: usize, most: usize) -> Result<i32, Problem> {
        let length = self.digits().min(most);
        if length < least {
            return Err(Problem::Mismatch(part));
        }
        let (number, rest) = self.rest.split_at(length);
        self.rest = rest;
        number.parse().map_err(|_| Problem::Mismatch(part))
    }

    /// Nanoseconds. A layout with a fraction determines its length; otherwise a fraction of any length may follow a point or
    /// a comma.
    fn fraction(&mut self, micro: bool) -> Result<i32, Problem> {
        const PART: &str = ".000000";
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else {
            return if micro {
                Err(Problem::Mismatch(PART))
            } else {
                Ok(0)
            };
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length = match (micro, digits) {
            (true, 0..6) => return Err(Problem::Mismatch(PART)),
            (true, _) => 6,
            (false, 0) => return Ok(0),
            (false, length) => length,
        };
        let (digits, rest) = rest.split_at(length);
        self.rest = rest;
        let nanoseconds: String = digits.chars().chain("000000000".chars()).take(9).collect();
        Ok(nanoseconds.parse().unwrap_or_default())
    }

    /// Minutes east of Greenwich.
    fn offset(&mut self) -> Result<i64, Problem> {
        const PART: &str = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1, ..] = self.rest.as_bytes() else {
            return Err(Problem::Mismatch(PART));
        };
        if ![h0, h1, m0, m1].into_iter().all(u8::is_ascii_digit) {
            return Err(Problem::Mismatch(PART));
        }
        let number = |tens: &u8, ones: &u8| i32::from(tens - b'0') * 10 + i32::from(ones - b'0');
        let (hours, minutes) = (number(h0, h1), number(m0, m1));
        check("time zone offset hour", hours, 0, 24)?;
        check("time zone offset minute", minutes, 0, 60)?;
        let total = i64::from(hours * 60 + minutes);
        let total = if *sign == b'-' { -total } else { total };
        self.rest = &self.rest[6..];
        Ok(total)
    }
}

fn check(what: &'static str, number: i32, least: i32, most: i32) -> Result<(), Problem> {
    if (least..=most).contains(&number) {
        Ok(())
    } else {
        Err(Problem::Range(what))
    }
}

/// Go's package for times has its own quoting rules: bytes that are not printable ASCII are escaped one by one.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("2024-01-01T02:00:00.5+02:00", "2024-01-01T00:00:00Z"),
            ("2024-01-01T1:00:00,25Z", "2024-01-01T01:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("2023-12-31T22:00:00-24:00", "2024-01-01T22:00:00Z"),
        ] {
            assert_eq!(convert(text, false), Ok(Some(expected.to_owned())));
        }
        assert_eq!(convert("0001-01-01T00:00:00Z", false), Ok(None));
        assert_eq!(
            convert("2024-01-01T00:00:00.1234567Z", true),
            Err(TimeError::Mismatch {
                text: "2024-01-01T00:00:00.1234567Z".to_owned(),
                layout: MICROSECONDS,
                rest: "7Z".to_owned(),
                part: "Z07:00",
            })
        );
    }

    #[test]
    fn errors_have_the_texts_of_go() {
        let error = |text: &str| convert(text, false).unwrap_err().to_string();
        for (text, expected) in [
            ("2024-13-01T00:00:00Z", "month out of range"),
            ("2024-02-30T00:00:00Z", "day out of range"),
            ("2024-01-01T24:00:00Z", "hour out of range"),
            ("2024-01-01T00:00:60Z", "second out of range"),
            (
                "2024-01-01T00:00:00+25:00",
                "time zone offset hour out of range",
            ),
            ("0000-01-01T00:00:00+00:01", "year out of range"),
            ("9999-12-31T23:59:00-00:01", "year out of range"),
            ("2024-01-01T00:00:00Zz", "extra text: \"z\""),
        ] {
            let expected = format!("parsing time \"{text}\": {expected}");
            assert_eq!(error(text), expected);
        }
        for (text, rest, part) in [
            ("2024-01-01T00:00:00+0200", "+0200", "Z07:00"),
            ("2024-01-01", "", "T"),
            ("\\xc3\\xbc", "\\xc3\\xbc", "2006"),
        ] {
            let expected = format!(
                "parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{rest}\" as \"{part}\""
            );
            let text = text.replace("\\xc3\\xbc", "ü");
            assert_eq!(error(&text), expected);
        }
    }
}
