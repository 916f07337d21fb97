//! Results.

use std::io::{self, Write as _, stdout};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cmd::bench::measure::{Process, percentile};

/// Times of the requests of one phase.
pub struct Times {
    took: Duration,
    millis: Vec<f64>,
}

impl Times {
    /// From the time of the whole and of each request.
    pub fn new(took: Duration, each: Vec<Duration>) -> Self {
        let mut millis: Vec<f64> = each.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        millis.sort_by(f64::total_cmp);
        Times { took, millis }
    }

    /// Three percentiles of the latency.
    pub fn percentiles(&self) -> Value {
        json!({
            "p50": percentile(&self.millis, 0.5),
            "p90": percentile(&self.millis, 0.9),
            "p99": percentile(&self.millis, 0.99),
        })
    }

    /// The report of a phase, with what the server used for it.
    pub fn phase(&self, name: &str, before: Server, after: Server) -> Value {
        let count = self.millis.len();
        let cpu = after
            .cpu_seconds
            .zip(before.cpu_seconds)
            .map(|(a, b)| a - b);
        json!({
            "name": name,
            "operations": count,
            "seconds": self.took.as_secs_f64(),
            "perSecond": count as f64 / self.took.as_secs_f64().max(1e-9),
            "millis": self.percentiles(),
            "serverCpuMicrosPerOperation": cpu.map(|cpu| cpu * 1e6 / count.max(1) as f64),
            "serverResidentMiB": after.resident_mib,
        })
    }
}

/// What the server has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Server {
    /// CPU time since its start.
    pub cpu_seconds: Option<f64>,
    /// Memory.
    pub resident_mib: Option<f64>,
}

impl Server {
    /// From the operating system.
    pub fn of_process(process: &Process) -> Self {
        Server {
            cpu_seconds: process.cpu_seconds(),
            resident_mib: process.resident_mib(),
        }
    }

    /// From the server's own metrics.
    pub fn of_metrics(text: &str) -> Self {
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
        };
        Server {
            cpu_seconds: value("process_cpu_seconds_total "),
            resident_mib: value("process_resident_memory_bytes ").map(|b| b / f64::from(1 << 20)),
        }
    }

    /// The state now, with the CPU time since an earlier one.
    pub fn since(self, start: Server) -> Value {
        let cpu = self.cpu_seconds.zip(start.cpu_seconds).map(|(a, b)| a - b);
        json!({"cpuSeconds": cpu, "residentMiB": self.resident_mib})
    }
}

/// Prints the report as text.
pub fn print(report: &Value) -> io::Result<()> {
    writeln!(
        stdout(),
        "{} {}, {} requests at a time",
        report["objects"],
        report["kind"].as_str().unwrap_or_default(),
        report["parallel"]
    )?;
    writeln!(
        stdout(),
        "{:<8} {:>8} {:>10} {:>9} {:>9} {:>9} {:>12}",
        "",
        "ops",
        "ops/s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "server us/op"
    )?;
    let f = |value: &Value| value.as_f64().unwrap_or(0.0);
    let optional = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    };
    let phases = report["phases"].as_array().into_iter().flatten();
    for phase in phases.chain(Some(&report["list"]).filter(|list| list.is_object())) {
        writeln!(
            stdout(),
            "{:<8} {:>8} {:>10.0} {:>9.2} {:>9.2} {:>9.2} {:>12}",
            phase["name"].as_str().unwrap_or_default(),
            phase["operations"],
            f(&phase["perSecond"]),
            f(&phase["millis"]["p50"]),
            f(&phase["millis"]["p90"]),
            f(&phase["millis"]["p99"]),
            optional(&phase["serverCpuMicrosPerOperation"]),
        )?;
    }
    let watch = &report["watch"];
    if watch.is_object() {
        writeln!(
            stdout(),
            "watch: {} changes to {} watchers, delivered after p50 {:.2}  p90 {:.2}  p99 {:.2} ms, {} missing",
            watch["changes"],
            watch["watchers"],
            f(&watch["millis"]["p50"]),
            f(&watch["millis"]["p90"]),
            f(&watch["millis"]["p99"]),
            watch["missing"],
        )?;
    }
    writeln!(
        stdout(),
        "server: CPU {:.2} s, memory {} MiB",
        f(&report["server"]["cpuSeconds"]),
        optional(&report["server"]["residentMiB"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_says_what_each_operation_cost() {
        let times = Times::new(
            Duration::from_secs(2),
            (1..=100).map(Duration::from_millis).collect(),
        );
        let server = |cpu| Server {
            cpu_seconds: Some(cpu),
            resident_mib: None,
        };
        let phase = times.phase("get", server(1.0), server(1.5));
        assert_eq!(phase["perSecond"], 50.0);
        assert_eq!(phase["millis"]["p99"], 99.0);
        assert_eq!(phase["serverCpuMicrosPerOperation"], 5000.0);
    }

    #[test]
    fn metrics_are_read() {
        let text = "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n\
                    process_resident_memory_bytes 1.048576e+07\n";
        let server = Server::of_metrics(text);
        assert_eq!(
            (server.cpu_seconds, server.resident_mib),
            (Some(1.5), Some(10.0))
        );
        assert_eq!(Server::of_metrics(""), Server::default());
    }
}
