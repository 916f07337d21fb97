//! The numbers that docs/SPECIFICATION.md promises.

use std::fmt;
use std::time::Duration;

use anyhow::Context;

/// The measurements of the demo.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measured {
    /// Milliseconds from the start of the process until the cluster was ready.
    ready_ms: u128,
    /// Milliseconds from the start of the process until the first pod with a device ran.
    first_pod_since_start_ms: u128,
    /// Milliseconds from applying its manifest until the first pod with a device ran.
    first_pod_since_apply_ms: u128,
    /// Resident memory of the cluster's process with one running pod, bytes.
    resident_bytes: u64,
    /// Size of the program, bytes.
    binary_bytes: u64,
}

impl Measured {
    pub(super) fn new(
        ready: Duration,
        since_start: Duration,
        since_apply: Duration,
        resident_bytes: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            ready_ms: ready.as_millis(),
            first_pod_since_start_ms: since_start.as_millis(),
            first_pod_since_apply_ms: since_apply.as_millis(),
            resident_bytes,
            binary_bytes: std::fs::metadata(std::env::current_exe()?)?.len(),
        })
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MB: f64 = 1e6;
        writeln!(
            f,
            "# ready after                    {:>6} ms",
            self.ready_ms
        )?;
        writeln!(
            f,
            "# first pod with a device after  {:>6} ms",
            self.first_pod_since_start_ms
        )?;
        writeln!(
            f,
            "#   of that since apply          {:>6} ms",
            self.first_pod_since_apply_ms
        )?;
        writeln!(
            f,
            "# resident memory                {:>6.1} MB",
            self.resident_bytes as f64 / MB
        )?;
        write!(
            f,
            "# size of the program            {:>6.1} MB",
            self.binary_bytes as f64 / MB
        )
    }
}

/// Resident memory of this process in bytes.
pub(super) fn resident() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read memory use")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line
        .and_then(|rest| rest.split_whitespace().next())
        .context("no VmRSS")?;
    Ok(kilobytes.parse::<u64>()? * 1024)
}
