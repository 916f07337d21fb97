//! Preemption and nominations for pods.

use std::io::{self, Write};

use allot_scheduler::core::Expected;
use serde::Serialize;

use super::Report;
use crate::cmd::some;

/// A node that others leave for a pod.
#[derive(Debug, Serialize)]
pub(super) struct PreemptionNode {
    node: String,
    /// The terminating victims.
    leaving: Vec<String>,
}

impl From<Expected> for PreemptionNode {
    fn from(expected: Expected) -> Self {
        let leaving = expected.leaving.iter().map(ToString::to_string);
        Self {
            node: expected.node.to_string(),
            leaving: leaving.collect(),
        }
    }
}

impl Report {
    /// Prints where pods are preempted for it, and which nodes are reserved for other pods.
    pub(super) fn print_preemption(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(PreemptionNode { node, leaving }) = &self.expected {
            match leaving.is_empty() {
                true => writeln!(out, "  it is expected on {node}")?,
                false => writeln!(out, "  it waits for {} to leave {node}", some(leaving))?,
            }
        }
        for answer in self.nodes.iter().filter(|answer| !answer.fits) {
            let others = &answer.kept_for;
            if !others.is_empty() {
                writeln!(
                    out,
                    "  room on {} is kept for {}",
                    answer.node,
                    some(others)
                )?;
            }
        }
        Ok(())
    }
}
