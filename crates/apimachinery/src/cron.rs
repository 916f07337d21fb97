//! Cron schedules as upstream parses them: five fields, names, steps, ranges, `@daily` and the like, `@every 5m`.
//!
//! The API server rejects what does not parse, and the controller computes the next time; both must agree, so there is
//! only one parser. Behaviour and texts are those of robfig/cron v3 (`ParseStandard`): Sunday is 0 and never 7,
//! `@every` is at least a second, a date that does not occur within five years never occurs.
//!
//! ```
//! use allot_apimachinery::cron::Schedule;
//! use jiff::{Timestamp, tz::TimeZone};
//!
//! let schedule: Schedule = "*/15 9-17 * * mon-fri".parse()?;
//! let friday_evening: Timestamp = "2026-01-02T17:50:00Z".parse()?;
//! let monday_morning: Timestamp = "2026-01-05T09:00:00Z".parse()?;
//! assert_eq!(schedule.next_after(friday_evening, &TimeZone::UTC), Some(monday_morning));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use jiff::civil::{DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

mod parse;

pub use parse::ScheduleError;

/// A next time is searched in this many further years.
const YEARS: i16 = 5;

/// When a CronJob starts: at the times of a cron expression, or at a fixed interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// At the times whose fields are all in these sets.
    Fields(Fields),
    /// Again after a fixed time, in whole seconds.
    Every(SignedDuration),
}

/// Sets of minutes, hours, days, months and weekdays, a bit for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day of the month and day of the week are alternatives unless one of them is `*`.
    both_days: bool,
    /// The zone that the schedule itself names with `TZ=` or `CRON_TZ=`.
    zone: Option<TimeZone>,
}

impl Schedule {
    /// The first time after `after`, in the given zone unless the schedule names one itself.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Fields(fields) => fields.next_after(after, fields.zone.as_ref().unwrap_or(zone)),
            Self::Every(distance) => whole_second(after).checked_add(*distance).ok(),
        }
    }
}

fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn has(bits: u64, value: i8) -> bool {
    bits & (1 << value) != 0
}

/// The start of a civil time in a zone; one that daylight saving skips is moved to the next that exists.
fn at(time: DateTime, zone: &TimeZone) -> Option<Zoned> {
    zone.to_ambiguous_zoned(time).compatible().ok()
}

impl Fields {
    fn day_matches(&self, time: &Zoned) -> bool {
        let weekday = match time.weekday() {
            Weekday::Sunday => 0,
            other => other.to_monday_one_offset(),
        };
        let (by_day, by_weekday) = (has(self.days, time.day()), has(self.weekdays, weekday));
        if self.both_days {
            by_day && by_weekday
        } else {
            by_day || by_weekday
        }
    }

    /// Months and days are stepped through as dates, hours and minutes as elapsed time: an hour that daylight saving
    /// skips is not made up for, and one that occurs twice counts twice.
    fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut time = whole_second(after)
            .checked_add(SignedDuration::from_secs(1))
            .ok()?
            .to_zoned(zone.clone());
        let last_year = time.year() + YEARS;
        // From the first field that does not fit on, the smaller ones begin again.
        let mut fresh = false;
        'again: while time.year() <= last_year {
            while !has(self.months, time.month()) {
                let first = time.date().first_of_month();
                fresh = true;
                time = at(first.checked_add(1.month()).ok()?.at(0, 0, 0, 0), zone)?;
                if time.month() == 1 {
                    continue 'again;
                }
            }
            while !self.day_matches(&time) {
                fresh = true;
                time = at(time.date().tomorrow().ok()?.at(0, 0, 0, 0), zone)?;
                if time.day() == 1 {
                    continue 'again;
                }
            }
            while !has(self.hours, time.hour()) {
                if !fresh {
                    fresh = true;
                    time = time.checked_sub(i64::from(time.minute()).minutes()).ok()?;
                    time = time.checked_sub(i64::from(time.second()).seconds()).ok()?;
                }
                time = time.checked_add(1.hour()).ok()?;
                if time.hour() == 0 {
                    continue 'again;
                }
            }
            while !has(self.minutes, time.minute()) {
                if !fresh {
                    fresh = true;
                    time = time.checked_sub(i64::from(time.second()).seconds()).ok()?;
                }
                time = time.checked_add(1.minute()).ok()?;
                if time.minute() == 0 {
                    continue 'again;
                }
            }
            while time.second() != 0 {
                fresh = true;
                time = time.checked_add(1.second()).ok()?;
                if time.second() == 0 {
                    continue 'again;
                }
            }
            return Some(time.timestamp());
        }
        None
    }
}

#[cfg(test)]
mod tests;
