//! `process_*` metrics, with the names and units of Prometheus' own clients.

use std::fmt::Write as _;

/// One page in the text format 0.0.4; values that `/proc` does not provide are left out.
pub fn metrics() -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        }
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |index| field(&stat, index).map(|value| value / ticks);
    add(
        "process_cpu_seconds_total",
        "counter",
        "Total user and system CPU time spent in seconds.",
        seconds(13)
            .zip(seconds(14))
            .map(|(user, system)| user + system),
    );
    add(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size in bytes.",
        field(&stat, 23).map(|pages| pages * rustix::param::page_size() as f64),
    );
    add(
        "process_virtual_memory_bytes",
        "gauge",
        "Virtual memory size in bytes.",
        field(&stat, 22),
    );
    add(
        "process_open_fds",
        "gauge",
        "Number of open file descriptors.",
        std::fs::read_dir("/proc/self/fd")
            .ok()
            .map(|all| all.count().saturating_sub(1) as f64),
    );
    add(
        "process_max_fds",
        "gauge",
        "Maximum number of open file descriptors.",
        rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .map(|limit| limit as f64),
    );
    add(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
        seconds(21)
            .zip(boot_time())
            .map(|(since, boot)| boot + since),
    );
    text
}

/// A field of `/proc/self/stat`, counted from 0. The program's name, which is the second, may contain spaces.
fn field(stat: &str, index: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ')
        .nth(index.checked_sub(2)?)?
        .trim()
        .parse()
        .ok()
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{field, metrics};

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 1 2 3 4 150 50 0";
        assert_eq!(field(stat, 13), Some(150.0));
        assert_eq!(field(stat, 14), Some(50.0));
        assert_eq!(field(stat, 0), None);
        assert_eq!(field("", 13), None);
    }

    #[test]
    fn this_process_is_measured() {
        let page = metrics();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_start_time_seconds",
        ] {
            let kind = format!("# TYPE {name} ");
            assert!(page.contains(&kind), "{name} in {page}");
            let sample = page
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name} ")));
            let value: f64 = sample.and_then(|value| value.parse().ok()).unwrap_or(-1.0);
            assert!(value >= 0.0, "{name} in {page}");
        }
    }
}
