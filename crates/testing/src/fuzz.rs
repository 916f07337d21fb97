//! Fuzzing without an instrumented compiler: seeds are changed at random places, and an entry point must survive them.
//!
//! The changes follow from a number, so a run can be repeated. There is no feedback from coverage: `fuzz/run` uses
//! libFuzzer with the same entry points where possible. An ordinary test runs a few thousand inputs or for a few
//! seconds; with `ALLOT_FUZZ_SECONDS` it runs for that long, starts from another number each time, and saves failing
//! inputs in `fuzz/artifacts`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Inputs of an ordinary test.
const ROUNDS: usize = 4000;
/// An ordinary test ends a target after this time, even if it has not tried all inputs.
const ORDINARY: Duration = Duration::from_secs(5);
/// Maximum length of an input: longer ones are slow and find little.
const LONGEST: usize = 64 << 10;
/// Maximum number of mutations of one input.
const CHANGES: u64 = 6;
/// An input that takes longer is a finding; libFuzzer's option of the same meaning is set to the same.
const SLOW: Duration = Duration::from_secs(20);

/// Inserted in addition to changed bytes: numbers, names and delimiters with special meaning for parsers.
const PIECES: [&[u8]; 24] = [
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"0.1",
    b"\xff\xfe",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"$patch",
    b"&a *a",
    b"!!binary ",
    b"? ",
    b"<<: ",
    b"---\n",
    b"%00",
    b"%2f",
    b"..",
    b"[[[[[[[[",
    b"((((((((",
];

/// A small generator of random numbers (xorshift): no dependency, and the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64).max(1)).unwrap_or(0)
    }
}

/// Runs `entry` with the seeds in `fuzz/seeds/TARGET` and with mutations of them.
///
/// # Panics
/// If `entry` panics or takes too long; the input is printed.
pub fn run(target: &str, entry: impl Fn(&[u8])) {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    let seeds = seeds(&root.join("seeds").join(target));
    let seconds = std::env::var("ALLOT_FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse::<u64>().ok());
    let artifacts = seconds.map(|_| root.join("artifacts").join(target));
    if let Some(folder) = &artifacts {
        std::fs::create_dir_all(folder).expect("fuzz/artifacts is writable");
    }
    for seed in &seeds {
        try_input(target, &entry, seed, artifacts.as_deref());
    }
    let start = Instant::now();
    let begin = match seconds {
        Some(_) => u64::from(std::process::id()) ^ 0x9e37_79b9_7f4a_7c15,
        None => 0x9e37_79b9_7f4a_7c15,
    };
    let mut random = Random(begin);
    let mut rounds = 0;
    while match seconds {
        Some(seconds) => start.elapsed() < Duration::from_secs(seconds),
        None => rounds < ROUNDS && start.elapsed() < ORDINARY,
    } {
        let mut data = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.next() % CHANGES {
            change(&mut data, &seeds, &mut random);
        }
        data.truncate(LONGEST);
        try_input(target, &entry, &data, artifacts.as_deref());
        rounds += 1;
    }
    println!(
        "{target}: {} seeds, {rounds} inputs, {:.0} s",
        seeds.len(),
        start.elapsed().as_secs_f64()
    );
}

fn seeds(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.expect("a readable folder").path())
        .collect();
    // The order decides what a number means.
    files.sort();
    let read = files
        .iter()
        .map(|file| std::fs::read(file).expect("a readable seed"));
    let seeds: Vec<Vec<u8>> = read.collect();
    assert!(!seeds.is_empty(), "{} has no seeds", folder.display());
    seeds
}

fn try_input(target: &str, entry: &impl Fn(&[u8]), data: &[u8], artifacts: Option<&Path>) {
    // An abort of the process leaves nothing else behind.
    let running = artifacts.map(|folder| folder.join("running"));
    if let Some(file) = &running {
        std::fs::write(file, data).expect("fuzz/artifacts is writable");
    }
    let start = Instant::now();
    let survived = catch_unwind(AssertUnwindSafe(|| entry(data))).is_ok();
    let took = start.elapsed();
    if survived && took < SLOW {
        return;
    }
    if let (Some(file), Some(folder)) = (running, artifacts) {
        let kept = folder.join(format!("found-{:08x}", sum(data)));
        std::fs::rename(file, &kept).expect("fuzz/artifacts is writable");
        println!("{target}: see {}", kept.display());
    }
    let what = if survived { "takes too long" } else { "fails" };
    panic!("{target} {what} ({took:?}) with {}", data.escape_ascii());
}

/// The hash of an input (FNV-1a), as its name.
fn sum(data: &[u8]) -> u32 {
    data.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

fn change(data: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    if data.is_empty() {
        data.push(0);
    }
    let at = random.below(data.len());
    let byte = (random.next() >> 32) as u8;
    match random.next() % 9 {
        0 => data[at] = byte,
        1 => data[at] ^= 1 << (byte % 8),
        2 => data.truncate(at),
        3 => data.insert(at, byte),
        4 => drop(data.remove(at)),
        5 => {
            let end = at + random.below(data.len() - at);
            let part = data[at..end].to_vec();
            data.splice(at..at, part);
        }
        6 => {
            let end = at + random.below((data.len() - at).min(16));
            drop(data.splice(at..end, []));
        }
        7 => {
            // A part of another seed.
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let part = &other[from..from + random.below(other.len() - from)];
            drop(data.splice(at..at, part.iter().copied()));
        }
        _ => {
            let piece = PIECES[random.below(PIECES.len())];
            drop(data.splice(at..at, piece.iter().copied()));
        }
    }
}
