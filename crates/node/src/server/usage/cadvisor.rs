//! `/metrics/cadvisor`: the figures of each container, by the names and labels of a kubelet's cAdvisor.

use super::exposition::{Exposition, Sample};
use super::{Container, Machine, Pod, seconds};
use crate::oci::measure::Figures;

/// A family of values that are those of a container's figures.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Figures) -> Option<f64>,
}

fn count(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn time(value: Option<u64>) -> Option<f64> {
    value.map(seconds)
}

const FAMILIES: [Family; 16] = [
    Family {
        name: "container_cpu_cfs_periods_total",
        kind: "counter",
        help: "Number of elapsed enforcement period intervals.",
        value: |it| count(it.periods),
    },
    Family {
        name: "container_cpu_cfs_throttled_periods_total",
        kind: "counter",
        help: "Number of throttled period intervals.",
        value: |it| count(it.throttled_periods),
    },
    Family {
        name: "container_cpu_cfs_throttled_seconds_total",
        kind: "counter",
        help: "Total time duration the container has been throttled.",
        value: |it| time(it.throttled),
    },
    Family {
        name: "container_cpu_system_seconds_total",
        kind: "counter",
        help: "Cumulative system cpu time consumed in seconds.",
        value: |it| time(it.cpu_system),
    },
    Family {
        name: "container_cpu_user_seconds_total",
        kind: "counter",
        help: "Cumulative user cpu time consumed in seconds.",
        value: |it| time(it.cpu_user),
    },
    Family {
        name: "container_memory_cache",
        kind: "gauge",
        help: "Number of bytes of page cache memory.",
        value: |it| count(it.cache),
    },
    Family {
        name: "container_memory_failcnt",
        kind: "counter",
        help: "Number of memory usage hits limits",
        value: |it| count(it.limit_reached),
    },
    Family {
        name: "container_memory_mapped_file",
        kind: "gauge",
        help: "Size of memory mapped files in bytes.",
        value: |it| count(it.mapped),
    },
    Family {
        name: "container_memory_max_usage_bytes",
        kind: "gauge",
        help: "Maximum memory usage recorded in bytes",
        value: |it| count(it.most_memory),
    },
    Family {
        name: "container_memory_rss",
        kind: "gauge",
        help: "Size of RSS in bytes.",
        value: |it| count(it.rss),
    },
    Family {
        name: "container_memory_swap",
        kind: "gauge",
        help: "Container swap usage in bytes.",
        value: |it| count(it.swap),
    },
    Family {
        name: "container_memory_usage_bytes",
        kind: "gauge",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        value: |it| count(it.memory),
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set in bytes.",
        value: |it| count(it.working_set),
    },
    Family {
        name: "container_oom_events_total",
        kind: "counter",
        help: "Count of out of memory events observed for the container",
        value: |it| count(it.oom_kills),
    },
    Family {
        name: "container_processes",
        kind: "gauge",
        help: "Number of processes running inside the container.",
        value: |it| count(it.processes),
    },
    Family {
        name: "container_threads",
        kind: "gauge",
        help: "Number of threads running inside the container",
        value: |it| count(it.threads),
    },
];

type Labels = Vec<(&'static str, String)>;

fn labels(pod: &Pod, container: &Container) -> Labels {
    vec![
        ("container", container.usage.container.clone()),
        ("id", container.usage.cgroup.clone()),
        ("image", container.image.clone()),
        ("name", container.usage.id.clone()),
        ("namespace", pod.namespace.clone()),
        ("pod", pod.name.clone()),
    ]
}

/// The labels of the machine as a whole, which is the first of all cgroups.
fn root() -> Labels {
    let names = ["container", "id", "image", "name", "namespace", "pod"];
    let value = |name| if name == "id" { "/" } else { "" };
    names.map(|name| (name, value(name).to_owned())).into()
}

/// With `cpu="total"` in the place where it belongs: labels are in order.
fn of_all_processors(mut labels: Labels) -> Labels {
    labels.insert(1, ("cpu", "total".to_owned()));
    labels
}

pub(super) fn text(machine: Option<Machine>, pods: &[Pod], failed: bool) -> String {
    let mut all = Exposition::default();
    let containers = || {
        pods.iter()
            .flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
    };
    let flag = Sample {
        labels: Vec::new(),
        value: f64::from(u8::from(failed)),
        at: None,
    };
    all.family(
        "container_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
        [flag],
    );
    let of_containers = containers().filter_map(|(pod, it)| {
        Some(Sample {
            labels: of_all_processors(labels(pod, it)),
            value: seconds(it.usage.figures.cpu?),
            at: Some(it.usage.at),
        })
    });
    let of_machine = machine.map(|machine| Sample {
        labels: of_all_processors(root()),
        value: seconds(machine.cpu_nanoseconds),
        at: Some(machine.at),
    });
    all.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        of_machine.into_iter().chain(of_containers),
    );
    for family in &FAMILIES {
        let of_machine = match family.name {
            "container_memory_working_set_bytes" | "container_memory_usage_bytes" => machine,
            _ => None,
        };
        let of_machine = of_machine.map(|machine| Sample {
            labels: root(),
            value: machine.memory as f64,
            at: Some(machine.at),
        });
        let of_containers = containers().filter_map(|(pod, it)| {
            Some(Sample {
                labels: labels(pod, it),
                value: (family.value)(&it.usage.figures)?,
                at: Some(it.usage.at),
            })
        });
        let samples = of_machine.into_iter().chain(of_containers);
        all.family(family.name, family.kind, family.help, samples);
    }
    let mut gauge = |name, help, value: fn(&Container) -> Option<f64>| {
        let samples = containers().filter_map(|(pod, it)| {
            Some(Sample {
                labels: labels(pod, it),
                value: value(it)?,
                at: Some(it.usage.at),
            })
        });
        all.family(name, "gauge", help, samples);
    };
    gauge(
        "container_last_seen",
        "Last time a container was seen by the exporter",
        |it| Some(it.usage.at.as_second() as f64),
    );
    gauge(
        "container_spec_memory_limit_bytes",
        "Memory limit for the container.",
        |it| it.memory_limit.map(|limit| limit as f64),
    );
    gauge(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        |it| Some(it.started.as_second() as f64),
    );
    let of_machine = |value: f64| Sample {
        labels: Vec::new(),
        value,
        at: None,
    };
    all.family(
        "machine_cpu_cores",
        "gauge",
        "Number of logical CPU cores.",
        machine.map(|it| of_machine(it.processors as f64)),
    );
    all.family(
        "machine_memory_bytes",
        "gauge",
        "Amount of memory installed on the machine.",
        machine.map(|it| of_machine((it.memory + it.available) as f64)),
    );
    all.text()
}
