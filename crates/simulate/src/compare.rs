//! Comparison of two simulations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::measure::rounded;
use crate::report::{Pod, Report, Summary};

/// The number of pods that are listed one by one.
const SHOWN: usize = 20;

/// How two simulations differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The numbers, by name: before, now.
    pub numbers: BTreeMap<&'static str, [f64; 2]>,
    /// How many more pods were placed before the first refusal, in percent; `None` where one of them had no refusal.
    pub more_before_refusal: Option<f64>,
    /// Pods of both that went to other nodes or devices.
    pub moved: Vec<Moved>,
    /// Pods that only the first one placed.
    pub lost: Vec<String>,
    /// Pods that only the second one placed.
    pub gained: Vec<String>,
}

/// A pod that went elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moved {
    /// `namespace/name`.
    pub pod: String,
    /// Node and devices before.
    pub before: String,
    /// Node and devices now.
    pub now: String,
}

type Number = fn(&Summary) -> f64;

const NUMBERS: [(&str, Number); 15] = [
    ("placed", |s| s.placed as f64),
    ("completed", |s| s.completed as f64),
    ("preempted", |s| s.preempted as f64),
    ("waiting", |s| s.waiting as f64),
    ("attempts", |s| s.attempts as f64),
    ("duration", |s| s.duration),
    ("wait.mean", |s| s.wait.mean),
    ("wait.p50", |s| s.wait.p50),
    ("wait.p99", |s| s.wait.p99),
    ("devicesInUse.mean", |s| s.devices_in_use.mean),
    ("devicesInUse.end", |s| s.devices_in_use.end),
    ("fragmentation.mean", |s| s.fragmentation.mean),
    ("fragmentation.end", |s| s.fragmentation.end),
    ("cpu.mean", |s| s.cpu.mean),
    ("placedBeforeRefusal", |s| {
        let first = s.first_refusal.as_ref();
        first.map_or(s.placed, |f| f.placed_before) as f64
    }),
];

/// Compares two simulations, the first as the one before.
#[must_use]
pub fn compare(before: &Report, now: &Report) -> Comparison {
    let numbers = NUMBERS
        .iter()
        .map(|(name, of)| (*name, [of(&before.summary), of(&now.summary)]));
    let refusals = (&before.summary.first_refusal, &now.summary.first_refusal);
    let more_before_refusal = match refusals {
        (Some(before), Some(now)) if before.placed_before > 0 => {
            let ratio = now.placed_before as f64 / before.placed_before as f64;
            Some(rounded((ratio - 1.0) * 100.0))
        }
        _ => None,
    };
    let placed = |report: &Report| -> BTreeMap<String, String> {
        let placed = report.pods.iter().filter(|pod| pod.placed.is_some());
        placed.map(|pod| (pod.pod.clone(), place(pod))).collect()
    };
    let (was, is) = (placed(before), placed(now));
    let only = |of: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let missing = of.keys().filter(|pod| !other.contains_key(*pod));
        missing.cloned().collect()
    };
    let moved = was.iter().filter_map(|(pod, before)| {
        let now = is.get(pod).filter(|now| *now != before)?;
        Some(Moved {
            pod: pod.clone(),
            before: before.clone(),
            now: now.clone(),
        })
    });
    Comparison {
        numbers: numbers.collect(),
        more_before_refusal,
        moved: moved.collect(),
        lost: only(&was, &is),
        gained: only(&is, &was),
    }
}

fn place(pod: &Pod) -> String {
    match pod.devices.is_empty() {
        true => pod.node.clone(),
        false => format!("{} with {}", pod.node, pod.devices.join(", ")),
    }
}

impl Comparison {
    /// The comparison as lines for a terminal; of long lists of pods only the first are shown.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        for (name, [before, now]) in &self.numbers {
            match before == now {
                true => writeln!(out, "{name}: {now}, as before")?,
                false => writeln!(out, "{name}: {now}, before {before}")?,
            }
        }
        if let Some(percent) = self.more_before_refusal {
            writeln!(out, "{percent:+.1} % pods placed before the first refusal")?;
        }
        for (what, pods) in [
            ("no longer placed", &self.lost),
            ("newly placed", &self.gained),
        ] {
            if pods.is_empty() {
                continue;
            }
            let shown = pods[..pods.len().min(SHOWN)].join(", ");
            writeln!(out, "{what}: {}: {shown}", pods.len())?;
        }
        if !self.moved.is_empty() {
            writeln!(out, "placed elsewhere: {}", self.moved.len())?;
        }
        for moved in self.moved.iter().take(SHOWN) {
            writeln!(
                out,
                "  {}: {}, before {}",
                moved.pod, moved.now, moved.before
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Refusal;

    fn report(pods: &[(&str, &str)], before_refusal: usize) -> Report {
        let mut report = Report::default();
        report.summary.placed = pods.len();
        report.summary.first_refusal = Some(Refusal {
            placed_before: before_refusal,
            ..Refusal::default()
        });
        for (pod, node) in pods {
            report.pods.push(Pod {
                pod: (*pod).to_owned(),
                placed: Some(0.0),
                node: (*node).to_owned(),
                ..Pod::default()
            });
        }
        report
    }

    #[test]
    fn what_differs_is_told() {
        let before = report(&[("a", "n1"), ("b", "n1"), ("c", "n1")], 10);
        let now = report(&[("a", "n1"), ("b", "n2"), ("d", "n1")], 12);
        let comparison = compare(&before, &now);
        assert_eq!(comparison.more_before_refusal, Some(20.0));
        assert_eq!(
            (&*comparison.lost, &*comparison.gained),
            (&["c".to_owned()][..], &["d".to_owned()][..])
        );
        assert_eq!(comparison.moved.len(), 1);
        let text = comparison.to_text();
        for line in [
            "placed: 3, as before",
            "placedBeforeRefusal: 12, before 10",
            "+20.0 % pods placed before the first refusal",
            "no longer placed: 1: c",
            "  b: n2, before n1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
