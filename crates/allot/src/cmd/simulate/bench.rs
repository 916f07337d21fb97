//! Speed and memory of simulations.

use std::io::Write as _;
use std::time::{Duration, Instant};

use allot_allocator::Policy;
use allot_scheduler::Config;
use allot_simulate::{Options, Simulation, Workload, trace};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cmd::bounds;

/// How large the measured simulation is, or the trace that is written.
#[derive(Debug, clap::Args)]
pub struct Size {
    /// Number of pods for --bench and --generate
    #[arg(long, value_name = "NUMBER", value_parser = bounds::within(bounds::OBJECTS))]
    pub bench_pods: Option<usize>,
    /// Number of nodes for --bench and --generate
    #[arg(long, value_name = "NUMBER", value_parser = bounds::within(bounds::OBJECTS))]
    pub bench_nodes: Option<usize>,
    /// Devices of each node for --bench
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = bounds::within(bounds::DEVICES))]
    pub bench_devices: usize,
}

/// The driver and the class of the devices.
const DRIVER: &str = "bench.allot.dev";
const CLASS: &str = "bench";
/// How many pods arrive each second.
const RATE: usize = 100;

/// Simulates pods with a device each, which arrive until four of five devices are in use and then end as fast as they
/// arrive.
pub fn run(size: &Size, policy: Option<Policy>) -> anyhow::Result<()> {
    let (pods, nodes) = (
        size.bench_pods.unwrap_or(100_000),
        size.bench_nodes.unwrap_or(5000),
    );
    anyhow::ensure!(
        (1..=128).contains(&size.bench_devices),
        "--bench-devices: one of 1 to 128"
    );
    let begin = Instant::now();
    let cluster = cluster(nodes, size.bench_devices);
    let mut config = Config::default();
    if let Some(policy) = policy {
        for profile in &mut config.profiles {
            profile.dynamic_resources.placement = policy;
        }
    }
    let runs = (nodes * size.bench_devices * 4 / 5 / RATE).max(1);
    let workload = arrivals(pods, runs, &config)?;
    let mut simulation = Simulation::new(config, Options::default(), cluster)?;
    simulation.add_workload(workload)?;
    let prepared = begin.elapsed();
    let begin = Instant::now();
    simulation.run()?;
    let taken = begin.elapsed();
    let report = simulation.report();
    let (summary, count) = (&report.summary, report.pods.len());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{count} pods with claims on {} nodes with {} devices: {} placed, {} completed, {} waiting",
        summary.nodes, summary.devices, summary.placed, summary.completed, summary.waiting
    )?;
    writeln!(
        out,
        "{:.1} s for {} attempts, {:.0} pods a second; {:.1} s to load; {} simulated",
        taken.as_secs_f64(),
        summary.attempts,
        count as f64 / taken.as_secs_f64().max(1e-9),
        prepared.as_secs_f64(),
        allot_simulate::time::shown(Duration::from_secs_f64(summary.duration)),
    )?;
    if let Some(peak) = peak_memory() {
        writeln!(out, "{} MiB of memory at most", peak / 1024)?;
    }
    Ok(())
}

/// Objects of the cluster in each row of the table.
const GROWTH: [usize; 3] = [1000, 10_000, 100_000];
/// Pods that arrive there.
const ARRIVALS: usize = 2000;

/// Prints how the start of a scheduler and the life of a pod with its claim depend on the number of pods and claims that
/// are there, ten of each to a node, in processor time.
pub fn growth() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "objects  nodes    start  an object     a pod")?;
    for objects in GROWTH {
        let (pods, nodes) = (objects / 2, objects / 20);
        let mut cluster = cluster(nodes, 16);
        cluster.extend((0..pods).flat_map(|at| running(at, nodes)));
        let config = Config::default();
        let workload = arrivals(ARRIVALS, 1, &config)?;
        let begin = processor_time();
        let mut simulation = Simulation::new(config, Options::default(), cluster)?;
        let started = processor_time().saturating_sub(begin);
        simulation.add_workload(workload)?;
        let begin = processor_time();
        simulation.run()?;
        let taken = processor_time().saturating_sub(begin);
        let placed = simulation.report().summary.placed;
        anyhow::ensure!(
            placed == ARRIVALS,
            "{placed} of {ARRIVALS} pods were placed"
        );
        let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        writeln!(
            out,
            "{objects:>7} {nodes:>6} {:>6.2} s {:>7.1} µs {:>6.0} µs",
            started.as_secs_f64(),
            each(started, objects),
            each(taken, ARRIVALS),
        )?;
    }
    Ok(())
}

/// Pods with a device each, [`RATE`] of them in a second, each of which runs for so many seconds.
fn arrivals(pods: usize, seconds: usize, config: &Config) -> anyhow::Result<Workload> {
    let mut rows = String::from("at,duration,count,name,class,cpu\n");
    for second in 0..pods.div_ceil(RATE) {
        let count = RATE.min(pods - second * RATE);
        rows.push_str(&format!(
            "{second},{seconds},{count},p{second},{CLASS},100m\n"
        ));
    }
    let mut workload = Workload::default();
    let start = Timestamp::UNIX_EPOCH;
    trace::add(&mut workload, &rows, "default", &config.features, start)?;
    Ok(workload)
}

/// The processor time of this thread, which other programs do not change.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// A pod that runs, and its claim.
fn running(at: usize, nodes: usize) -> [Value; 2] {
    let (pod, claim, node) = (
        format!("running-{at}"),
        format!("claim-{at}"),
        format!("node-{}", at % nodes),
    );
    let device = format!("device-{}", at / nodes);
    let request = json!({"name": "r", "exactly": {
        "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1,
    }});
    let result = json!({"request": "r", "driver": DRIVER, "pool": node, "device": device});
    [
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": "default", "uid": pod},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
                "resourceClaims": [{"name": "d", "resourceClaimName": claim}],
            },
            "status": {"phase": "Running"},
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": claim,
                "namespace": "default",
                "uid": claim,
                "finalizers": ["resource.kubernetes.io/delete-protection"],
            },
            "spec": {"devices": {"requests": [request]}},
            "status": {
                "allocation": {"devices": {"results": [result]}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
            },
        }),
    ]
}

/// Nodes with as many devices each.
fn cluster(nodes: usize, devices: usize) -> Vec<Value> {
    let allocatable = json!({"cpu": "64", "memory": "512Gi", "pods": "250"});
    let devices: Vec<Value> = (0..devices)
        .map(|number| json!({"name": format!("device-{number}")}))
        .collect();
    let mut objects = vec![json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    })];
    for number in 0..nodes {
        let name = format!("node-{number}");
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": allocatable},
        }));
        objects.push(json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": format!("{name}-slice")},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }));
    }
    objects
}

/// The peak memory of this process, in KiB, if the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
