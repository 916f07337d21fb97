//! `/metrics/cadvisor`: the figures of each container, by the names and labels of a kubelet's cAdvisor.

use super::exposition::{Exposition, Sample};
use super::{Container, Machine, Pod, containers, seconds};

/// A family of values of containers.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Container) -> Option<f64>,
}

fn count(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn time(value: Option<u64>) -> Option<f64> {
    value.map(seconds)
}

const FAMILIES: [Family; 19] = [
    Family {
        name: "container_cpu_cfs_periods_total",
        kind: "counter",
        help: "Number of elapsed enforcement period intervals.",
        value: |it| count(it.usage.figures.periods),
    },
    Family {
        name: "container_cpu_cfs_throttled_periods_total",
        kind: "counter",
        help: "Number of throttled period intervals.",
        value: |it| count(it.usage.figures.throttled_periods),
    },
    Family {
        name: "container_cpu_cfs_throttled_seconds_total",
        kind: "counter",
        help: "Total time duration the container has been throttled.",
        value: |it| time(it.usage.figures.throttled),
    },
    Family {
        name: "container_cpu_system_seconds_total",
        kind: "counter",
        help: "Cumulative system cpu time consumed in seconds.",
        value: |it| time(it.usage.figures.cpu_system),
    },
    Family {
        name: "container_cpu_user_seconds_total",
        kind: "counter",
        help: "Cumulative user cpu time consumed in seconds.",
        value: |it| time(it.usage.figures.cpu_user),
    },
    Family {
        name: "container_memory_cache",
        kind: "gauge",
        help: "Number of bytes of page cache memory.",
        value: |it| count(it.usage.figures.cache),
    },
    Family {
        name: "container_memory_failcnt",
        kind: "counter",
        help: "Number of memory usage hits limits",
        value: |it| count(it.usage.figures.limit_reached),
    },
    Family {
        name: "container_memory_mapped_file",
        kind: "gauge",
        help: "Size of memory mapped files in bytes.",
        value: |it| count(it.usage.figures.mapped),
    },
    Family {
        name: "container_memory_max_usage_bytes",
        kind: "gauge",
        help: "Maximum memory usage recorded in bytes",
        value: |it| count(it.usage.figures.most_memory),
    },
    Family {
        name: "container_memory_rss",
        kind: "gauge",
        help: "Size of RSS in bytes.",
        value: |it| count(it.usage.figures.rss),
    },
    Family {
        name: "container_memory_swap",
        kind: "gauge",
        help: "Container swap usage in bytes.",
        value: |it| count(it.usage.figures.swap),
    },
    Family {
        name: "container_memory_usage_bytes",
        kind: "gauge",
        help: "Current memory usage in bytes, including all memory regardless of when it was accessed",
        value: |it| count(it.usage.figures.memory),
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: "gauge",
        help: "Current working set in bytes.",
        value: |it| count(it.usage.figures.working_set),
    },
    Family {
        name: "container_oom_events_total",
        kind: "counter",
        help: "Count of out of memory events observed for the container",
        value: |it| count(it.usage.figures.oom_kills),
    },
    Family {
        name: "container_processes",
        kind: "gauge",
        help: "Number of processes running inside the container.",
        value: |it| count(it.usage.figures.processes),
    },
    Family {
        name: "container_threads",
        kind: "gauge",
        help: "Number of threads running inside the container",
        value: |it| count(it.usage.figures.threads),
    },
    Family {
        name: "container_last_seen",
        kind: "gauge",
        help: "Last time a container was seen by the exporter",
        value: |it| Some(it.usage.at.as_second() as f64),
    },
    Family {
        name: "container_spec_memory_limit_bytes",
        kind: "gauge",
        help: "Memory limit for the container.",
        value: |it| count(it.memory_limit),
    },
    Family {
        name: "container_start_time_seconds",
        kind: "gauge",
        help: "Start time of the container since unix epoch in seconds.",
        value: |it| Some(it.started.as_second() as f64),
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
fn of_all_processors(mut sample: Sample) -> Sample {
    sample.labels.insert(1, ("cpu", "total".to_owned()));
    sample
}

pub(super) fn text(machine: Option<Machine>, pods: &[Pod], failed: bool) -> String {
    let mut all = Exposition::default();
    let of_containers = |value: fn(&Container) -> Option<f64>| {
        containers(pods).filter_map(move |(pod, it)| {
            Some(Sample {
                labels: labels(pod, it),
                value: value(it)?,
                at: Some(it.usage.at),
            })
        })
    };
    let of_machine = |value: fn(Machine) -> f64| {
        machine.map(|machine| Sample {
            labels: root(),
            value: value(machine),
            at: Some(machine.at),
        })
    };
    all.family(
        "container_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
        [Sample::plain(f64::from(u8::from(failed)))],
    );
    let times = of_machine(|it| seconds(it.cpu_nanoseconds)).into_iter();
    let times = times.chain(of_containers(|it| time(it.usage.figures.cpu)));
    all.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        times.map(of_all_processors),
    );
    for family in &FAMILIES {
        let whole = match family.name {
            "container_memory_working_set_bytes" | "container_memory_usage_bytes" => {
                of_machine(|it| it.memory as f64)
            }
            _ => None,
        };
        let samples = whole.into_iter().chain(of_containers(family.value));
        all.family(family.name, family.kind, family.help, samples);
    }
    all.family(
        "machine_cpu_cores",
        "gauge",
        "Number of logical CPU cores.",
        machine.map(|it| Sample::plain(it.processors as f64)),
    );
    all.family(
        "machine_memory_bytes",
        "gauge",
        "Amount of memory installed on the machine.",
        machine.map(|it| Sample::plain((it.memory + it.available) as f64)),
    );
    all.text()
}
