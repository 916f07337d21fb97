//! The plans for networks and definitions.

use serde_json::json;

use super::*;

fn listed(objects: Vec<Value>) -> Observed<DynamicObject> {
    let read = |object| serde_json::from_value(object).expect("an object");
    Observed::Listed {
        items: objects.into_iter().map(read).collect(),
        version: String::new(),
    }
}

fn config(name: &str, annotations: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "annotations": annotations},
        "spec": spec,
    })
}

/// The definitions after everything planned was written.
fn written(plan: Plan) -> Observed<DynamicObject> {
    listed(
        plan.write
            .into_iter()
            .map(|(_, definition)| definition)
            .collect(),
    )
}

fn names(plan: &Plan) -> (Vec<String>, Vec<String>, Vec<&str>) {
    let write = plan.write.iter().map(|(_, d)| target(d).to_string());
    let delete = plan.delete.iter().map(|(name, _)| name.to_string());
    let tell = plan.tell.iter().map(|(_, note)| note.as_str());
    (write.collect(), delete.collect(), tell.collect())
}

#[test]
fn regression_a_definition_goes_when_its_network_has_another_name_for_it() {
    let spec = json!({"cniType": "ovs", "ovs": {"bridge": "br0"}});
    let named = |name: &str| json!({"multus.spidernet.io/cr-name": name});
    let mut state = State::default();
    state.see(Seen::Configs(listed(vec![config(
        "a",
        named("x"),
        spec.clone(),
    )])));
    state.see(Seen::Definitions(listed(Vec::new())));
    let plan = state.plan();
    state.see(Seen::Definitions(written(plan)));
    assert_eq!(names(&state.plan()), (vec![], vec![], vec![]));
    // Another name, and none: the old definition is deleted.
    for (annotations, new) in [(named("y"), "ns/y"), (json!({}), "ns/a")] {
        state.see(Seen::Configs(listed(vec![config(
            "a",
            annotations,
            spec.clone(),
        )])));
        let plan = state.plan();
        assert_eq!(
            names(&plan),
            (vec![new.to_owned()], vec!["ns/x".to_owned()], vec![])
        );
    }
    // Definitions created elsewhere stay, and so does the one of a network that can no longer be
    // parsed.
    let foreign = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "foreign", "namespace": "ns"},
    });
    state.see(Seen::Definitions(listed(vec![foreign])));
    assert!(state.plan().delete.is_empty());
}

#[test]
fn regression_what_is_wrong_with_a_network_is_told_once() {
    let custom = |text: &str| json!({"cniType": "custom", "customCNI": text});
    let same = json!({"multus.spidernet.io/cr-name": "good"});
    let mut state = State::default();
    state.see(Seen::Definitions(listed(Vec::new())));
    let (bad, good) = (
        config("bad", json!({}), custom("{")),
        config("good", json!({}), custom("{}")),
    );
    let late = config("late", same, custom("{}"));
    state.see(Seen::Configs(listed(vec![bad, good, late])));
    let plan = state.plan();
    let (write, delete, tell) = names(&plan);
    assert_eq!((write, delete.len()), (vec!["ns/good".to_owned()], 0));
    assert_eq!(
        tell,
        [
            "spec.customCNI is no JSON object: EOF while parsing an object at line 1 column 1",
            "the NetworkAttachmentDefinition ns/good is that of SpiderMultusConfig ns/good",
        ]
    );
    assert!(state.plan().tell.is_empty());
}
