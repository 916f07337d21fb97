use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn of_many_missed_times_the_last_one_counts() {
    let check = |schedule: &str, since: &str, now: &str, wanted: Option<&str>| {
        let schedule: Schedule = schedule.parse().unwrap();
        let found = last_between(&schedule, at(since), at(now), &TimeZone::UTC);
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
