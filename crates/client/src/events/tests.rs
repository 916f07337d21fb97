use super::*;

fn note(message: &str, second: i64) -> Note {
    Note {
        source: Source {
            component: "c".into(),
            host: None,
        },
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
fn an_event_that_repeats_is_counted_in_place() {
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
fn events_that_differ_in_the_message_become_one_after_ten() {
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
fn an_object_has_a_burst_of_25_events_and_then_one_in_five_minutes() {
    let mut correlator = Correlator::default();
    let written = (0..100)
        .filter(|_| play(&mut correlator, &note("m", 0)) != Verdict::Drop)
        .count();
    assert_eq!(written, 25);
    assert_ne!(play(&mut correlator, &note("m", 301)), Verdict::Drop);
    assert_eq!(play(&mut correlator, &note("m", 302)), Verdict::Drop);
}

#[test]
fn equal_events_about_two_containers_are_two_events() {
    let about = |container: &str| {
        let mut note = note("m", 0);
        note.about.field_path = Some(format!("spec.containers{{{container}}}"));
        note
    };
    let mut correlator = Correlator::default();
    for container in ["a", "b"] {
        let verdict = play(&mut correlator, &about(container));
        assert!(matches!(verdict, Verdict::Create { .. }), "{verdict:?}");
    }
    let verdict = play(&mut correlator, &about("a"));
    assert!(
        matches!(verdict, Verdict::Count { count: 2, .. }),
        "{verdict:?}"
    );
}

#[test]
fn objects_and_nodes_have_their_own_bursts() {
    let mut correlator = Correlator::default();
    let mut spend = |uid: &str, host: &str| {
        let mut note = note("m", 0);
        note.about.uid = Some(uid.to_owned());
        note.source.host = Some(host.into());
        (0..100)
            .filter(|_| play(&mut correlator, &note) != Verdict::Drop)
            .count()
    };
    assert_eq!(spend("1", "n1"), 25);
    assert_eq!(spend("2", "n1"), 25);
    assert_eq!(spend("1", "n2"), 25);
    assert_eq!(spend("1", "n1"), 0);
}
