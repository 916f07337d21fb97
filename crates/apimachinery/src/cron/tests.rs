use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::Schedule;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn check_next(schedule: &str, zone: &TimeZone, after: &str, wanted: &str) {
    let parsed: Schedule = schedule.parse().unwrap();
    assert_eq!(
        parsed.next_after(time(after), zone),
        Some(time(wanted)),
        "{schedule} after {after}"
    );
}

#[test]
fn next_times() {
    let check = |schedule, after, wanted| check_next(schedule, &TimeZone::UTC, after, wanted);
    check("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
    check("* * * * *", "2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z");
    check(
        "*/15 * * * *",
        "2026-01-01T00:45:00Z",
        "2026-01-01T01:00:00Z",
    );
    check(
        "5/20 3 * * *",
        "2026-01-01T03:26:00Z",
        "2026-01-01T03:45:00Z",
    );
    check("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z");
    check(
        "30 9 * jan-mar mon,FRI",
        "2026-01-01T00:00:00Z",
        "2026-01-02T09:30:00Z",
    );
    // Day of the month and day of the week are alternatives when both are given.
    check(
        "0 0 13 * fri",
        "2026-01-03T00:00:00Z",
        "2026-01-09T00:00:00Z",
    );
    check(
        "0 0 1-3 * sun",
        "2026-01-04T00:00:00Z",
        "2026-01-11T00:00:00Z",
    );
    check(
        "0 0 */2 * sun",
        "2026-01-01T00:00:00Z",
        "2026-01-03T00:00:00Z",
    );
    check(
        "59 23 31 12 *",
        "2026-12-31T23:59:00Z",
        "2027-12-31T23:59:00Z",
    );
    check("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
    check("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z");
    check(
        "@every 90s",
        "2026-01-01T00:00:00.7Z",
        "2026-01-01T00:01:30Z",
    );
    check("@every 1ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
}

#[test]
fn a_date_that_never_comes_has_no_next_time() {
    let schedule: Schedule = "0 0 30 2 *".parse().unwrap();
    assert_eq!(
        schedule.next_after(time("2026-01-01T00:00:00Z"), &TimeZone::UTC),
        None
    );
}

#[test]
fn times_are_those_of_the_zone() {
    let zone = TimeZone::fixed(jiff::tz::offset(2));
    check_next(
        "0 8 * * *",
        &zone,
        "2026-01-01T00:00:00Z",
        "2026-01-01T06:00:00Z",
    );
}

#[test]
fn daylight_saving_skips_an_hour_and_repeats_one() {
    let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
    // 2026-03-08 02:30 does not exist.
    check_next(
        "30 2 * * *",
        &zone,
        "2026-03-08T05:00:00Z",
        "2026-03-09T06:30:00Z",
    );
    // 2026-11-01 01:30 occurs twice.
    check_next(
        "30 1 * * *",
        &zone,
        "2026-11-01T04:00:00Z",
        "2026-11-01T05:30:00Z",
    );
    check_next(
        "30 1 * * *",
        &zone,
        "2026-11-01T05:30:00Z",
        "2026-11-01T06:30:00Z",
    );
}

#[test]
fn invalid_schedules_have_upstreams_messages() {
    let check = |schedule: &str, wanted: &str| {
        assert_eq!(
            schedule.parse::<Schedule>().unwrap_err().to_string(),
            wanted,
            "{schedule}"
        );
    };
    check("", "empty spec string");
    check("bad", "expected exactly 5 fields, found 1: [bad]");
    check("* * * *", "expected exactly 5 fields, found 4: [* * * *]");
    check(
        "a * * * *",
        "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
    );
    check(
        "1- * * * *",
        "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
    );
    check(
        "-1 * * * *",
        "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
    );
    check("*/-1 * * * *", "negative number (-1) not allowed: -1");
    check(
        "99999999999999999999 * * * *",
        "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
    );
    check("60 * * * *", "end of range (60) above maximum (59): 60");
    check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
    check("* * * * 7", "end of range (7) above maximum (6): 7");
    check(
        "5-3 * * * *",
        "beginning of range (5) beyond end of range (3): 5-3",
    );
    check(
        "*/0 * * * *",
        "step of range should be a positive number: */0",
    );
    check(
        "70/0 * * * *",
        "beginning of range (70) beyond end of range (59): 70/0",
    );
    check("1-2-3 * * * *", "too many hyphens: 1-2-3");
    check("1/2/3 * * * *", "too many slashes: 1/2/3");
    check("@often", "unrecognized descriptor: @often");
    check("@every", "unrecognized descriptor: @every");
    check(
        "@every x",
        "failed to parse duration @every x: time: invalid duration \"x\"",
    );
    check(
        "@every 5",
        "failed to parse duration @every 5: time: missing unit in duration \"5\"",
    );
    check(
        "@every 5d",
        "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\"",
    );
    check(
        "TZ=Nowhere/Town * * * * *",
        "provided bad location Nowhere/Town: unknown time zone Nowhere/Town",
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[@a-z0-9*?/,\\- ]{0,24}") {
        if let Ok(schedule) = text.parse::<Schedule>() {
            let after = time("2026-05-05T05:05:05Z");
            if let Some(next) = schedule.next_after(after, &TimeZone::UTC) {
                prop_assert!(next > after);
            }
        }
    }

    /// No time between two neighbours is due: asking from there finds the same time.
    #[test]
    fn nothing_lies_between_a_time_and_its_next(
        minute in 0u8..60, hour in 0u8..24, day in 1u8..29, start in 0i64..2_000_000_000, share in 0.0f64..1.0,
    ) {
        let schedule: Schedule = format!("{minute}/7 {hour} {day}/3 * *").parse().unwrap();
        let after = Timestamp::from_second(start).unwrap();
        let next = schedule.next_after(after, &TimeZone::UTC).unwrap();
        let between = start + ((next.as_second() - start - 1) as f64 * share) as i64;
        let between = Timestamp::from_second(between).unwrap();
        prop_assert_eq!(schedule.next_after(between, &TimeZone::UTC), Some(next));
    }
}
