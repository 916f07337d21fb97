use super::*;

#[test]
fn the_eviction_of_a_successor_of_the_same_name_stays() {
    let mut state = State::default();
    let eviction = |uid: &str| Eviction {
        uid: uid.to_owned(),
        at: Timestamp::UNIX_EPOCH,
        reasons: [].into(),
    };
    let key = Key::from("ns/p");
    state.pending.insert(key.clone(), eviction("new"));
    assert_eq!(state.take_pending(&key, "old"), None);
    assert_eq!(state.take_pending(&key, "new"), Some(eviction("new")));
    assert!(state.pending.is_empty());
}
