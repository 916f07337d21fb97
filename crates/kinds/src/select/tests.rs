use serde_json::json;

use super::*;

#[test]
fn selectors_see_the_same_in_a_part_as_in_the_whole() {
    let registry = crate::builtin::registry(
        &crate::registry::RuntimeConfig::default(),
        allot_model::features::Release::NEWEST,
    );
    // Every path that some selector looks at, and things around them that none does.
    let object = json!({
        "metadata": {"name": "n", "namespace": "s", "labels": {"a": "b"}, "annotations": {"name": "x"}},
        "spec": {
            "nodeName": "node", "restartPolicy": "Never", "schedulerName": "x", "serviceAccountName": "sa",
            "hostNetwork": true, "unschedulable": true, "clusterIP": "10.0.0.1", "type": "ClusterIP",
            "signerName": "signer", "driver": "d", "containers": [{"name": "c"}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.2", "nominatedNodeName": "m", "replicas": 3, "succeeded": 4},
        "type": "Opaque", "reason": "Because", "reportingComponent": "rc", "source": {"component": "", "host": "h"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "q", "uid": "u", "fieldPath": "f"},
    });
    let text = object.to_string();
    for resource in registry.iter() {
        let part = extract(text.as_bytes(), &visible(resource));
        let (of_part, of_whole) = (
            Attributes::of(resource, &part),
            Attributes::of(resource, &object),
        );
        assert_eq!(of_part.labels, of_whole.labels, "{}", resource.plural);
        assert_eq!(of_part.fields, of_whole.fields, "{}", resource.plural);
        assert!(part["spec"].get("containers").is_none());
    }
}

/// An absent field of a custom resource was "false" or "0" where a built-in kind has a field of that name.
#[test]
fn regression_absent_fields_of_custom_resources_are_empty() {
    let fields = json!([{"jsonPath": ".spec.hostNetwork"}, {"jsonPath": ".status.replicas"}]);
    let definition = json!({
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Gadget"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "selectableFields": fields,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        "status": {"acceptedNames": {"plural": "gadgets", "kind": "Gadget", "listKind": "GadgetList"}},
    });
    let resource = crate::registry::of_definition(&definition, None);
    let of = |object: Value| {
        let attributes = Attributes::of(&resource, &object);
        let fields = ["spec.hostNetwork", "status.replicas"];
        fields.map(|field| attributes.field(field).unwrap_or_default().to_owned())
    };
    assert_eq!(of(json!({"metadata": {"name": "n"}})), ["", ""]);
    let set = json!({"spec": {"hostNetwork": false}, "status": {"replicas": 0}});
    assert_eq!(of(set), ["false", "0"]);
}

#[test]
fn what_is_no_object_has_no_parts() {
    let paths = ["a.b"];
    for (text, want) in [
        (r#"{"a":{"b":1,"c":2},"d":[1]}"#, json!({"a":{"b":1}})),
        (r#"{"a":[1,{"b":2}]}"#, json!({"a":null})),
        (r#"{"a":"b"}"#, json!({"a":null})),
        ("[", Value::Null),
    ] {
        assert_eq!(extract(text.as_bytes(), &paths), want, "{text}");
    }
}

/// A request with a token that is bound to a large pod must not cost more than one with a token bound to a small pod.
#[test]
fn what_follows_the_last_wanted_member_is_not_read() {
    let text = r#"{"metadata":{"uid":"u","name":"n"},"spec":{"#;
    let want = json!({"metadata": {"uid": "u"}});
    assert_eq!(extract(text.as_bytes(), &["metadata.uid"]), want);
    let both = ["metadata.uid", "spec.nodeName"];
    assert_eq!(extract(text.as_bytes(), &both), Value::Null);
}
