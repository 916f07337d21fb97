//! Results, as JSON and as text.

use std::io::{self, Write as _, stdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::measure::{Bound, percentile};
use super::Bench;

impl Bench {
    pub(super) fn report(
        &self,
        bound: &Bound,
        start: Instant,
        took: Duration,
        writes: u64,
        attempts: Option<f64>,
        cpu: &[Option<f64>],
    ) -> Value {
        let rates = bound.rates(start, Duration::from_secs(1));
        let latencies = bound.latencies();
        let four = |sorted: &[f64]| {
            json!({
                "p50": percentile(sorted, 0.5),
                "p90": percentile(sorted, 0.9),
                "p95": percentile(sorted, 0.95),
                "p99": percentile(sorted, 0.99),
            })
        };
        let pods = bound.len().max(1) as f64;
        let processes: Vec<Value> = self
            .args
            .process
            .iter()
            .zip(cpu)
            .map(|(p, before)| {
                let used = p.cpu_seconds().zip(*before).map(|(a, b)| a - b);
                json!({
                    "name": p.label,
                    "cpuSeconds": used,
                    "cpuMillisPerPod": used.map(|u| u * 1e3 / pods),
                    "residentMiB": p.resident_mib(),
                })
            })
            .collect();
        json!({
            "workload": self.workload.name,
            "nodes": self.workload.nodes,
            "initPods": self.workload.init,
            "pods": bound.len(),
            "seconds": took.as_secs_f64(),
            "podsPerSecond": bound.average(start),
            "podsPerSecondPercentiles": four(&rates),
            "createToBoundMillis": four(&latencies),
            "behindImpossibleMillis": (self.args.impossible > 0).then(|| four(&bound.latencies_behind())),
            "attempts": attempts,
            "apiWritesPerPod": writes as f64 / pods,
            "processes": processes,
        })
    }
}

pub(super) fn print_text(report: &Value) -> io::Result<()> {
    let f = |v: &Value| v.as_f64().unwrap_or(0.0);
    writeln!(
        stdout(),
        "workload {} on {} nodes",
        report["workload"].as_str().unwrap_or_default(),
        report["nodes"]
    )?;
    if report["slices"].is_u64() {
        writeln!(stdout(), "slices/s {:.0}", f(&report["slicesPerSecond"]))?;
        return Ok(());
    }
    writeln!(
        stdout(),
        "pods {} in {:.2} s, before {}",
        report["pods"],
        f(&report["seconds"]),
        report["initPods"]
    )?;
    let four = |v: &Value| {
        format!(
            "p50 {:.0}  p90 {:.0}  p95 {:.0}  p99 {:.0}",
            f(&v["p50"]),
            f(&v["p90"]),
            f(&v["p95"]),
            f(&v["p99"])
        )
    };
    writeln!(
        stdout(),
        "pods/s average {:.0}  {}",
        f(&report["podsPerSecond"]),
        four(&report["podsPerSecondPercentiles"])
    )?;
    writeln!(
        stdout(),
        "created to bound (ms) {}",
        four(&report["createToBoundMillis"])
    )?;
    if report["behindImpossibleMillis"].is_object() {
        writeln!(
            stdout(),
            "right behind a pod that fits nowhere (ms) {}",
            four(&report["behindImpossibleMillis"])
        )?;
    }
    if let Some(attempts) = report["attempts"].as_f64() {
        writeln!(stdout(), "attempts {attempts:.0}")?;
    }
    writeln!(
        stdout(),
        "API writes per pod {:.2}",
        f(&report["apiWritesPerPod"])
    )?;
    for p in report["processes"].as_array().into_iter().flatten() {
        writeln!(
            stdout(),
            "{} CPU {:.2} s ({:.2} ms per pod), memory {:.0} MiB",
            p["name"].as_str().unwrap_or_default(),
            f(&p["cpuSeconds"]),
            f(&p["cpuMillisPerPod"]),
            f(&p["residentMiB"])
        )?;
    }
    Ok(())
}
