//! The checker finds what it is for.

use std::collections::BTreeMap;

use super::model::{Action, Event, Operation, Outcome, Version, check};

fn event(kind: &str, revision: u64, value: &str) -> Event {
    Event {
        kind: kind.to_owned(),
        key: "k".to_owned(),
        revision,
        value: value.to_owned(),
    }
}

fn version(revision: u64, value: &str) -> Outcome {
    Outcome::Version(Version {
        revision,
        value: value.to_owned(),
    })
}

/// Operations one after the other.
fn operations(all: Vec<(Action, Outcome)>) -> Vec<Operation> {
    let numbered = (0u64..).zip(all);
    numbered
        .map(|(at, (action, outcome))| Operation {
            begin: 2 * at,
            end: 2 * at + 1,
            action,
            outcome,
        })
        .collect()
}

fn create() -> Action {
    Action::Create("k".to_owned(), "a".to_owned())
}

fn update(from: Option<u64>) -> Action {
    Action::Update("k".to_owned(), "b".to_owned(), from)
}

fn get() -> Action {
    Action::Get("k".to_owned())
}

fn log() -> Vec<Event> {
    vec![
        event("ADDED", 2, "a"),
        event("MODIFIED", 5, "b"),
        event("DELETED", 6, "b"),
    ]
}

/// A history without faults.
fn good() -> Vec<(Action, Outcome)> {
    let listed = BTreeMap::from([(
        "k".to_owned(),
        Version {
            revision: 2,
            value: "a".to_owned(),
        },
    )]);
    vec![
        (get(), Outcome::Absent),
        (create(), version(2, "a")),
        (get(), version(2, "a")),
        (Action::List, Outcome::Listed(4, listed)),
        (update(Some(2)), version(5, "b")),
        (Action::Delete("k".to_owned(), 5), Outcome::Deleted),
        (get(), Outcome::Absent),
        (Action::List, Outcome::Listed(6, BTreeMap::new())),
    ]
}

#[test]
fn a_good_history_fits() {
    assert_eq!(check(1, &operations(good()), &[log(), log()]), [""; 0]);
}

#[test]
fn the_model_rejects_faulty_histories() {
    let faulty = |what: &str, history: Vec<(Action, Outcome)>, logs: Vec<Vec<Event>>| {
        assert!(!check(1, &operations(history), &logs).is_empty(), "{what}");
    };
    let with = |at: usize, step: (Action, Outcome)| {
        let mut history = good();
        history[at] = step;
        history
    };
    faulty("a lost write", good(), vec![vec![event("ADDED", 2, "a")]]);
    faulty(
        "a gap",
        good(),
        vec![log(), vec![log()[0].clone(), log()[2].clone()]],
    );
    let mut twice = log();
    twice.insert(1, log()[0].clone());
    faulty("an event twice", good(), vec![twice.clone()]);
    faulty("watchers that differ", good(), vec![log(), twice]);
    let mut swapped = log();
    swapped.swap(0, 1);
    faulty("another order", good(), vec![swapped]);
    faulty(
        "another revision",
        with(1, (create(), version(3, "a"))),
        vec![log()],
    );
    faulty(
        "a refused write",
        with(1, (create(), Outcome::Refused)),
        vec![log()],
    );
    faulty(
        "a condition ignored",
        with(4, (update(Some(3)), version(5, "b"))),
        vec![log()],
    );
    faulty(
        "an old read",
        with(6, (get(), version(2, "a"))),
        vec![log()],
    );
    faulty(
        "a read of nothing",
        with(2, (get(), Outcome::Absent)),
        vec![log()],
    );
    faulty(
        "an old list",
        with(7, (Action::List, Outcome::Listed(1, BTreeMap::new()))),
        vec![log()],
    );
    faulty(
        "a list of nothing",
        with(3, (Action::List, Outcome::Listed(4, BTreeMap::new()))),
        vec![log()],
    );
    let unknown = with(4, (update(Some(2)), Outcome::Unknown));
    assert_eq!(check(1, &operations(unknown), &[log()]), [""; 0]);
}
