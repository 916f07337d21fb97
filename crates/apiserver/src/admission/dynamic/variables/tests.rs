use super::*;

#[test]
fn references_are_found_wherever_they_stand() {
    let found = |text| references(text).collect::<Vec<_>>();
    assert_eq!(
        found("variables.a + variables . b2 > variables.?c.d"),
        ["a", "b2", "c"]
    );
    assert!(found("object.spec.variable == 'x'").is_empty());
}
