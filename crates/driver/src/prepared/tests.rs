use serde_json::json;

use super::*;

#[test]
fn state_is_bounded_and_bound_to_its_version() {
    let prepared = Prepared::default().with_state(&json!({"vf": 3})).unwrap();
    assert_eq!(prepared.state, Some(json!({"vf": 3})));
    let error = Prepared::default()
        .with_state(&"x".repeat(MAX_STATE_BYTES))
        .unwrap_err();
    assert!(error.to_string().contains("at most 65536"), "{error}");

    let state = State {
        version: 1,
        value: json!({"vf": 3}),
    };
    let check = |version| decode::<Value>(Some(&state), version).map_err(|e| e.to_string());
    assert_eq!(check(1), Ok(Some(json!({"vf": 3}))));
    let error = check(2).unwrap_err();
    assert_eq!(error, "state has version 1, this driver reads version 2");
    assert!(decode::<Vec<u8>>(Some(&state), 1).is_err());
    assert_eq!(decode::<Value>(None, 1).unwrap(), None);
}
