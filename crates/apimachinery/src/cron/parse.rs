//! From text to [`Schedule`].

use std::str::FromStr;

use jiff::SignedDuration;
use jiff::tz::TimeZone;

use super::{Fields, Schedule};
use crate::quote::quote;

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(String);

type Result<T> = std::result::Result<T, ScheduleError>;

fn fail<T>(text: String) -> Result<T> {
    Err(ScheduleError(text))
}

/// The least and the greatest value of a field, and names for values.
struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const fn bounds(low: u64, high: u64, names: &'static [&'static str]) -> Bounds {
    Bounds { low, high, names }
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    bounds(0, 59, &[]),
    bounds(0, 23, &[]),
    bounds(1, 31, &[]),
    bounds(1, 12, &MONTHS),
    bounds(0, 6, &DAYS),
];

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return fail("empty spec string".to_owned());
        }
        let mut rest = text;
        let mut zone = None;
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let (name, after) = text.split_once(' ').unwrap_or((text, ""));
            let name = name.split_once('=').map_or(name, |(_, name)| name);
            let found = match name {
                "" | "UTC" => Ok(TimeZone::UTC),
                name => TimeZone::get(name),
            };
            match found {
                Ok(found) => zone = Some(found),
                Err(_) => {
                    return fail(format!(
                        "provided bad location {name}: unknown time zone {name}"
                    ));
                }
            }
            rest = after.trim();
        }
        if rest.starts_with('@') {
            return descriptor(rest, zone);
        }
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return fail(format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            ));
        };
        let (minutes, _) = field(minute, &FIELDS[0])?;
        let (hours, _) = field(hour, &FIELDS[1])?;
        let (days, any_day) = field(day, &FIELDS[2])?;
        let (months, _) = field(month, &FIELDS[3])?;
        let (weekdays, any_weekday) = field(weekday, &FIELDS[4])?;
        Ok(Self::Fields(Fields {
            minutes,
            hours,
            days,
            months,
            weekdays,
            both_days: any_day || any_weekday,
            zone,
        }))
    }
}

fn descriptor(text: &str, zone: Option<TimeZone>) -> Result<Schedule> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => match other.strip_prefix("@every ") {
            Some(distance) => {
                let distance = duration(distance)
                    .or_else(|error| fail(format!("failed to parse duration {other}: {error}")))?;
                // Shorter than a second is a second, and parts of seconds do not count.
                return Ok(Schedule::Every(SignedDuration::from_secs(
                    distance.as_secs().max(1),
                )));
            }
            None => return fail(format!("unrecognized descriptor: {other}")),
        },
    };
    let mut schedule: Schedule = fields.parse()?;
    if let Schedule::Fields(fields) = &mut schedule {
        fields.zone = zone;
    }
    Ok(schedule)
}

/// A Go duration: numbers with units, such as `1h30m` or `-1.5s`.
fn duration(text: &str) -> Result<SignedDuration> {
    let invalid = || fail(format!("time: invalid duration {}", quote(text)));
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return invalid();
    }
    let mut nanoseconds: f64 = 0.0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let digits = number.matches(|c: char| c.is_ascii_digit()).count();
        if digits == 0 || number.matches('.').count() > 1 {
            return invalid();
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = match unit {
            "" => return fail(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unit => {
                return fail(format!(
                    "time: unknown unit {} in duration {}",
                    quote(unit),
                    quote(text)
                ));
            }
        };
        nanoseconds += number.parse::<f64>().unwrap_or(f64::INFINITY) * scale;
        rest = after;
    }
    // The range of an i64 of nanoseconds, as Go's durations.
    if nanoseconds >= 9_223_372_036_854_775_808.0 {
        return invalid();
    }
    let nanoseconds = if negative { -nanoseconds } else { nanoseconds };
    Ok(SignedDuration::try_from_secs_f64(nanoseconds / 1e9).unwrap_or(SignedDuration::ZERO))
}

/// One field as a set, and whether it has a `*` or `?` with no step.
fn field(text: &str, bounds: &Bounds) -> Result<(u64, bool)> {
    let (mut set, mut star) = (0, false);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (values, open) = range(part, bounds)?;
        set |= values;
        star |= open;
    }
    Ok((set, star))
}

fn range(text: &str, bounds: &Bounds) -> Result<(u64, bool)> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut star = matches!(ends[0], "*" | "?");
    let (start, mut end) = if star {
        (bounds.low, bounds.high)
    } else {
        let start = value(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, end] => (start, value(end, bounds)?),
            _ => return fail(format!("too many hyphens: {text}")),
        }
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            // One value with a step means from it on.
            if ends.len() == 1 {
                end = bounds.high;
            }
            star &= step <= 1;
            step
        }
        _ => return fail(format!("too many slashes: {text}")),
    };
    let (low, high) = (bounds.low, bounds.high);
    if start < low {
        return fail(format!(
            "beginning of range ({start}) below minimum ({low}): {text}"
        ));
    }
    if end > high {
        return fail(format!(
            "end of range ({end}) above maximum ({high}): {text}"
        ));
    }
    if start > end {
        return fail(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return fail(format!("step of range should be a positive number: {text}"));
    }
    let mut set = 0;
    let mut value = start;
    while value <= end {
        set |= 1 << value;
        value = value.saturating_add(step);
    }
    Ok((set, star))
}

fn value(text: &str, bounds: &Bounds) -> Result<u64> {
    let lower = text.to_ascii_lowercase();
    match (bounds.low..)
        .zip(bounds.names)
        .find(|(_, name)| **name == lower)
    {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return fail(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            quote(text)
        ));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => fail(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => fail(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: value out of range",
            quote(text)
        )),
    }
}
