//! The scheduled time that is due.

use allot_apimachinery::cron::Schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::controller::clock::shifted;

#[cfg(test)]
mod tests;

/// The last time after `since` and not after `now`. Of many missed times only the newest counts.
pub(super) fn last_between(
    schedule: &Schedule,
    since: Timestamp,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    if let Schedule::Every(distance) = schedule {
        let rounds = now.duration_since(since).as_secs() / distance.as_secs().max(1);
        let passed = i32::try_from(rounds)
            .ok()
            .and_then(|r| distance.checked_mul(r))?;
        return (rounds > 0).then(|| shifted(since, passed));
    }
    // Search from successively closer starts, so that years of missed times cost a few steps.
    for back in [60, 3600, 86_400, 31 * 86_400] {
        let near = shifted(now, -SignedDuration::from_secs(back));
        if near <= since {
            break;
        }
        if schedule.next_after(near, zone).is_some_and(|t| t <= now) {
            return last_from(schedule, near, now, zone);
        }
    }
    last_from(schedule, since, now, zone)
}

fn last_from(
    schedule: &Schedule,
    mut from: Timestamp,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    let mut last = None;
    while let Some(next) = schedule.next_after(from, zone).filter(|t| *t <= now) {
        last = Some(next);
        from = next;
    }
    last
}
