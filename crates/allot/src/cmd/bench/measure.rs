//! Samples and statistics.

use std::path::Path;
use std::time::{Duration, Instant};

/// Moments at which pods were created and seen bound.
#[derive(Debug, Default)]
pub struct Bound {
    moments: Vec<Instant>,
    latencies: Vec<Duration>,
    behind: Vec<Duration>,
}

impl Bound {
    /// Notes that a pod was seen bound.
    pub fn note(&mut self, created: Option<Instant>, now: Instant) {
        self.moments.push(now);
        self.latencies
            .extend(created.map(|c| now.saturating_duration_since(c)));
    }

    /// Records the binding of a pod that was created right after one that fits nowhere.
    pub fn note_behind(&mut self, created: Instant, now: Instant) {
        self.behind.push(now.saturating_duration_since(created));
    }

    /// How many pods were bound.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Pods per second from `start` to the last one.
    pub fn average(&self, start: Instant) -> f64 {
        match self.moments.last() {
            Some(last) => {
                self.moments.len() as f64
                    / last
                        .saturating_duration_since(start)
                        .as_secs_f64()
                        .max(1e-9)
            }
            None => 0.0,
        }
    }

    /// Pods per second in windows of `window`, sorted.
    pub fn rates(&self, start: Instant, window: Duration) -> Vec<f64> {
        let Some(last) = self.moments.last() else {
            return Vec::new();
        };
        let whole = last.saturating_duration_since(start).as_secs_f64() / window.as_secs_f64();
        let mut counts = vec![0usize; (whole.floor() as usize).max(1)];
        for moment in &self.moments {
            let at = (moment.saturating_duration_since(start).as_secs_f64() / window.as_secs_f64())
                as usize;
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        let mut rates: Vec<f64> = counts
            .into_iter()
            .map(|n| n as f64 / window.as_secs_f64())
            .collect();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// Times from creation to binding in milliseconds, sorted.
    pub fn latencies(&self) -> Vec<f64> {
        millis(&self.latencies)
    }

    /// The same of the pods that were created right after one that fits nowhere.
    pub fn latencies_behind(&self) -> Vec<f64> {
        millis(&self.behind)
    }
}

/// Milliseconds, sorted.
pub fn millis(durations: &[Duration]) -> Vec<f64> {
    let mut out: Vec<f64> = durations.iter().map(|l| l.as_secs_f64() * 1e3).collect();
    out.sort_by(f64::total_cmp);
    out
}

/// The value below which `share` of the sorted values are.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n => sorted[((n as f64 * share).ceil() as usize).clamp(1, n) - 1],
    }
}

/// A process to watch.
#[derive(Debug, Clone)]
pub struct Process {
    /// What to call it.
    pub label: String,
    pid: u32,
}

impl std::str::FromStr for Process {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, pid) = text.split_once('=').ok_or("want NAME=PID")?;
        let pid = pid
            .parse()
            .map_err(|_| format!("{pid:?} is not a process id"))?;
        Ok(Self {
            label: label.to_owned(),
            pid,
        })
    }
}

impl Process {
    /// CPU seconds used so far, by user and system.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let stat =
            std::fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join("stat"))
                .ok()?;
        // The name may contain anything; the numbers follow the last parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// A process by its id.
    pub fn new(label: &str, pid: u32) -> Self {
        let label = label.to_owned();
        Self { label, pid }
    }

    /// Resident memory in MiB.
    pub fn resident_mib(&self) -> Option<f64> {
        self.memory_mib("VmRSS:")
    }

    /// The most resident memory so far, in MiB.
    pub fn peak_mib(&self) -> Option<f64> {
        self.memory_mib("VmHWM:")
    }

    fn memory_mib(&self, name: &str) -> Option<f64> {
        let status =
            std::fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join("status"))
                .ok()?;
        let line = status.lines().find(|line| line.starts_with(name))?;
        let kib = line.split_whitespace().nth(1)?.parse::<f64>().ok()?;
        Some(kib / 1024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 50.0);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(percentile(&[7.0], 0.01), 7.0);
    }

    #[test]
    fn rates_count_whole_windows() {
        let start = Instant::now();
        let mut bound = Bound::default();
        for i in 0..100u64 {
            bound.note(Some(start), start + Duration::from_millis(i * 20));
        }
        assert_eq!(bound.rates(start, Duration::from_secs(1)), [50.0]);
        assert!((bound.average(start) - 50.5).abs() < 0.1);
        assert_eq!(bound.latencies().last(), Some(&1980.0));
    }

    #[test]
    fn processes_are_named() {
        assert!("api=12".parse::<Process>().is_ok());
        assert!("api".parse::<Process>().is_err());
        let own: Process = format!("own={}", std::process::id())
            .parse()
            .expect("valid");
        assert!(own.cpu_seconds().is_some() && own.resident_mib().is_some_and(|m| m > 0.0));
    }
}
