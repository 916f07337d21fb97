use super::*;

#[test]
fn text_form_round_trips() {
    for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,2,4"] {
        assert_eq!(Indexes::parse_below(text, 100).to_string(), text, "{text}");
    }
}

#[test]
fn indexes_are_parsed_counted_and_intersected() {
    let mut set = Indexes::parse_below("1-3", 100);
    set.insert(5);
    set.insert(2);
    assert_eq!(set.len(), 4);
    assert!(set.contains(3) && !set.contains(4));
    assert_eq!(set.common(&Indexes::parse_below("2-9", 100)), 3);
    assert_eq!(
        Indexes::parse_below("x,2,-,1-", 100).to_string(),
        "2",
        "what can not be read is left out"
    );
    assert_eq!(Indexes::default().to_value(), Value::Null);
}
