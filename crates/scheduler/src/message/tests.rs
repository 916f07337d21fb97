use super::*;
use crate::plugins::Plugin;
use crate::status::Rejection;

fn unplaced(reasons: &[&'static str]) -> Unplaced {
    let nodes = reasons
        .iter()
        .map(|r| Some(Rejection::unresolvable(Plugin::NodeName, *r)))
        .collect();
    Unplaced {
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
        unschedulable(&u, 3, None, "still not schedulable"),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 cannot allocate all claims. still not schedulable",
    );
}

#[test]
fn the_explanation_follows_its_reason() {
    let u = unplaced(&["cannot allocate all claims"]);
    let text = unschedulable(
        &u,
        1,
        Some(("cannot allocate all claims", "claim gpu: 8 devices, 0 free")),
        "",
    );
    assert_eq!(
        text,
        "0/1 nodes are available: 1 cannot allocate all claims (claim gpu: 8 devices, 0 free)."
    );
}

#[test]
fn an_explanation_does_not_repeat_its_reason() {
    let reason = "invalid resource pools were encountered";
    let why = format!("{reason}; pool p cannot be used: duplicate device name d0");
    let u = unplaced(&["invalid resource pools were encountered"]);
    assert_eq!(
        unschedulable(&u, 1, Some((reason, &why)), ""),
        "0/1 nodes are available: 1 invalid resource pools were encountered (pool p cannot be used: duplicate device name d0)."
    );
}

#[test]
fn rejection_before_any_node() {
    let before = Some(Rejection::unresolvable(
        Plugin::DynamicResources,
        "request r: device class c does not exist",
    ));
    let u = Unplaced {
        nodes: Vec::new(),
        before,
    };
    assert_eq!(
        unschedulable(&u, 5, None, ""),
        "0/5 nodes are available: request r: device class c does not exist."
    );
}

#[test]
fn length_is_bounded() {
    let u = unplaced(&["cannot allocate all claims"]);
    let text = unschedulable(
        &u,
        1,
        Some(("cannot allocate all claims", &"ä".repeat(5000))),
        &"ö".repeat(9000),
    );
    assert!(text.len() <= MESSAGE_LIMIT && text.ends_with("..."));
}
