//! `/metrics/resource`: processor time and memory, from which a metrics server has what `kubectl top` prints.

use jiff::Timestamp;

use super::exposition::{Exposition, Sample};
use super::{Container, Machine, Pod, containers, seconds};
use crate::oci::measure::Figures;

pub(super) fn text(machine: Option<Machine>, pods: &[Pod], failed: bool) -> String {
    let mut all = Exposition::default();
    let of_pod = |pod: &Pod| {
        let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
        vec![("namespace", namespace), ("pod", name)]
    };
    let each = |value: fn(&Container) -> Option<f64>, timed: bool| {
        let samples = containers(pods).filter_map(|(pod, container)| {
            let mut labels = vec![("container", container.usage.container.clone())];
            labels.extend(of_pod(pod));
            Some(Sample {
                labels,
                value: value(container)?,
                at: timed.then_some(container.usage.at),
            })
        });
        samples.collect::<Vec<_>>()
    };
    let sums = |value: fn(&Figures) -> Option<u64>, scale: fn(u64) -> f64| {
        let samples = pods.iter().filter_map(|pod| {
            Some(Sample {
                labels: of_pod(pod),
                value: scale(pod.sum(value)?),
                at: Some(pod.measured()?),
            })
        });
        samples.collect::<Vec<_>>()
    };
    let of_node = |value: fn(Machine) -> f64| {
        machine.map(|machine| Sample {
            labels: Vec::new(),
            value: value(machine),
            at: Some(machine.at),
        })
    };
    let bytes = |bytes: u64| bytes as f64;
    all.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        each(|it| it.usage.figures.cpu.map(seconds), true),
    );
    all.family(
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        each(|it| Some(it.usage.figures.working_set? as f64), true),
    );
    all.family(
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
        each(|it| Some(since_epoch(it.started)), false),
    );
    all.family(
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        each(|it| Some(it.usage.figures.swap? as f64), true),
    );
    all.family(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        of_node(|it| seconds(it.cpu_nanoseconds)),
    );
    all.family(
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
        of_node(|it| it.memory as f64),
    );
    all.family(
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        of_node(|it| it.swap as f64),
    );
    all.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        sums(|it| it.cpu, seconds),
    );
    all.family(
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
        sums(|it| it.working_set, bytes),
    );
    all.family(
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        sums(|it| it.swap, bytes),
    );
    all.family(
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        [Sample::plain(f64::from(u8::from(failed)))],
    );
    all.text()
}

fn since_epoch(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}
