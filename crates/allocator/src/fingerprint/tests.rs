use std::collections::HashSet;
use std::hash::Hash;

use super::*;

fn wide(value: impl Hash) -> Wide {
    let mut hasher = WideHasher::new();
    value.hash(&mut hasher);
    hasher.wide()
}

#[test]
fn texts_that_differ_in_padding_or_place_differ() {
    let texts = [
        vec!["abcdefg", "x"],
        vec!["abcdefg\u{7}", "x"],
        vec!["abcdefg\0", "x"],
        vec!["abcdefgx", ""],
        vec!["abcdefgx"],
        vec!["abcdefg", "", "x"],
        vec!["", "abcdefg", "x"],
    ];
    let different: HashSet<Wide> = texts.iter().map(wide).collect();
    assert_eq!(different.len(), texts.len());
}

#[test]
fn both_lanes_tell_small_numbers_in_any_order_apart() {
    let mut lanes = [HashSet::new(), HashSet::new()];
    for a in 0..300_u64 {
        for b in 0..300_i64 {
            let [first, second] = wide((a, b));
            lanes[0].insert(first);
            lanes[1].insert(second);
        }
    }
    assert_eq!(lanes.map(|lane| lane.len()), [90_000, 90_000]);
}
