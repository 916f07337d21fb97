//! What the SDK measures of a driver, in the text format of Prometheus.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The two calls of a kubelet, as the values of the label `operation`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Prepare,
    Unprepare,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Unprepare => "unprepare",
        }
    }
}

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];

/// Durations are in seconds, of one claim each.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    durations: Family<Two, Histogram, fn() -> Histogram>,
    in_flight: Family<One, Gauge>,
    claims: Gauge,
    devices: Gauge,
    errors: Counter,
    registered: Gauge,
}

/// From a millisecond to the 45 s for which a kubelet waits.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.5, 12))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("dra_driver");
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        registry.register_with_unit(
            "operation_duration",
            "Time that the driver took for one claim, by operation (prepare, unprepare) and result (success, error)",
            Unit::Seconds,
            durations.clone(),
        );
        let in_flight = Family::default();
        registry.register(
            "operations_in_flight",
            "Claims that are being prepared or unprepared, including those that wait for another call",
            in_flight.clone(),
        );
        let claims = Gauge::default();
        registry.register(
            "prepared_claims",
            "Claims in the checkpoint, also those whose preparation did not succeed",
            claims.clone(),
        );
        let devices = Gauge::default();
        registry.register(
            "published_devices",
            "Devices that the driver publishes",
            devices.clone(),
        );
        let errors = Counter::default();
        registry.register(
            "background_errors",
            "Failures outside of calls, such as publishing",
            errors.clone(),
        );
        let registered = Gauge::default();
        registry.register(
            "registered",
            "1 while the kubelet's last word was that it accepted the driver",
            registered.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            durations,
            in_flight,
            claims,
            devices,
            errors,
            registered,
        }
    }
}

/// An operation that began; counted as in flight until it is dropped.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn begin(&self, operation: Operation, claims: usize) -> Vec<InFlight> {
        let gauge = self
            .in_flight
            .get_or_create_owned(&[("operation", operation.name())]);
        let begun = (0..claims).map(|_| {
            gauge.inc();
            InFlight(gauge.clone())
        });
        begun.collect()
    }

    pub(crate) fn ended(&self, operation: Operation, failed: bool, took: Duration) {
        let result = if failed { "error" } else { "success" };
        let labels = [("operation", operation.name()), ("result", result)];
        let histogram = self.durations.get_or_create(&labels);
        histogram.observe(took.as_secs_f64());
    }

    pub(crate) fn set_claims(&self, claims: usize) {
        self.claims.set(i64::try_from(claims).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_devices(&self, devices: usize) {
        self.devices.set(i64::try_from(devices).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_error(&self) {
        self.errors.inc();
    }

    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.set(registered.into());
    }

    /// All of it in the OpenMetrics text format.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}
