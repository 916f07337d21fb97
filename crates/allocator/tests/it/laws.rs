//! Laws that hold for every problem, on many random ones.

use allot_allocator::{Limits, Policy};

use crate::{checker, generate, make, reference};

const PROBLEMS: u64 = 10_000;

#[test]
fn results_are_those_of_the_plain_search_and_obey_the_rules() {
    let (mut solved, mut nothing, mut errors, mut long) = (0, 0, 0, 0);
    for seed in 0..PROBLEMS {
        let problem = generate::small(seed);
        let (mut text, results) = make::solve(&problem, &Limits::default());
        if text.starts_with("error: ") || text.starts_with("node error: ") {
            text = "error".into();
        }
        match text.as_str() {
            "nothing" => nothing += 1,
            "error" => errors += 1,
            _ => {
                solved += 1;
                if let Err(wrong) = checker::verify(&problem, &results) {
                    panic!(
                        "{wrong}\n{text}\n{}",
                        serde_json::to_string(&problem).unwrap()
                    );
                }
            }
        }
        match reference::solve(&problem, 20_000) {
            Some(expected) => assert_eq!(
                text,
                expected,
                "{}",
                serde_json::to_string(&problem).unwrap()
            ),
            None => long += 1,
        }
    }
    println!(
        "{solved} solved, {nothing} without solution, {errors} with errors, {long} too long for the plain search"
    );
    // The generator has to keep making problems of all kinds.
    assert!(
        solved > PROBLEMS / 5
            && nothing > PROBLEMS / 10
            && errors > PROBLEMS / 100
            && long < PROBLEMS / 50
    );
}

#[test]
fn best_fit_finds_something_exactly_when_first_fit_does() {
    for seed in 0..PROBLEMS / 4 {
        let problem = generate::small(seed);
        let (first, _) = make::solve(&problem, &Limits::default());
        let (best, results) = make::solve_with(&problem, Policy::BestFit, &Limits::default());
        let shown = || serde_json::to_string(&problem).unwrap();
        if first.contains("error") || best.contains("error") {
            // Which device fails first depends on the order.
            continue;
        }
        assert_eq!(first == "nothing", best == "nothing", "{}", shown());
        if best != "nothing"
            && let Err(wrong) = checker::verify(&problem, &results)
        {
            panic!("{wrong}\n{best}\n{}", shown());
        }
    }
}
