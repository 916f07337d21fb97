use super::*;

#[test]
fn events_begin_with_a_small_letter() {
    assert_eq!(
        Done::Create.message("db-0", "db", None),
        "create Pod db-0 in StatefulSet db successful"
    );
    assert_eq!(
        Done::Delete.message("db-0", "db", Some("no")),
        "delete Pod db-0 in StatefulSet db failed error: no"
    );
}
