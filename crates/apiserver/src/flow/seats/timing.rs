//! For how long a ratio had which values.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A histogram of the time that a ratio had each value: as if it were observed at the end of every nanosecond, like
/// upstream's timing histograms. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Timing(Arc<Mutex<Times>>);

#[derive(Debug, Clone)]
struct Times {
    /// Upper bounds of the values, and nanoseconds.
    buckets: Vec<(f64, u64)>,
    sum: f64,
}

impl Timing {
    /// With these upper bounds.
    pub fn new(bounds: &[f64]) -> Self {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        Timing(Arc::new(Mutex::new(Times {
            buckets: bounds.map(|bound| (bound, 0)).collect(),
            sum: 0.0,
        })))
    }

    /// Shows what another one has counted.
    pub fn show(&self, other: &Timing) {
        let times = other.0.lock().clone();
        *self.0.lock() = times;
    }

    /// The ratio has had a value for some time, in seconds.
    pub fn pass(&self, seconds: f64, ratio: f64) {
        let mut times = self.0.lock();
        // Time does not go back, and no process runs for centuries: the cast neither wraps nor loses what matters.
        let nanos = (seconds.max(0.0) * 1e9) as u64;
        let buckets = &mut times.buckets;
        if let Some((_, passed)) = buckets.iter_mut().find(|(bound, _)| ratio <= *bound) {
            *passed += nanos;
        }
        times.sum += ratio * nanos as f64;
    }
}

impl TypedMetric for Timing {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Timing {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let times = self.0.lock();
        let count = times.buckets.iter().map(|(_, nanos)| nanos).sum();
        encoder.encode_histogram::<NoLabelSet>(times.sum, count, &times.buckets, None)
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
        let timing = Timing::new(&[0.0, 0.5, 1.0]);
        timing.pass(1.0, 0.0);
        timing.pass(2.0, 0.5);
        timing.pass(3.0, 0.75);
        timing.pass(-1.0, 0.5);
        let mut registry = Registry::default();
        registry.register("ratio", "A ratio", timing);
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
