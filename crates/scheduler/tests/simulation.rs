//! A deterministic simulation: the scheduler against a small API with faults, on a paused clock.
//!
//! Everything that happens follows from a seed: which requests are slow, lost, answered with a conflict or an error
//! after they were carried out, which watches break or are too old, when pods come and go, when the scheduler is
//! killed. After every write the invariants are checked; at the end, everything placeable has to be placed and nothing
//! may be held by nobody. A failing seed is replayed with
//! `ALLOT_SIMULATION_SEED=n cargo test -p allot-scheduler --test simulation`.

mod sim {
    pub mod api;
    pub mod world;
}

use sim::world::World;

/// How many seeds a plain test run takes; `ALLOT_SIMULATION_SEEDS` asks for more.
const SEEDS: u64 = 60;

#[test]
fn nothing_is_lost_and_nothing_is_given_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = number("ALLOT_SIMULATION_SEED") {
        return World::run(seed);
    }
    for seed in 0..number("ALLOT_SIMULATION_SEEDS").unwrap_or(SEEDS) {
        eprintln!("seed {seed}");
        World::run(seed);
    }
}

#[test]
fn a_seed_replays_exactly() {
    let trace = World::trace(7);
    assert_eq!(trace, World::trace(7));
    // The seed is one in which something happens.
    let bound = trace
        .iter()
        .filter(|l| l.contains("MODIFIED pods ") && l.contains(" n"))
        .count();
    assert!(bound > 5, "{trace:#?}");
}
