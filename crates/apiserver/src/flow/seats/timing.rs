//! For how long a ratio had which values.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A histogram of the time that a ratio had each value: as if it were observed at the end of every nanosecond, like
/// upstream's timing histograms.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Upper bounds of the values, and nanoseconds.
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl Timing {
    /// With these upper bounds.
    pub fn new(bounds: &[f64]) -> Self {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        Timing {
            buckets: bounds.map(|bound| (bound, 0)).collect(),
            sum: 0.0,
        }
    }

    /// The ratio has had a value for some time, in seconds.
    pub fn pass(&mut self, seconds: f64, ratio: f64) {
        // Time does not go back, and no process runs for centuries: the cast neither wraps nor loses what matters.
        let nanos = (seconds.max(0.0) * 1e9) as u64;
        let mut buckets = self.buckets.iter_mut();
        if let Some((_, passed)) = buckets.find(|(bound, _)| ratio <= *bound) {
            *passed += nanos;
        }
        self.sum += ratio * nanos as f64;
    }
}

/// A [`Timing`] as it was last shown, as a metric. What is counted for each request needs no lock of its own. Cloning
/// shares it.
#[derive(Debug, Clone)]
pub struct ShownTiming(Arc<Mutex<Timing>>);

impl Default for ShownTiming {
    fn default() -> Self {
        ShownTiming(Arc::new(Mutex::new(Timing::new(&[]))))
    }
}

impl ShownTiming {
    /// Shows what has been counted.
    pub fn show(&self, timing: &Timing) {
        self.0.lock().clone_from(timing);
    }
}

impl TypedMetric for ShownTiming {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for ShownTiming {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let timing = self.0.lock();
        let count = timing.buckets.iter().map(|(_, nanos)| nanos).sum();
        encoder.encode_histogram::<NoLabelSet>(timing.sum, count, &timing.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// What is told about the use of a level over time.
#[derive(Debug, Clone)]
pub struct Use {
    /// Seats in use, as a part of the level's own; all of them if it borrows.
    pub seats: Timing,
    /// Requests that run, as a part of the seats.
    pub executing: Timing,
    /// Requests that wait, as a part of what the queues can hold.
    pub waiting: Timing,
    /// Seats in use or waited for, as a part of the level's own.
    pub demand: Timing,
}

impl Default for Use {
    /// With upstream's bounds.
    fn default() -> Self {
        let requests = [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
        Use {
            seats: Timing::new(&[
                0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
            ]),
            executing: Timing::new(&requests),
            waiting: Timing::new(&requests),
            demand: Timing::new(&[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn time_is_counted_in_nanoseconds() {
        let mut timing = Timing::new(&[0.0, 0.5, 1.0]);
        timing.pass(1.0, 0.0);
        timing.pass(2.0, 0.5);
        timing.pass(3.0, 0.75);
        timing.pass(-1.0, 0.5);
        let mut registry = Registry::default();
        let shown = ShownTiming::default();
        shown.show(&timing);
        registry.register("ratio", "A ratio", shown);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "ratio_sum 3250000000.0",
            "ratio_count 6000000000",
            "ratio_bucket{le=\"0.0\"} 1000000000",
            "ratio_bucket{le=\"0.5\"} 3000000000",
            "ratio_bucket{le=\"1.0\"} 6000000000",
            "ratio_bucket{le=\"+Inf\"} 6000000000",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
    }
}
