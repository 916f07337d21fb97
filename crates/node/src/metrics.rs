//! What the agent measures of claims and their drivers, of evictions and of certificates of pods, under a kubelet's names; served
//! at `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets_range};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

type One = [(&'static str, String); 1];
type Two = [(&'static str, String); 2];
type Three = [(&'static str, String); 3];
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The label value for all drivers together.
const ANY: &str = "<any>";

/// A status code by its name in Go.
pub(crate) fn code_name(code: tonic::Code) -> String {
    match code {
        tonic::Code::Ok => "OK".into(),
        tonic::Code::Cancelled => "Canceled".into(),
        other => format!("{other:?}"),
    }
}

/// Durations are in seconds.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    operations: Histograms<Two>,
    calls: Histograms<Three>,
    in_use: Family<One, Gauge>,
    evictions: Family<One, Count>,
    certificates: Family<Two, Gauge>,
}

/// A counter whose name does not end in `_total`, as OpenMetrics has it of counters.
#[derive(Debug, Clone, Default)]
struct Count(Gauge);

impl TypedMetric for Count {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Count {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets_range(0.1, 40.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let operations = Histograms::<Two>::new_with_constructor(durations);
        let calls = Histograms::<Three>::new_with_constructor(durations);
        let (in_use, evictions, certificates) =
            (Family::default(), Family::default(), Family::default());
        let mut registry = Registry::default();
        registry.register(
            "dra_operations_duration_seconds",
            "Duration of preparing and giving back all claims of a pod",
            operations.clone(),
        );
        registry.register(
            "dra_grpc_operations_duration_seconds",
            "Duration of the calls of drivers",
            calls.clone(),
        );
        registry.register(
            "dra_resource_claims_in_use",
            "Prepared claims by driver",
            in_use.clone(),
        );
        registry.register(
            "kubelet_evictions",
            "Cumulative number of pod evictions by eviction signal",
            Family::<One, Count>::clone(&evictions),
        );
        registry.register(
            "kubelet_podcertificate_states",
            "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state",
            Family::<Two, Gauge>::clone(&certificates),
        );
        Self {
            registry: Mutex::new(registry),
            operations,
            calls,
            in_use,
            evictions,
            certificates,
        }
    }
}

impl Metrics {
    /// `PrepareResources` or `UnprepareResources` of a pod ended.
    pub(crate) fn operation(&self, name: &str, failed: bool, took: Duration) {
        let labels = [
            ("operation_name", name.to_owned()),
            ("is_error", failed.to_string()),
        ];
        let histogram = self.operations.get_or_create(&labels);
        histogram.observe(took.as_secs_f64());
    }

    /// A driver answered, or did not in time. `method` is the whole gRPC method.
    pub(crate) fn call(&self, driver: &str, method: String, code: tonic::Code, took: Duration) {
        let labels = [
            ("driver_name", driver.to_owned()),
            ("method_name", method),
            ("grpc_status_code", code_name(code)),
        ];
        let histogram = self.calls.get_or_create(&labels);
        histogram.observe(took.as_secs_f64());
    }

    /// The drivers of each prepared claim.
    pub(crate) fn set_in_use<'a>(&self, claims: impl Iterator<Item = Vec<&'a str>>) {
        self.in_use.clear();
        let gauge = |driver: &str| {
            self.in_use
                .get_or_create(&[("driver_name", driver.to_owned())])
                .clone()
        };
        let all = gauge(ANY);
        for drivers in claims {
            all.inc();
            for driver in drivers {
                gauge(driver).inc();
            }
        }
    }

    /// A pod was evicted because of a signal.
    pub(crate) fn evicted(&self, signal: &str) {
        let labels = [("eviction_signal", signal.to_owned())];
        self.evictions.get_or_create(&labels).0.inc();
    }

    /// How many sources of volumes have a certificate of a signer in a state.
    pub(crate) fn set_certificates(&self, states: BTreeMap<(String, &'static str), u32>) {
        self.certificates.clear();
        for ((signer, state), number) in states {
            let labels = [("signer_name", signer), ("state", state.to_owned())];
            let gauge = self.certificates.get_or_create(&labels);
            gauge.set(number.into());
        }
    }

    /// In the text form of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // A String takes everything.
        let _ = encode(&mut text, &self.registry.lock());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_a_kubelets() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(200);
        metrics.operation("PrepareResources", false, took);
        let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
        metrics.call("d", method.into(), tonic::Code::Ok, took);
        metrics.set_in_use([vec!["d", "e"], vec!["d"]].into_iter());
        metrics.evicted("memory.available");
        metrics.evicted("memory.available");
        let states = [(("a.b/c".to_owned(), "fresh"), 3)];
        metrics.set_certificates(states.into());
        let text = metrics.text();
        for line in [
            "dra_operations_duration_seconds_count{operation_name=\"PrepareResources\",is_error=\"false\"} 1",
            "dra_grpc_operations_duration_seconds_count{driver_name=\"d\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\",grpc_status_code=\"OK\"} 1",
            "dra_resource_claims_in_use{driver_name=\"d\"} 2",
            "dra_resource_claims_in_use{driver_name=\"e\"} 1",
            "dra_resource_claims_in_use{driver_name=\"<any>\"} 2",
            "# TYPE kubelet_evictions unknown\nkubelet_evictions{eviction_signal=\"memory.available\"} 2\n",
            "kubelet_podcertificate_states{signer_name=\"a.b/c\",state=\"fresh\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        metrics.set_in_use(std::iter::empty());
        let line = "dra_resource_claims_in_use{driver_name=\"<any>\"} 0";
        assert!(metrics.text().contains(line));
    }
}
