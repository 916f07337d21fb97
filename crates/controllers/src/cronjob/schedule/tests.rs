use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn next_times() {
    let check = |schedule: &str, after: &str, wanted: &str| {
        let schedule: Schedule = schedule.parse().unwrap();
        assert_eq!(
            schedule.next_after(at(after), &TimeZone::UTC),
            Some(at(wanted)),
            "{schedule:?}"
        );
    };
    check("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z");
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
    // Day of month and day of week are alternatives when both are given.
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
    check("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z");
    check("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
    check("@every 90s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z");
}

#[test]
fn wrong_schedules_are_named() {
    let check = |schedule: &str, wanted: &str| {
        assert_eq!(
            schedule.parse::<Schedule>().unwrap_err().to_string(),
            wanted
        );
    };
    check("* * * *", "expected exactly 5 fields, found 4: \"* * * *\"");
    check("60 * * * *", "failed to parse \"60\"");
    check("* * 0 * *", "failed to parse \"0\"");
    check("*/0 * * * *", "failed to parse \"*/0\"");
    check("5-3 * * * *", "failed to parse \"5-3\"");
    check("* * * foo *", "failed to parse \"foo\"");
    check("@sometimes", "unrecognized descriptor: @sometimes");
}

#[test]
fn of_many_missed_times_the_last_one_counts() {
    let check = |schedule: &str, since: &str, now: &str, wanted: Option<&str>| {
        let schedule: Schedule = schedule.parse().unwrap();
        let found = schedule.last_between(at(since), at(now), &TimeZone::UTC);
        assert_eq!(found, wanted.map(at), "{schedule:?}");
    };
    check(
        "* * * * *",
        "2020-01-01T00:00:00Z",
        "2026-01-01T00:00:30Z",
        Some("2026-01-01T00:00:00Z"),
    );
    check(
        "0 0 1 1 *",
        "2020-05-01T00:00:00Z",
        "2026-05-01T00:00:00Z",
        Some("2026-01-01T00:00:00Z"),
    );
    check(
        "0 0 * * *",
        "2026-01-01T00:00:00Z",
        "2026-01-01T12:00:00Z",
        None,
    );
    check(
        "@every 1h",
        "2026-01-01T00:00:00Z",
        "2026-01-01T02:30:00Z",
        Some("2026-01-01T02:00:00Z"),
    );
}

#[test]
fn times_are_those_of_the_zone() {
    let schedule: Schedule = "0 8 * * *".parse().unwrap();
    let zone = TimeZone::fixed(jiff::tz::offset(2));
    assert_eq!(
        schedule.next_after(at("2026-01-01T00:00:00Z"), &zone),
        Some(at("2026-01-01T06:00:00Z"))
    );
}
