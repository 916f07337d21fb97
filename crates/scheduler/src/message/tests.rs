use super::*;
use crate::framework::Plugin;
use crate::status::Rejection;

fn unplaced(reasons: &[&'static str]) -> FitError {
    let nodes = reasons
        .iter()
        .map(|r| Some(Rejection::unresolvable(Plugin::NodeName, *r)))
        .collect();
    FitError {
        nodes,
        before: None,
    }
}

#[test]
fn counts_are_sorted_as_text() {
    let u = unplaced(&[
        "cannot allocate all claims",
        "node(s) had untolerated taint(s)",
        "cannot allocate all claims",
    ]);
    assert_eq!(
        unschedulable(&u, 3, "still not schedulable"),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 cannot allocate all claims. still not schedulable",
    );
}

#[test]
fn the_explanation_follows_the_text_of_the_condition() {
    let check = |message: &str, expected: &str| {
        assert_eq!(explained(message, Some("Nearest is node n: x.")), expected);
        assert_eq!(explained(message, None), message);
    };
    check(
        "0/1 nodes are available: 1 cannot allocate all claims.",
        "0/1 nodes are available: 1 cannot allocate all claims. Nearest is node n: x.",
    );
    check(
        "0/1 nodes are available: 1 y. still not schedulable",
        "0/1 nodes are available: 1 y. still not schedulable. Nearest is node n: x.",
    );
}

#[test]
fn rejection_before_any_node() {
    let before = Some(Rejection::unresolvable(
        Plugin::DynamicResources,
        "request r: device class c does not exist",
    ));
    let u = FitError {
        nodes: Vec::new(),
        before,
    };
    assert_eq!(
        unschedulable(&u, 5, ""),
        "0/5 nodes are available: request r: device class c does not exist."
    );
}

#[test]
fn length_is_bounded() {
    let u = unplaced(&["cannot allocate all claims"]);
    let text = unschedulable(&u, 1, &"ö".repeat(9000));
    assert!(text.len() <= MESSAGE_LIMIT && text.ends_with("..."));
}
