use std::collections::BTreeSet;

use super::*;

/// Every kind of `resource.k8s.io` that `model` knows is listed with its rules.
#[test]
fn every_kind_of_the_model_is_listed() {
    for kind in allot_model::Kind::ALL {
        let listed = find(allot_model::GROUP, kind.plural()).unwrap_or_else(|| panic!("{kind:?}"));
        assert_eq!(listed.kind, kind.name());
        assert_eq!(listed.namespaced, kind.namespaced());
        assert!(listed.rules.steps.is_some(), "{kind:?}");
    }
}

/// Every resource that is served in some release has the rules of its file, regardless of the feature gates.
#[test]
fn every_served_resource_has_its_rules() {
    let config = RuntimeConfig::parse("api/all=true").expect("a configuration");
    for release in [26, 30, 32, 34, 36, 37].map(Release::new) {
        let registry = registry(&config, release);
        for resource in registry.iter() {
            match find(&resource.group, &resource.plural) {
                Some(listed) => assert!(
                    std::ptr::eq(resource.rules, &listed.rules),
                    "{}",
                    resource.qualified()
                ),
                // Kinds that only exist in classic versions.
                None => assert_eq!(resource.group, allot_model::GROUP),
            }
        }
    }
}

#[test]
fn kinds_and_groups_are_listed_once() {
    let mut seen = BTreeSet::new();
    for kind in all() {
        assert!(seen.insert((kind.group, kind.plural)), "{}", kind.plural);
        assert!(seen.insert((kind.group, kind.kind)), "{}", kind.kind);
        assert!(
            crate::registry::is_builtin_group(kind.group),
            "{}",
            kind.group
        );
    }
}

#[test]
fn events_of_both_groups_share_a_collection() {
    let others = |group: &str, plural: &str| -> Vec<&str> {
        let others = sharing_collection(group, plural);
        others.map(|kind| kind.group).collect()
    };
    assert_eq!(others("", "events"), ["events.k8s.io"]);
    assert_eq!(others("events.k8s.io", "events"), [""]);
    assert!(others("", "pods").is_empty());
    assert!(others("example.com", "events").is_empty());
}
