//! Durations and points in time, with Go's text forms.

use std::fmt::Write;

/// Seconds of 0001-01-01T00:00:00Z, the first that is allowed.
const MIN_SECONDS: i64 = -62_135_596_800;
/// Seconds of 9999-12-31T23:59:59Z, the last that is allowed.
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS: i128 = 1_000_000_000;

/// A point in time, with the offset from UTC that it was written with.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
    /// Offset of the notation from UTC in seconds.
    pub offset: i32,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.total() == other.total()
    }
}

impl Eq for Timestamp {}

impl Timestamp {
    /// The point `seconds` after 1970, where it is within the allowed range.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS)
            .contains(&seconds)
            .then_some(Self {
                seconds,
                nanos: 0,
                offset: 0,
            })
    }

    /// Nanoseconds since 1970.
    pub(crate) fn total(self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    /// This point moved by nanoseconds; `None` outside the allowed range.
    pub(crate) fn plus(self, nanos: i128) -> Option<Self> {
        let total = self.total() + nanos;
        let seconds = i64::try_from(total.div_euclid(NANOS)).ok()?;
        Self::from_seconds(seconds)?;
        Some(Self {
            seconds,
            nanos: total.rem_euclid(NANOS) as u32,
            offset: self.offset,
        })
    }

    /// Reads RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if !matches!(bytes.get(10), Some(b'T')) || !text.is_ascii() {
            return None;
        }
        let seconds = days(text.get(..10)?)? * 86_400;
        let time = text.get(11..19)?.as_bytes();
        if time[2] != b':' || time[5] != b':' {
            return None;
        }
        let (hour, minute, second) = (
            digits(&time[..2])?,
            digits(&time[3..5])?,
            digits(&time[6..8])?,
        );
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut rest = text.get(19..)?;
        let mut nanos = 0;
        if let Some(fraction) = rest.strip_prefix(['.', ',']) {
            let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if len == 0 {
                return None;
            }
            nanos = fraction
                .bytes()
                .take(len)
                .chain(std::iter::repeat(b'0'))
                .take(9)
                .fold(0, |n, b| n * 10 + u32::from(b - b'0'));
            rest = &fraction[len..];
        }
        let offset = zone_offset(rest)?;
        let seconds = seconds + hour * 3600 + minute * 60 + second - i64::from(offset);
        Some(Self {
            seconds,
            nanos,
            offset,
        })
    }

    /// Reads a date.
    pub fn parse_date(text: &str) -> Option<Self> {
        Some(Self {
            seconds: days(text)? * 86_400,
            nanos: 0,
            offset: 0,
        })
    }

    /// Whether it is within the allowed range.
    pub(crate) fn in_range(self) -> bool {
        (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds)
    }

    /// Year, month (from 1) and day (from 1) at an offset from UTC.
    pub(crate) fn date(self, offset: i32) -> (i64, i64, i64) {
        civil((self.seconds + i64::from(offset)).div_euclid(86_400))
    }

    /// Days since 1970 and second of the day at an offset from UTC.
    pub(crate) fn day_and_second(self, offset: i32) -> (i64, i64) {
        let local = self.seconds + i64::from(offset);
        (local.div_euclid(86_400), local.rem_euclid(86_400))
    }

    /// RFC 3339 with as many digits as needed.
    pub fn text(self) -> String {
        let (year, month, day) = self.date(self.offset);
        let (_, second) = self.day_and_second(self.offset);
        let mut text = format!(
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            text.push('.');
            text.push_str(fraction.trim_end_matches('0'));
        }
        if self.offset == 0 {
            text.push('Z');
        } else {
            let sign = if self.offset < 0 { '-' } else { '+' };
            let minutes = self.offset.abs() / 60;
            // Writing to a String cannot fail.
            let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        text
    }
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0, |n, b| {
        b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0'))
    })
}

/// Days from 1970 to a date `YYYY-MM-DD`.
fn days(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (
        digits(&bytes[..4])?,
        digits(&bytes[5..7])?,
        digits(&bytes[8..])?,
    );
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => {
            if leap {
                29
            } else {
                28
            }
        }
        _ => return None,
    };
    (1..=length)
        .contains(&day)
        .then(|| days_from_civil(year, month, day))
}

/// Days from 1970 to a date of the Gregorian calendar (years count from March, so that leap days come last).
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds of `Z` or `+hh:mm`.
fn zone_offset(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let bytes = text.as_bytes();
    if bytes.len() != 6 || bytes[3] != b':' {
        return None;
    }
    let sign = match bytes[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = (digits(&bytes[1..3])?, digits(&bytes[4..])?);
    (hours <= 24 && minutes < 60).then(|| sign * (hours * 3600 + minutes * 60) as i32)
}

/// Reads Go's form of a duration (`1h30m`, `-1.5s`, `10ms`) into nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        if number.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_len = after
            .bytes()
            .take_while(|b| !b.is_ascii_digit() && *b != b'.')
            .count();
        let (unit, after) = after.split_at(unit_len);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => NANOS,
            "m" => 60 * NANOS,
            "h" => 3600 * NANOS,
            _ => return None,
        };
        let number: i128 = if number.is_empty() {
            0
        } else {
            number.get(..19.min(number.len()))?.parse().ok()?
        };
        total = total.checked_add(number.checked_mul(nanos)?)?;
        let mut scale = nanos;
        for digit in fraction.bytes() {
            scale /= 10;
            total += i128::from(digit - b'0') * scale;
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The text form of a duration: seconds.
pub(crate) fn duration_text(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    let rest = nanos % 1_000_000_000;
    // As upstream: whole seconds and rest as floating-point numbers.
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}
