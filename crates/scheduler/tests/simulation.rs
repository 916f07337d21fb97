//! A deterministic simulation: scheduler, claim controller and taint eviction against a small API with faults, on a
//! paused clock.
//!
//! Everything that happens follows from a seed: which requests are slow, lost, rejected, or carried out without an
//! answer; which watches break or find their history compacted; at which writes a process dies and is restarted; when
//! pods are created, preempt others, finish and are deleted, claims are lost, nodes are cordoned, devices are tainted,
//! or become ready late or never. Pods request whole devices, shares of a device, partitions that draw from one
//! counter, one of these as an extended resource, alone, in a group with shared claims, or in a gang; in some seeds a
//! quota limits how many devices of a class they get. After every write
//! the invariants are checked; at the end every pod that fits must be placed, every preempted pod deleted, and no
//! device allocated without a consumer (`sim/invariants.rs`). A failing seed is replayed with
//!
//!     ALLOT_SIMULATION_SEED=n cargo test -p allot-scheduler --test simulation

mod sim {
    pub mod api;
    pub mod cluster;
    pub mod devices;
    pub mod invariants;
    pub mod ledger;
    pub mod quota;
    pub mod transport;
    pub mod workloads;
}

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use sim::cluster::SimulatedCluster;

/// How many seeds a plain test run takes; `ALLOT_SIMULATION_SEEDS` asks for more, `ALLOT_SCHEDULER_SIMULATION_SEEDS` in
/// this simulation alone.
const SEEDS: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_is_lost_and_nothing_is_given_twice() {
    if let Some(seed) = number("ALLOT_SIMULATION_SEED") {
        SimulatedCluster::run(seed);
        return;
    }
    let seeds = number("ALLOT_SCHEDULER_SIMULATION_SEEDS")
        .or_else(|| number("ALLOT_SIMULATION_SEEDS"))
        .unwrap_or(SEEDS);
    let failed = run_all(seeds);
    assert!(
        failed.is_empty(),
        "seeds {failed:?} failed; see the traces above"
    );
}

/// Runs the seeds below `seeds` and says which failed. Seeds do not know of each other: threads take them in turn.
fn run_all(seeds: u64) -> Vec<u64> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let worker = || {
            let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            taken
                .take_while(|seed| *seed < seeds)
                .filter(|seed| {
                    let _watched = Watchdog::over(*seed);
                    std::panic::catch_unwind(|| SimulatedCluster::run(*seed)).is_err()
                })
                .collect::<Vec<u64>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let failed = workers
            .into_iter()
            .flat_map(|w| w.join().expect("workers catch panics"));
        failed.collect()
    })
}

/// Ends the process when a seed does not end: a loop without a pause stops the paused clock, too, so that no limit inside
/// the simulation can end it.
struct Watchdog {
    /// Dropped when the seed has ended.
    _ended: mpsc::Sender<()>,
}

impl Watchdog {
    /// A seed takes less than a second.
    const PATIENCE: Duration = Duration::from_secs(120);

    fn over(seed: u64) -> Self {
        let (ended, end) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if end.recv_timeout(Self::PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Around the capture of tests, which would show nothing of a process that is ended.
                let _ = writeln!(
                    std::io::stderr(),
                    "seed {seed} does not end: ALLOT_SIMULATION_SEED={seed} replays it"
                );
                std::process::exit(1);
            }
        });
        Self { _ended: ended }
    }
}

#[test]
fn a_seed_replays_exactly() {
    let trace = SimulatedCluster::run(7);
    assert_eq!(trace, SimulatedCluster::run(7));
    // The seed is one in which something happens.
    let bound = trace
        .iter()
        .filter(|l| l.contains("MODIFIED pods ") && l.contains(" n"))
        .count();
    assert!(bound > 5, "{trace:#?}");
}
