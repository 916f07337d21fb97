//! The workloads, after those of upstream's scheduler_perf suite for DRA.

mod objects;

pub use objects::{Names, Object};

/// Arrival of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// All at once.
    Burst,
    /// So many at a time are waiting; bound ones are deleted and replaced.
    Steady(usize),
    /// So many per second.
    Rate(u32),
    /// No pods: slices are published.
    Slices,
}

/// One workload at one size.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The value of `--workload`.
    pub name: &'static str,
    /// The measured property.
    pub about: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// Devices per node; zero for none.
    pub devices: usize,
    /// Pods bound before the measurement begins.
    pub init: usize,
    /// Pods that are measured.
    pub pods: usize,
    /// Arrival of the measured pods.
    pub arrival: Arrival,
    shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    Template,
    Selectors,
    Match,
    Shared(usize),
    Partitionable,
    Consumable,
    Extended,
    FirstAvailable,
    Classic,
}

const fn workload(
    name: &'static str,
    about: &'static str,
    shape: Shape,
    devices: usize,
) -> Workload {
    Workload {
        name,
        about,
        nodes: 500,
        devices,
        init: 0,
        pods: 5000,
        arrival: Arrival::Burst,
        shape,
    }
}

/// All workloads.
pub fn all() -> Vec<Workload> {
    let steady = |name, about, init| Workload {
        init,
        pods: 2000,
        arrival: Arrival::Steady(10),
        ..workload(name, about, Shape::Template, 10)
    };
    vec![
        workload("plain", "pods without claims", Shape::Plain, 0),
        Workload {
            init: 2500,
            pods: 2500,
            ..workload(
                "5000pods_500nodes",
                "one claim from a template per pod, cluster half full",
                Shape::Template,
                10,
            )
        },
        steady(
            "empty_500nodes",
            "ten pods at a time on an empty cluster",
            0,
        ),
        steady(
            "half_500nodes",
            "ten pods at a time on a half full cluster",
            2500,
        ),
        steady(
            "full_500nodes",
            "ten pods at a time for the last ten devices",
            4990,
        ),
        Workload {
            pods: 2500,
            ..workload("shared", "five pods share each claim", Shape::Shared(5), 10)
        },
        workload(
            "selectors",
            "two CEL selectors per request",
            Shape::Selectors,
            10,
        ),
        Workload {
            pods: 2000,
            ..workload(
                "match",
                "two devices with one attribute in common",
                Shape::Match,
                10,
            )
        },
        Workload {
            nodes: 100,
            pods: 400,
            ..workload(
                "partitionable",
                "devices cut into parts",
                Shape::Partitionable,
                8,
            )
        },
        Workload {
            nodes: 100,
            pods: 2000,
            ..workload("consumable", "shares of devices", Shape::Consumable, 5)
        },
        workload(
            "extended",
            "devices through extended resources",
            Shape::Extended,
            10,
        ),
        workload(
            "first-available",
            "the second of two alternatives",
            Shape::FirstAvailable,
            10,
        ),
        Workload {
            pods: 500,
            arrival: Arrival::Slices,
            ..workload(
                "publish-slices",
                "slices of ten devices are published",
                Shape::Template,
                10,
            )
        },
        Workload {
            nodes: 50,
            pods: 500,
            ..workload(
                "classic",
                "one v1alpha2 claim per pod, for the driver test-driver.cdi.k8s.io, which has to run",
                Shape::Classic,
                0,
            )
        },
        Workload {
            nodes: 5000,
            pods: 5000,
            ..workload(
                "5000pods_5000nodes",
                "one claim per pod on five thousand nodes",
                Shape::Template,
                8,
            )
        },
    ]
}
