use super::env::expand;

#[test]
fn references_are_expanded_as_by_a_kubelet() {
    let env = vec![
        ("A".to_owned(), "1".to_owned()),
        ("A".to_owned(), "2".to_owned()),
    ];
    let check = |text: &str, expected: &str| assert_eq!(expand(text, &env), expected, "{text}");
    check("$(A)", "2");
    check("x$(A)y$(A)", "x2y2");
    check("$(B)", "$(B)");
    check("$$(A)", "$(A)");
    check("$$$$", "$$");
    check("$(A", "$(A");
    check("$A $", "$A $");
    check("", "");
}
