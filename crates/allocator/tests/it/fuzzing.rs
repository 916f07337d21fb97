//! The fuzz targets on stable: the committed seeds and random changes of them.

use proptest::prelude::*;

#[path = "../../../../fuzz/entry.rs"]
mod entry;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/").to_owned() + target;
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// A seed with some bytes replaced, some ranges copied elsewhere, and maybe cut off.
fn mutated(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let seeds = seeds(target);
    let edits = prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            0..40_usize,
            0..4_u8,
            any::<u8>(),
        ),
        0..5,
    );
    (prop::sample::select(seeds), edits).prop_map(|(mut data, edits)| {
        for (at, from, len, kind, byte) in edits {
            if data.is_empty() {
                break;
            }
            let (at, from) = (at.index(data.len()), from.index(data.len()));
            let end = (from + len).min(data.len());
            match kind {
                0 => data[at] = byte,
                // A digit keeps JSON readable more often.
                1 => data[at] = b'0' + byte % 10,
                2 => {
                    let piece = data[from..end].to_vec();
                    data.splice(at..at, piece);
                }
                _ => {
                    data.drain(from..end);
                }
            }
        }
        data
    })
}

#[test]
fn the_seeds_of_the_fuzzers_pass() {
    seeds("allocator")
        .iter()
        .for_each(|data| entry::allocator(data));
    seeds("cel").iter().for_each(|data| entry::cel(data));
    seeds("quantity")
        .iter()
        .for_each(|data| entry::quantity(data));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn allocator(data in mutated("allocator")) {
        entry::allocator(&data);
    }

    #[test]
    fn cel(data in mutated("cel")) {
        entry::cel(&data);
    }

    #[test]
    fn quantity(data in mutated("quantity")) {
        entry::quantity(&data);
    }
}
