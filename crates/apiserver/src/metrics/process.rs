//! `process_*`: this process, with the names and units of Prometheus' own clients.

use std::sync::atomic::AtomicU64;

use allot_apimachinery::exposition::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The unit of times in /proc, on every architecture that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

/// The metrics; without /proc they stay zero.
#[derive(Default)]
pub(super) struct Process {
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    virtual_memory: Gauge,
    open_files: Gauge,
    max_files: Gauge,
    started: Gauge<f64, AtomicU64>,
}

impl Process {
    /// Adds them to a page.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Process::default();
        // The library adds `_total` to the names of counters.
        registry.register(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            this.cpu.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            this.resident.clone(),
        );
        registry.register(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes",
            this.virtual_memory.clone(),
        );
        registry.register(
            "process_open_fds",
            "Number of open file descriptors",
            this.open_files.clone(),
        );
        registry.register(
            "process_max_fds",
            "Maximum number of open file descriptors",
            this.max_files.clone(),
        );
        registry.register(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            this.started.clone(),
        );
        this
    }

    /// Reads what they are now.
    pub(super) fn read(&self) {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let stat = read("/proc/self/stat");
        let seconds = |index| field(&stat, index).map(|ticks| ticks / TICKS_PER_SECOND);
        if let (Some(user), Some(system)) = (seconds(13), seconds(14)) {
            // The counter supports increments only.
            self.cpu.inc_by((user + system - self.cpu.get()).max(0.0));
        }
        let status = read("/proc/self/status");
        for (name, gauge) in [
            ("VmRSS:", &self.resident),
            ("VmSize:", &self.virtual_memory),
        ] {
            if let Some(kib) = number_after(&status, name) {
                gauge.set(kib.saturating_mul(1024));
            }
        }
        if let Some(limit) = number_after(&read("/proc/self/limits"), "Max open files") {
            self.max_files.set(limit);
        }
        if let Ok(all) = std::fs::read_dir("/proc/self/fd") {
            // Without the directory itself, which is open now.
            let count = all.count().saturating_sub(1);
            self.open_files
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        if let (Some(since), Some(boot)) = (seconds(21), number_after(&read("/proc/stat"), "btime"))
        {
            self.started.set(boot as f64 + since);
        }
    }
}

/// The metrics of this process as one page in the text format 0.0.4, for components that serve their own.
pub fn process_metrics() -> String {
    let mut registry = Registry::default();
    Process::register(&mut registry).read();
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut page, &registry);
    prometheus_text(&page)
}

/// A field of `/proc/self/stat`, counted from 0. The program's name, which is the second, may contain spaces.
fn field(stat: &str, index: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(index.checked_sub(2)?);
    fields.next()?.parse().ok()
}

/// The first number of the line that begins with a name.
fn number_after(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{field, number_after, process_metrics};

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 1 2 3 4 150 50 0";
        assert_eq!(field(stat, 13), Some(150.0));
        assert_eq!(field(stat, 14), Some(50.0));
        assert_eq!(field("", 13), None);
    }

    #[test]
    fn this_process_is_measured() {
        let page = process_metrics();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
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

    #[test]
    fn numbers_are_found_by_the_names_of_their_lines() {
        let text = "VmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nMax open files  20  40  files\n";
        assert_eq!(number_after(text, "VmRSS:"), Some(1024));
        assert_eq!(number_after(text, "Max open files"), Some(20));
        assert_eq!(number_after(text, "btime"), None);
    }
}
