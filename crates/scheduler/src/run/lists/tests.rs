use allot_framework::claim_plugin::Message;

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
    // Those of a plugin are separate kinds.
    #[derive(Debug)]
    struct Of(Option<&'static str>);
    impl Message for Of {
        fn list_of(&self) -> Option<&'static str> {
            self.0
        }
    }
    let of_plugin = |kind| Input::ClaimPlugin(Box::new(Of(kind)));
    let mut lists = Lists::new(2);
    lists.note(&of_plugin(Some("ResourceClaim")));
    lists.note(&of_plugin(Some("ResourceClaim")));
    lists.note(&of_plugin(None));
    assert!(!lists.are_complete());
    lists.note(&of_plugin(Some("ResourceClass")));
    assert!(lists.are_complete());
}
