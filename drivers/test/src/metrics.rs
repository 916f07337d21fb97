//! What the kubelet plugin counts.

use std::collections::BTreeMap;
use std::fmt::Write;

use parking_lot::Mutex;

const NAME: &str = "dra_driver_operations_total";

/// Calls of the kubelet, by operation and whether they failed.
#[derive(Debug, Default)]
pub struct Operations(Mutex<BTreeMap<(&'static str, bool), u64>>);

impl Operations {
    /// Counts one, and hands its result on.
    pub(crate) fn count<T, E>(
        &self,
        operation: &'static str,
        result: Result<T, E>,
    ) -> Result<T, E> {
        let mut counts = self.0.lock();
        *counts.entry((operation, result.is_err())).or_default() += 1;
        result
    }

    /// All counts in Prometheus' text form.
    pub fn encode(&self) -> String {
        let mut text = format!(
            "# HELP {NAME} Claims that the kubelet asked to prepare or to give back\n# TYPE {NAME} counter\n"
        );
        for ((operation, failed), count) in &*self.0.lock() {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{NAME}{{is_error=\"{failed}\",operation=\"{operation}\"}} {count}"
            );
        }
        text
    }
}
