use super::*;

fn list<K>(input: fn(Observed<K>) -> Input) -> Input {
    input(Observed::Listed {
        items: Vec::new(),
        version: "1".to_owned(),
    })
}

/// Where a watch broke at once, pods were placed before it was known what is allocated.
#[test]
fn a_kind_that_is_listed_twice_does_not_stand_for_another() {
    let mut lists = Lists::new(3);
    lists.note(&list(Input::Node));
    lists.note(&list(Input::Node));
    lists.note(&list(Input::Slice));
    assert!(!lists.are_complete());
    lists.note(&list(Input::Claim));
    assert!(lists.are_complete());
    // Classic kinds are separate kinds.
    let classic = |c: classic::Input| Input::Classic(Box::new(c));
    let version = || "1".to_owned();
    let mut lists = Lists::new(2);
    lists.note(&classic(classic::Input::Claim(Observed::Listed {
        items: Vec::new(),
        version: version(),
    })));
    lists.note(&classic(classic::Input::Class(Observed::Listed {
        items: Vec::new(),
        version: version(),
    })));
    assert!(lists.are_complete());
}
