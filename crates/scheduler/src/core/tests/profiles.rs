//! What profiles say about all of their pods.

use super::*;
use crate::framework::Plugin;
use crate::plugins::affinity::AddedAffinity;
use crate::plugins::fit::{FitArgs, Strategy};
use crate::selectors::Nodes;

fn with_profile(change: impl FnOnce(&mut Profile)) -> Fixture {
    let mut fixture = Fixture::new("");
    change(&mut fixture.core.config.profiles[0]);
    fixture
}

fn check_full(strategy: Strategy, weight: i64, expected: &str) {
    let mut fixture = with_profile(|profile| {
        profile.weights = vec![(Plugin::NodeResourcesFit, weight)];
        profile.fit = FitArgs {
            strategy: strategy.clone(),
            resources: vec![("example.com/gpu".into(), 1)],
            ..FitArgs::default()
        };
    });
    let pod = fixture.extended_resource();
    fixture.claim("a", allocated("n1", &["other"]));
    fixture.any_pod("p", &[], pod);
    assert_eq!(
        fixture.run().node(),
        Some(expected),
        "{strategy:?} {weight}"
    );
}

#[test]
fn devices_that_stand_for_a_resource_count_in_its_score() {
    check_full(Strategy::MostAllocated, 1, "n1");
    check_full(Strategy::LeastAllocated, 1, "n0");
}

/// They were taken, and had no effect; upstream's scheduler counts them.
#[test]
fn negative_weights_speak_against_a_node() {
    check_full(Strategy::MostAllocated, -1, "n0");
    check_full(Strategy::LeastAllocated, -1, "n1");
}

#[test]
fn pods_go_where_the_profile_wants_them() {
    let term = |node: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        Nodes::new(&serde_json::from_value(selector).expect("a selector"))
    };
    for (node, expected) in [("n0", Some("n0")), ("n1", Some("n1")), ("n2", None)] {
        let mut fixture = with_profile(|profile| {
            profile.added_affinity = AddedAffinity {
                required: Some(term(node)),
                preferred: Vec::new(),
            };
        });
        fixture.pod("p", &[]);
        let outcome = fixture.run();
        assert_eq!(outcome.node(), expected, "{node}");
        let text = "2 node(s) didn't match scheduler-enforced node affinity";
        assert_eq!(outcome.message().contains(text), expected.is_none());
    }
}
