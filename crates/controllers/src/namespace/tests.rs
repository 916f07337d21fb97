use super::*;

fn shown(left: &Remaining, undiscovered: bool) -> Vec<String> {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    conditions(Vec::new(), left, undiscovered, now)
        .iter()
        .map(|c| {
            format!(
                "{}={} {}: {}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap(),
                c["reason"].as_str().unwrap(),
                c["message"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn conditions_tell_what_is_left() {
    let left = Remaining {
        resources: vec![
            ("pods.".to_owned(), 2),
            ("widgets.example.com".to_owned(), 1),
        ],
        finalizers: [("example.com/wait".to_owned(), 1)].into(),
        errors: Vec::new(),
    };
    assert_eq!(
        shown(&left, false),
        [
            "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances, widgets.example.com has 1 resource instances",
            "NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances",
        ]
    );
    assert!(!left.is_empty());
    assert!(Remaining::default().is_empty());
}
