//! A deterministic simulation of classic claims: scheduler, claim controller and two models of drivers against a small
//! API with faults, on a paused clock.
//!
//! Drivers are killed between any two writes, the scheduler is killed in the middle of negotiations, claims and pods
//! are deleted while others negotiate about them. After every write the invariants are checked; at the end everything
//! placeable has to be placed, and after everything was deleted nothing may be held. A failing seed is replayed with
//! `ALLOT_SIMULATION_SEED=n cargo test -p allot-scheduler --test classic_simulation`.

mod sim {
    pub mod api;
    pub mod classic;
    pub mod drivers;
    pub mod transport;
}

use sim::classic::SimulatedCluster;

/// How many seeds a plain test run takes; `ALLOT_SIMULATION_SEEDS` asks for more.
const SEEDS: u64 = 40;

/// Seeds that found a fault:
/// - 1033: a scheduler ended after a binding, the pod finished, and its negotiation was left over.
const REGRESSIONS: [u64; 1] = [1033];

#[test]
fn nothing_is_stuck_and_nothing_is_leaked() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = number("ALLOT_SIMULATION_SEED") {
        return SimulatedCluster::run(seed);
    }
    let seeds = 0..number("ALLOT_SIMULATION_SEEDS").unwrap_or(SEEDS);
    for seed in seeds.chain(REGRESSIONS) {
        eprintln!("seed {seed}");
        SimulatedCluster::run(seed);
    }
}
