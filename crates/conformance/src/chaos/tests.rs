use super::*;

/// The steps of a seed are the same every time, and each kind occurs.
#[test]
fn steps_follow_from_the_seed() {
    let steps = |seed| {
        let mut random = StdRng::seed_from_u64(seed);
        let mut taken = BTreeSet::new();
        let mut steps = Vec::new();
        for _ in 0..2000 {
            let step = draw(&mut random, 3, &taken);
            match step {
                Step::Prepare(device) | Step::KillDuringPrepare(device, _) => {
                    assert!(taken.insert(device), "{step}");
                }
                Step::Unprepare(device)
                | Step::Delete(device)
                | Step::KillDuringUnprepare(device, _) => assert!(taken.remove(&device), "{step}"),
                Step::PrepareAgain(device) => assert!(taken.contains(&device), "{step}"),
                _ => {}
            }
            steps.push(step);
        }
        steps
    };
    assert_eq!(steps(1), steps(1));
    assert_ne!(steps(1), steps(2));
    let kinds: BTreeSet<String> = steps(1)
        .iter()
        .map(|step| format!("{step:?}").split('(').next().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.len(), 14, "{kinds:?}");
}
