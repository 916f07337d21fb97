//! Traces in the format of [`openb`](super::openb) with numbers that a seed draws: the proportions are those that clusters
//! with shared GPUs have, the values are made up.

use std::fmt::Write as _;

use crate::random::Random;

/// Models of nodes: name, GPUs, thousandths of processors, MiB of memory, weight.
const MODELS: [(&str, u64, u64, u64, u64); 4] = [
    ("A", 8, 96_000, 786_432, 5),
    ("B", 4, 64_000, 393_216, 3),
    ("C", 2, 48_000, 262_144, 2),
    ("", 0, 64_000, 262_144, 1),
];
/// Parts of a GPU that tasks take, with their weights.
const PARTS: [(u64, u64); 7] = [
    (100, 5),
    (200, 10),
    (330, 15),
    (460, 15),
    (500, 20),
    (650, 10),
    (810, 25),
];
/// Kinds of tasks: GPUs, whether a part of one, weight.
const KINDS: [((u64, bool), u64); 6] = [
    ((0, false), 12),
    ((1, true), 38),
    ((1, false), 36),
    ((2, false), 6),
    ((4, false), 4),
    ((8, false), 4),
];

/// A list of so many nodes.
#[must_use]
pub fn nodes(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed);
    let mut text = "sn,cpu_milli,memory_mib,gpu,model\n".to_owned();
    let choices: Vec<_> = MODELS.iter().map(|model| (model, model.4)).collect();
    for number in 0..count {
        let Some((model, gpus, cpu, memory, _)) = random.weighted(&choices) else {
            break;
        };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "node-{number:04},{cpu},{memory},{gpus},{model}");
    }
    text
}

/// A list of so many pods that arrive over a day.
#[must_use]
pub fn pods(seed: u64, count: usize) -> String {
    let mut random = Random::new(seed ^ 0x706f_6473);
    let columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time";
    let mut text = format!("{columns}\n");
    let mut times: Vec<u64> = (0..count).map(|_| random.below(86_400)).collect();
    times.sort_unstable();
    for (number, created) in times.into_iter().enumerate() {
        let (gpus, part) = *random.weighted(&KINDS).unwrap_or(&(0, false));
        let milli = match (gpus, part) {
            (0, _) => 0,
            (_, true) => *random.weighted(&PARTS).unwrap_or(&500),
            _ => 1000,
        };
        let cpu = 1000 * (1 + random.below(4) + 4 * gpus);
        let memory = 1024 * (2 + random.below(8) + 24 * gpus);
        let models = match random.below(20) {
            0 if gpus > 0 && gpus < 8 => "A|B",
            _ => "",
        };
        // Most run for minutes, some for hours.
        let duration = match random.below(10) {
            0 => 3600 * (1 + random.below(12)),
            1..4 => 600 * (1 + random.below(6)),
            _ => 60 * (1 + random.below(15)),
        };
        let deleted = created + duration;
        let _ = writeln!(
            text,
            "pod-{number:05},{cpu},{memory},{gpus},{milli},{models},LS,Succeeded,{created},{deleted},{created}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{csv, openb};

    #[test]
    fn a_seed_decides_the_trace() {
        assert_eq!(pods(1, 20), pods(1, 20));
        assert_ne!(pods(1, 20), pods(2, 20));
        let table = csv::read(&pods(1, 20)).expect("a table");
        assert!(openb::is_pods(&table));
        assert_eq!(table.1.len(), 20);
        let table = csv::read(&nodes(1, 5)).expect("a table");
        let objects = openb::nodes(&table, openb::Sharing::Capacity).expect("nodes");
        assert_eq!(objects.iter().filter(|o| o["kind"] == "Node").count(), 5);
    }
}
