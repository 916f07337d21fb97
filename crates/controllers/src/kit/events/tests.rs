use super::*;

fn note(message: &str, second: i64) -> Note {
    Note {
        component: "c".to_owned(),
        about: ObjectReference {
            name: Some("p".to_owned()),
            uid: Some("1".to_owned()),
            ..Default::default()
        },
        level: Level::Warning,
        reason: "Failed".to_owned(),
        action: String::new(),
        message: message.to_owned(),
        at: Timestamp::from_second(1_800_000_000 + second).unwrap(),
    }
}

/// Decides and remembers what would be created.
fn play(correlator: &mut Correlator, note: &Note) -> Verdict {
    let (key, verdict) = correlator.decide(note);
    if let Verdict::Create { .. } = verdict {
        correlator.created(key, "e".to_owned(), note.at);
    }
    verdict
}

#[test]
fn the_same_event_is_counted_up() {
    let mut correlator = Correlator::default();
    assert!(matches!(
        play(&mut correlator, &note("m", 0)),
        Verdict::Create { .. }
    ));
    let verdict = play(&mut correlator, &note("m", 1));
    assert_eq!(
        verdict,
        Verdict::Count {
            name: "e".to_owned(),
            count: 2,
            message: "m".to_owned()
        }
    );
}

#[test]
fn many_similar_events_become_one() {
    let mut correlator = Correlator::default();
    for i in 0..FOLD_AFTER {
        play(&mut correlator, &note(&format!("m{i}"), 0));
    }
    let folded = "(combined from similar events): another".to_owned();
    assert_eq!(
        play(&mut correlator, &note("another", 0)),
        Verdict::Create { message: folded }
    );
    assert!(matches!(
        play(&mut correlator, &note("yet another", 0)),
        Verdict::Count { count: 2, .. }
    ));
}

#[test]
fn a_flood_is_held_back_and_flows_again_later() {
    let mut correlator = Correlator::default();
    let written = (0..100)
        .filter(|_| play(&mut correlator, &note("m", 0)) != Verdict::Drop)
        .count();
    assert_eq!(written, 25);
    assert_ne!(play(&mut correlator, &note("m", 301)), Verdict::Drop);
    assert_eq!(play(&mut correlator, &note("m", 302)), Verdict::Drop);
}
