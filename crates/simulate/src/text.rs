//! The report for people.

use std::fmt::Write as _;
use std::time::Duration;

use crate::report::{Report, TimeSeries};
use crate::time::shown;

/// The number of pods and preemptions that are listed one by one.
const MOST_LINES: usize = 40;

impl Report {
    /// The report as text. `every_pod`: all pods are listed, however many there are.
    #[must_use]
    pub fn to_text(&self, every_pod: bool) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut text, every_pod);
        text
    }

    fn write(&self, out: &mut String, every_pod: bool) -> std::fmt::Result {
        let s = &self.summary;
        for (name, value) in &self.about {
            writeln!(out, "{name}: {value}")?;
        }
        let lasted = shown(Duration::try_from_secs_f64(s.duration).unwrap_or_default());
        writeln!(
            out,
            "{} nodes, {} devices; {} pods arrived, {} were there before; {lasted} simulated",
            s.nodes, s.devices, s.arrived, s.found
        )?;
        writeln!(
            out,
            "placed {}, completed {}, preempted {}, waiting {}",
            s.placed, s.completed, s.preempted, s.waiting
        )?;
        let w = &s.wait;
        writeln!(
            out,
            "wait for a node: mean {} s, p50 {} s, p90 {} s, p99 {} s, longest {} s",
            w.mean, w.p50, w.p90, w.p99, w.max
        )?;
        course(out, "devices in use", &s.devices_in_use)?;
        course(
            out,
            "free devices in pieces that are too small",
            &s.fragmentation,
        )?;
        course(out, "processors requested", &s.cpu)?;
        course(out, "memory requested", &s.memory)?;
        if let Some(first) = &s.first_refusal {
            writeln!(
                out,
                "first refusal: {} at {} s, after {} pods: {}",
                first.pod, first.at, first.placed_before, first.message
            )?;
        }
        self.write_pods(out, every_pod)?;
        self.write_preemptions(out)?;
        for group in &self.waiting {
            let message = match &*group.message {
                "" => {
                    "not tried: it has a scheduling gate, or names a claim or template that does not exist"
                }
                message => message,
            };
            let more = group.count - group.pods.len();
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            writeln!(out, "waiting: {}{more}: {message}", group.pods.join(", "))?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    }

    fn write_pods(&self, out: &mut String, every_pod: bool) -> std::fmt::Result {
        let placed = self.pods.iter().filter(|pod| pod.placed.is_some());
        if !every_pod && placed.clone().count() > MOST_LINES {
            return Ok(());
        }
        for pod in placed {
            let at = pod.placed.unwrap_or_default();
            write!(out, "{at} s: {} on {}", pod.pod, pod.node)?;
            if !pod.devices.is_empty() {
                write!(out, " with {}", pod.devices.join(", "))?;
            }
            if let Some(ended) = pod.ended {
                write!(out, ", {} at {ended} s", pod.end)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_preemptions(&self, out: &mut String) -> std::fmt::Result {
        for p in self.preemptions.iter().take(MOST_LINES) {
            let (at, victim, preemptor, node) = (p.at, &p.victim, &p.preemptor, &p.node);
            writeln!(out, "{at} s: {victim} on {node} makes way for {preemptor}")?;
        }
        match self.preemptions.len().saturating_sub(MOST_LINES) {
            0 => Ok(()),
            more => writeln!(out, "and {more} more preemptions"),
        }
    }
}

fn course(out: &mut String, what: &str, course: &TimeSeries) -> std::fmt::Result {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    writeln!(
        out,
        "{what}: mean {}, at most {}, in the end {}",
        percent(course.mean),
        percent(course.peak),
        percent(course.end)
    )
}
