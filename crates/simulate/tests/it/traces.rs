//! Traces: the same input gives the same bytes, and the committed trace is the generator's.

use std::path::Path;

use allot_scheduler::Config;
use allot_simulate::trace::{csv, generate, openb};
use allot_simulate::{Options, Order, Report, Simulation, Workload};
use jiff::Timestamp;

/// Where the committed trace is.
const FOLDER: &str = "../../docs/traces";
const SEED: u64 = 2023;

fn simulate(sharing: openb::Sharing, order: Order, pods: usize, nodes: usize) -> Report {
    let table = |text: String| csv::read(&text).expect("a table");
    let cluster = openb::nodes(&table(generate::nodes(SEED, nodes)), sharing).expect("nodes");
    let (config, now) = (Config::default(), Timestamp::UNIX_EPOCH);
    let mut workload = Workload::default();
    let pods = table(generate::pods(SEED, pods));
    openb::add_pods(
        &mut workload,
        &pods,
        sharing,
        "default",
        &config.features,
        now,
    )
    .expect("pods");
    let options = Options {
        order,
        sample: std::time::Duration::from_secs(600),
        ..Options::default()
    };
    let mut simulation = Simulation::new(config, options, cluster).expect("a cluster");
    simulation.add_workload(workload).expect("new objects");
    simulation.run().expect("a simulation");
    simulation.report()
}

#[test]
fn twenty_runs_give_the_same_bytes() {
    for order in [Order::AsGiven, Order::Fill] {
        let run = || {
            let report = simulate(openb::Sharing::Capacity, order, 150, 4);
            (
                serde_json::to_string(&report).expect("JSON"),
                report.to_text(true),
            )
        };
        let first = run();
        for _ in 1..20 {
            assert_eq!(run(), first);
        }
    }
}

#[test]
fn everything_that_arrives_is_placed_or_waits() {
    for sharing in [openb::Sharing::Capacity, openb::Sharing::Partitions] {
        let report = simulate(sharing, Order::AsGiven, 200, 10);
        let s = &report.summary;
        assert_eq!(s.arrived, 200);
        assert_eq!(s.placed + s.waiting, 200);
        assert_eq!(s.completed, s.placed);
        assert!(s.placed > 150, "{s:?}");
        assert_eq!(s.devices_in_use.end, 0.0);
        assert!(s.devices_in_use.mean > 0.0);
    }
}

#[test]
fn the_committed_trace_is_what_the_generator_makes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    for (name, expected) in [
        ("pods.csv", generate::pods(SEED, 2000)),
        ("nodes.csv", generate::nodes(SEED, 40)),
    ] {
        let committed = std::fs::read_to_string(folder.join(name)).expect("the committed trace");
        assert!(
            committed == expected,
            "{name} differs: allot simulate --generate docs/traces --seed {SEED}"
        );
    }
}
