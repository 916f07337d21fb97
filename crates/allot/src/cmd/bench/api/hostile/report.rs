//! The figures beside each other.

use std::io::{self, Write as _, stdout};

use serde_json::{Value, json};

use crate::cmd::bench::api::report::Times;

/// Results of one part.
pub struct Part {
    /// What the hostile clients did.
    pub name: String,
    /// Memory of the server before, in MiB.
    pub before: Option<f64>,
    /// The most memory of the server, in MiB.
    pub peak: Option<f64>,
    /// Requests of the hostile clients that were answered.
    pub done: usize,
    /// Requests of the other client that were not answered.
    pub failures: usize,
    /// Successful requests.
    pub times: Times,
}

impl Part {
    /// As a part of the report.
    pub fn to_json(&self) -> Value {
        let more = self.peak.zip(self.before).map(|(peak, it)| peak - it);
        json!({
            "name": self.name,
            "answered": self.done,
            "failures": self.failures,
            "millis": self.times.percentiles(),
            "beforeMiB": self.before,
            "peakMiB": self.peak,
            "addedMiB": more,
        })
    }
}

/// Prints the report as text.
pub fn print(report: &Value) -> io::Result<()> {
    let mut out = stdout().lock();
    let kind = report["kind"].as_str().unwrap_or_default();
    writeln!(
        out,
        "{} {kind}; GETs of another user meanwhile",
        report["objects"]
    )?;
    writeln!(
        out,
        "{:<12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10}",
        "", "p50 ms", "p90 ms", "p99 ms", "failures", "before MiB", "peak MiB", "answered"
    )?;
    for part in report["parts"].as_array().into_iter().flatten() {
        let millis = |key: &str| part["millis"][key].as_f64().unwrap_or(0.0);
        writeln!(
            out,
            "{:<12} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>11} {:>10} {:>10}",
            part["name"].as_str().unwrap_or_default(),
            millis("p50"),
            millis("p90"),
            millis("p99"),
            part["failures"],
            size(&part["beforeMiB"]),
            size(&part["peakMiB"]),
            part["answered"],
        )?;
    }
    let after = &report["after"];
    writeln!(
        out,
        "memory after the storms: {} MiB, {:.1} s later",
        size(&after["residentMiB"]),
        after["seconds"].as_f64().unwrap_or(0.0)
    )
}

fn size(value: &Value) -> String {
    let known = value.as_f64();
    known.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_part_says_what_a_storm_adds() {
        let part = |before, peak| Part {
            name: "32 lists".to_owned(),
            before,
            peak,
            done: 7,
            failures: 1,
            times: Times::new(Duration::from_secs(1), vec![Duration::from_millis(3)]),
        };
        let shown = part(Some(100.0), Some(112.0)).to_json();
        assert_eq!(shown["addedMiB"], 12.0);
        assert_eq!(shown["millis"]["p99"], 3.0);
        assert_eq!(
            (&shown["answered"], &shown["failures"]),
            (&7.into(), &1.into())
        );
        assert_eq!(part(None, Some(112.0)).to_json()["addedMiB"], Value::Null);
    }
}
