//! Cron schedules: five fields, names, steps, ranges, `@daily` and its like, `@every 5m`.

use std::str::FromStr;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

#[cfg(test)]
mod tests;

/// How far into the future a next time is looked for; a 29 February can be eight years away.
const HORIZON_DAYS: i32 = 8 * 366 + 31;

/// A parsed schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Fields as bit sets.
    Fields(Box<Fields>),
    /// A fixed distance.
    Every(SignedDuration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day of month and day of week are alternatives only if neither is `*`.
    any_day: bool,
    any_weekday: bool,
}

/// What is wrong with a schedule.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ScheduleError {
    #[error("expected exactly 5 fields, found {0}: {1:?}")]
    FieldCount(usize, String),
    #[error("failed to parse {0:?}")]
    Field(String),
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn number(text: &str, names: &[&str], first: u32) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    if let Some(i) = names.iter().position(|n| *n == lower) {
        return Some(u32::try_from(i).ok()? + first);
    }
    text.parse().ok()
}

/// One field as a bit set, and whether it is `*`.
fn field(text: &str, min: u32, max: u32, names: &[&str]) -> Result<(u64, bool), ScheduleError> {
    let bad = || ScheduleError::Field(text.to_owned());
    let mut bits = 0u64;
    let mut star = false;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (
                range,
                Some(
                    step.parse::<u32>()
                        .ok()
                        .filter(|s| *s > 0)
                        .ok_or_else(bad)?,
                ),
            ),
            None => (part, None),
        };
        let (from, to) = if range == "*" || range == "?" {
            star |= step.is_none_or(|s| s == 1);
            (min, max)
        } else if let Some((from, to)) = range.split_once('-') {
            (
                number(from, names, min).ok_or_else(bad)?,
                number(to, names, min).ok_or_else(bad)?,
            )
        } else {
            let from = number(range, names, min).ok_or_else(bad)?;
            // "5/15" means from 5 to the end.
            (from, if step.is_some() { max } else { from })
        };
        if from < min || to > max || from > to {
            return Err(bad());
        }
        let mut value = from;
        while value <= to {
            bits |= 1 << value;
            value += step.unwrap_or(1);
        }
    }
    Ok((bits, star))
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let text = text.trim();
        let expanded = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(distance) = expanded.strip_prefix("@every ") {
            let duration: SignedDuration = distance
                .trim()
                .parse()
                .map_err(|_| ScheduleError::Field(distance.to_owned()))?;
            if duration < SignedDuration::from_secs(1) {
                return Err(ScheduleError::Field(distance.to_owned()));
            }
            return Ok(Self::Every(duration));
        }
        if expanded.starts_with('@') {
            return Err(ScheduleError::Descriptor(expanded.to_owned()));
        }
        let parts: Vec<&str> = expanded.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts.as_slice() else {
            return Err(ScheduleError::FieldCount(parts.len(), expanded.to_owned()));
        };
        let (days, any_day) = field(days, 1, 31, &[])?;
        let (mut weekdays, any_weekday) = field(&weekdays.replace('7', "0"), 0, 6, &DAYS)?;
        weekdays &= 0x7f;
        Ok(Self::Fields(Box::new(Fields {
            minutes: field(minutes, 0, 59, &[])?.0,
            hours: field(hours, 0, 23, &[])?.0,
            days,
            months: field(months, 1, 12, &MONTHS)?.0,
            weekdays,
            any_day,
            any_weekday,
        })))
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits & (1 << value) != 0
}

impl Fields {
    fn day_matches(&self, date: Date) -> bool {
        let weekday = match date.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let by_day = has(self.days, date.day());
        let by_weekday = has(self.weekdays, weekday);
        let day = if self.any_day || self.any_weekday {
            by_day && by_weekday
        } else {
            by_day || by_weekday
        };
        has(self.months, date.month()) && day
    }

    fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = after.to_zoned(zone.clone());
        let mut date = start.date();
        for _ in 0..HORIZON_DAYS {
            if self.day_matches(date) {
                for hour in (0..24).filter(|h| has(self.hours, *h)) {
                    for minute in (0..60).filter(|m| has(self.minutes, *m)) {
                        let at = date.at(hour, minute, 0, 0);
                        // A time that daylight saving skips is moved to the next one that exists.
                        let Ok(zoned) = zone.to_ambiguous_zoned(at).compatible() else {
                            continue;
                        };
                        if zoned.timestamp() > after {
                            return Some(zoned.timestamp());
                        }
                    }
                }
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}

impl Schedule {
    /// The first time after `after`.
    pub(super) fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Fields(fields) => fields.next_after(after, zone),
            Self::Every(distance) => after.checked_add(*distance).ok(),
        }
    }

    /// The last time after `since` and not after `now`. Of many missed times only the newest counts.
    pub(super) fn last_between(
        &self,
        since: Timestamp,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        if let Self::Every(distance) = self {
            let rounds = now.duration_since(since).as_secs() / distance.as_secs().max(1);
            let passed = i32::try_from(rounds)
                .ok()
                .and_then(|r| distance.checked_mul(r))?;
            return (rounds > 0).then(|| since + passed);
        }
        // Look from ever nearer starts, so that years of missed times cost a few steps.
        for back in [60, 3600, 86_400, 31 * 86_400] {
            let near = now - SignedDuration::from_secs(back);
            if near <= since {
                break;
            }
            if self.next_after(near, zone).is_some_and(|t| t <= now) {
                return self.last_from(near, now, zone);
            }
        }
        self.last_from(since, now, zone)
    }

    fn last_from(&self, mut from: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut last = None;
        while let Some(next) = self.next_after(from, zone).filter(|t| *t <= now) {
            last = Some(next);
            from = next;
        }
        last
    }
}
