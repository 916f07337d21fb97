//! What pods and the node use: `/stats/summary` and `/metrics/resource`, from which a metrics server has what `kubectl top` prints.
//!
//! Only a runtime that measures its containers tells about pods; the node's own figures are those of the kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::memory::Memory;
use crate::pods::Node;
use crate::runtime::Measured;

/// A pod with its containers.
#[derive(Debug, Default)]
struct Pod {
    namespace: String,
    name: String,
    uid: String,
    containers: Vec<Container>,
}

#[derive(Debug)]
struct Container {
    started: Timestamp,
    usage: Measured,
}

/// What the kernel says about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    at: Timestamp,
    cpu_nanoseconds: u64,
    memory: u64,
    available: u64,
}

impl Machine {
    /// Reads `/proc/stat` and `/proc/meminfo`.
    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let ticks = rustix::param::clock_ticks_per_second();
        Self::parse(&stat, Memory::read()?, ticks, Timestamp::now())
    }

    fn parse(stat: &str, memory: Memory, ticks: u64, at: Timestamp) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?;
        let times = times.split_whitespace().map(str::parse::<u64>);
        let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; those of guests are in the first two.
        let used = [0, 1, 2, 5, 6, 7].map(|index| times.get(index).copied().unwrap_or(0));
        let used: u64 = used.iter().sum();
        Some(Self {
            at,
            cpu_nanoseconds: used.saturating_mul(1_000_000_000 / ticks.max(1)),
            memory: memory.total.saturating_sub(memory.available),
            available: memory.available,
        })
    }
}

/// The pods of the node, with the containers that the runtime measured.
async fn pods(node: &Node) -> Result<Vec<Pod>, String> {
    let measured = match node.runtime.complete() {
        Some(complete) => complete.usage().await?,
        None => Vec::new(),
    };
    let mut by_pod: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for usage in measured {
        by_pod.entry(usage.pod_uid.clone()).or_default().push(usage);
    }
    let entries = node.pods.lock();
    let pods = entries.iter().map(|(uid, entry)| {
        let pod = Arc::clone(&entry.update.borrow().pod);
        let states = entry.containers.lock();
        let containers = by_pod.remove(uid).into_iter().flatten();
        // Only those that run: the runtime may still know the last run of one.
        let containers = containers.filter_map(|usage| {
            let running = states.get(&usage.container)?.running()?;
            (running.id == usage.id).then_some(Container {
                started: running.started,
                usage,
            })
        });
        Pod {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: uid.clone(),
            containers: containers.collect(),
        }
    });
    let mut pods: Vec<Pod> = pods.collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(pods)
}

/// The answer to `/stats/summary`.
///
/// # Errors
/// The runtime does not answer.
pub(super) async fn summary(node: &Node) -> Result<Value, String> {
    let pods = pods(node).await?;
    Ok(summary_of(&node.config.node_name, Machine::read(), &pods))
}

fn summary_of(name: &str, machine: Option<Machine>, pods: &[Pod]) -> Value {
    let mut node = json!({"nodeName": name});
    if let Some(machine) = machine {
        node["cpu"] = json!({"time": machine.at, "usageCoreNanoSeconds": machine.cpu_nanoseconds});
        node["memory"] = json!({"time": machine.at, "workingSetBytes": machine.memory, "availableBytes": machine.available});
    }
    let pods = pods.iter().map(|pod| {
        let reference = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
        let mut shown = json!({"podRef": reference});
        if !pod.containers.is_empty() {
            let containers = pod.containers.iter();
            shown["containers"] = containers.map(container).collect();
        }
        shown
    });
    json!({"node": node, "pods": pods.collect::<Vec<_>>()})
}

fn container(container: &Container) -> Value {
    let usage = &container.usage;
    let mut shown = json!({"name": usage.container, "startTime": container.started});
    let mut set = |part: &str, name: &str, value: Option<u64>| {
        if let Some(value) = value {
            shown[part]["time"] = json!(usage.at);
            shown[part][name] = json!(value);
        }
    };
    set("cpu", "usageCoreNanoSeconds", usage.cpu_nanoseconds);
    set("cpu", "usageNanoCores", usage.cpu_nanocores);
    set("memory", "workingSetBytes", usage.working_set);
    set("memory", "usageBytes", usage.memory);
    set("memory", "rssBytes", usage.rss);
    shown
}

/// The answer to `/metrics/resource`. A runtime that does not answer is reported in it, as by a kubelet.
pub(super) async fn resources(node: &Node) -> String {
    let pods = pods(node).await;
    if let Err(error) = &pods {
        tracing::warn!(error, "containers were not measured");
    }
    let failed = pods.is_err();
    resources_of(Machine::read(), &pods.unwrap_or_default(), failed)
}

fn resources_of(machine: Option<Machine>, pods: &[Pod], failed: bool) -> String {
    let mut out = String::new();
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let mut family =
        |name: &str, kind: &str, help: &str, samples: Vec<(String, f64, Option<i64>)>| {
            if samples.is_empty() {
                return;
            }
            // Writing to a string does not fail.
            let _ = writeln!(out, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            for (labels, value, at) in samples {
                let at = at.map(|at| format!(" {at}")).unwrap_or_default();
                let _ = writeln!(out, "{name}{labels} {value}{at}");
            }
        };
    let containers = || {
        pods.iter()
            .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
    };
    let each = |value: fn(&Container) -> Option<f64>, timed: bool| {
        let samples = containers().filter_map(|(pod, container)| {
            // Names of pods, namespaces and containers need no quoting.
            let labels = format!(
                "{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}}",
                container.usage.container, pod.namespace, pod.name
            );
            let at = container.usage.at.as_millisecond();
            Some((labels, value(container)?, timed.then_some(at)))
        });
        samples.collect::<Vec<_>>()
    };
    let of_pods = |value: fn(&Measured) -> Option<u64>, scale: fn(u64) -> f64| {
        let samples = pods.iter().filter_map(|pod| {
            let labels = format!("{{namespace=\"{}\",pod=\"{}\"}}", pod.namespace, pod.name);
            let values = pod.containers.iter().map(|it| value(&it.usage));
            let values: Option<Vec<u64>> = values.collect();
            let values = values.filter(|values| !values.is_empty())?;
            let last = pod.containers.iter().map(|it| it.usage.at).max()?;
            let sum = values.into_iter().fold(0, u64::saturating_add);
            Some((labels, scale(sum), Some(last.as_millisecond())))
        });
        samples.collect::<Vec<_>>()
    };
    let of_node = |value: fn(Machine) -> f64| {
        let sample = machine.map(|it| (String::new(), value(it), Some(it.at.as_millisecond())));
        sample.into_iter().collect::<Vec<_>>()
    };
    family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        each(|it| Some(it.usage.cpu_nanoseconds? as f64 / 1e9), true),
    );
    family(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        each(|it| Some(it.usage.working_set? as f64), true),
    );
    family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
        each(|it| Some(it.started.as_millisecond() as f64 / 1e3), false),
    );
    family(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
        of_node(|it| it.cpu_nanoseconds as f64 / 1e9),
    );
    family(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
        of_node(|it| it.memory as f64),
    );
    family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        of_pods(|it| it.cpu_nanoseconds, seconds),
    );
    family(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
        of_pods(|it| it.working_set, |bytes| bytes as f64),
    );
    family(
        "resource_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
        vec![(String::new(), f64::from(u8::from(failed)), None)],
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Vec<Pod> {
        let at: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let usage = Measured {
            id: "1".into(),
            pod_uid: "u".into(),
            container: "c".into(),
            at,
            cpu_nanoseconds: Some(2_500_000_000),
            cpu_nanocores: Some(250_000_000),
            working_set: Some(1 << 20),
            memory: Some(2 << 20),
            rss: None,
        };
        let container = Container {
            started: "2026-01-01T00:00:00Z".parse().unwrap(),
            usage,
        };
        let with = Pod {
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
            containers: vec![container],
        };
        let without = Pod {
            name: "q".into(),
            ..Pod::default()
        };
        vec![with, without]
    }

    const STAT: &str = "cpu  10 20 30 1000 5 1 2 3 4 4\ncpu0 1 1 1 1\n";
    const MEMORY: Memory = Memory {
        total: 100 << 10,
        available: 40 << 10,
    };

    fn machine() -> Machine {
        let at = "2026-01-01T00:00:10Z".parse().unwrap();
        Machine::parse(STAT, MEMORY, 100, at).unwrap()
    }

    #[test]
    fn the_kernel_is_understood() {
        let machine = machine();
        assert_eq!(machine.cpu_nanoseconds, 660_000_000);
        assert_eq!((machine.memory, machine.available), (60 << 10, 40 << 10));
        assert_eq!(Machine::parse("", MEMORY, 100, machine.at), None);
        assert!(Machine::read().is_some_and(|it| it.cpu_nanoseconds > 0 && it.memory > 0));
    }

    #[test]
    fn a_metrics_server_is_told_what_a_kubelet_tells() {
        let text = resources_of(Some(machine()), &measured(), false);
        let samples: Vec<&str> = text.lines().filter(|it| !it.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 2.5 1767225610000",
                "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 1048576 1767225610000",
                "container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\"} 1767225600",
                "node_cpu_usage_seconds_total 0.66 1767225610000",
                "node_memory_working_set_bytes 61440 1767225610000",
                "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 2.5 1767225610000",
                "pod_memory_working_set_bytes{namespace=\"n\",pod=\"p\"} 1048576 1767225610000",
                "resource_scrape_error 0",
            ]
        );
        let failed = resources_of(None, &[], true);
        assert!(failed.ends_with("\nresource_scrape_error 1\n"), "{failed}");
    }

    #[test]
    fn the_summary_has_the_kubelets_form() {
        let summary = summary_of("n1", Some(machine()), &measured());
        assert_eq!(summary["node"]["memory"]["workingSetBytes"], 60 << 10);
        let pod = &summary["pods"][0];
        assert_eq!(
            pod["podRef"],
            json!({"name": "p", "namespace": "n", "uid": "u"})
        );
        assert_eq!(
            pod["containers"],
            json!([{"name": "c", "startTime": "2026-01-01T00:00:00Z",
                "cpu": {"time": "2026-01-01T00:00:10Z", "usageCoreNanoSeconds": 2_500_000_000_u64, "usageNanoCores": 250_000_000},
                "memory": {"time": "2026-01-01T00:00:10Z", "workingSetBytes": 1 << 20, "usageBytes": 2 << 20}}])
        );
        assert!(summary["pods"][1].get("containers").is_none());
    }
}
