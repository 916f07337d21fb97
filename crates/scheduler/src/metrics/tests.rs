//! The names of the metrics, and the documents that name them.

use super::*;

#[test]
fn names_are_those_of_upstream() {
    let metrics = Metrics::new();
    metrics.attempt(
        "default-scheduler",
        Outcome::Scheduled,
        Duration::from_millis(3),
    );
    metrics.bound(1, Duration::from_millis(5));
    metrics.claim_created(true);
    metrics.record_work(Work {
        nodes: 2,
        steps: 7,
        gave_up: 0,
    });
    let (point, end) = (Point::PreFilter, End::Success);
    metrics.point(point, "default-scheduler", end, Duration::from_micros(150));
    let text = metrics.encode();
    for expected in [
        "scheduler_framework_extension_point_duration_seconds_bucket{le=\"0.0002\",extension_point=\"PreFilter\",profile=\"default-scheduler\",status=\"Success\"} 1",
        "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1",
        "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"1\"} 1",
        "scheduler_resourceclaim_creates_total{status=\"success\"} 1",
        "scheduler_allot_allocator_steps_total 7",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

/// The chart's alerts and dashboard name metrics that exist, and the operator's handbook explains each of ours.
#[test]
fn the_chart_and_the_handbook_name_what_there_is() {
    let sources = [
        include_str!("../metrics.rs"),
        include_str!("fullness.rs"),
        include_str!("points.rs"),
    ]
    .concat();
    let chart = [
        include_str!("../../../../charts/allot/files/alerts.yaml"),
        include_str!("../../../../charts/allot/files/dashboard.json"),
    ]
    .concat();
    let words = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names = words.filter(|word| word.starts_with("scheduler_"));
        names.map(str::to_owned).collect()
    };
    let names = words(&chart);
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let suffixes = ["_total", "_bucket", "_count", "_sum"];
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        let base = base.unwrap_or(&name);
        let dynamic = base.starts_with("scheduler_allot_allocator_");
        assert!(
            dynamic || sources.contains(&format!("\"{base}\"")),
            "{name}"
        );
    }
    let handbook = words(include_str!("../../../../docs/OPERATIONS.md"));
    for name in words(&sources).iter().filter(|name| {
        let word = name.trim_end_matches('_');
        word.starts_with("scheduler_allot_") && word.len() == name.len()
    }) {
        let known = handbook.iter().any(|it| it.starts_with(name.as_str()));
        assert!(known, "docs/OPERATIONS.md does not explain {name}");
    }
}
