use super::*;

/// The owners that a claim has, after the set's pod `s-0` was looked at; `policy` is what to do when scaled and when
/// deleted. An owner is written `kind/uid`, with a `!` if it is a controller.
fn check(policy: [&str; 2], wanted: bool, now: &[&str], expected: &str) {
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": {"name": "s", "uid": "set"},
        "spec": {
            "selector": {}, "template": {},
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": policy[0], "whenDeleted": policy[1]},
        },
    }))
    .unwrap();
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "s-0", "uid": "pod"}})).unwrap();
    let owner = |text: &&str| {
        let (kind, uid) = text.split_once('/').unwrap();
        let (version, name) = match kind {
            "StatefulSet" => ("apps/v1", "s"),
            "Pod" => ("v1", "s-0"),
            _ => ("example.com/v1", "other"),
        };
        json!({
            "apiVersion": version, "kind": kind, "name": name,
            "uid": uid.trim_end_matches('!'), "controller": uid.ends_with('!'),
        })
    };
    let owners_now: Vec<Value> = now.iter().map(owner).collect();
    let claim: PersistentVolumeClaim =
        serde_json::from_value(json!({"metadata": {"ownerReferences": owners_now}})).unwrap();
    let text = |owners: Vec<OwnerReference>| {
        let one = |o: &OwnerReference| {
            let mark = if o.controller == Some(true) { "!" } else { "" };
            format!("{}/{}{mark}", o.kind, o.uid)
        };
        owners.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let found = match owners(&claim, &set, &pod, wanted) {
        Owners::AsTheyAre => "as they are".to_owned(),
        Owners::Be(owners) => format!("[{}]", text(owners)),
        Owners::Foreign(owners) => format!("foreign [{}]", text(owners)),
    };
    assert_eq!(
        found, expected,
        "{policy:?}, wanted: {wanted}, owners {now:?}"
    );
}

const KEEP: &str = "Retain";
const END: &str = "Delete";

#[test]
fn a_claim_belongs_to_what_it_ends_with() {
    check([KEEP, KEEP], true, &[], "as they are");
    check([KEEP, KEEP], false, &[], "as they are");
    check([KEEP, END], true, &[], "[StatefulSet/set!]");
    check([KEEP, END], false, &["StatefulSet/set!"], "as they are");
    check([END, KEEP], true, &[], "as they are");
    check([END, KEEP], false, &[], "[Pod/pod!]");
    check([END, END], true, &[], "[StatefulSet/set!]");
    check([END, END], false, &["StatefulSet/set!"], "[Pod/pod!]");
}

#[test]
fn a_policy_may_change() {
    check([KEEP, KEEP], true, &["StatefulSet/set!"], "[]");
    check([KEEP, KEEP], true, &["Pod/pod!", "Other/x!"], "[Other/x!]");
    check(
        [KEEP, END],
        true,
        &["StatefulSet/set"],
        "[StatefulSet/set!]",
    );
}

#[test]
fn a_pod_that_is_wanted_again_gives_its_claims_back() {
    check([END, KEEP], true, &["Pod/pod!"], "[]");
    check([END, END], true, &["Pod/pod!"], "[StatefulSet/set!]");
}

#[test]
fn claims_of_others_are_left_to_them() {
    check([END, END], false, &["Other/x!"], "as they are");
    check(
        [END, END],
        false,
        &["Other/x!", "StatefulSet/set!"],
        "foreign [Other/x!]",
    );
    check([END, END], false, &["Other/x"], "[Other/x Pod/pod!]");
    // What had the name of the set or the pod before.
    check([END, END], false, &["StatefulSet/old!"], "as they are");
    check([KEEP, KEEP], true, &["Pod/old!"], "as they are");
}
