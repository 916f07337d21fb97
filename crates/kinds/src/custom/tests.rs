use serde_json::json;

use super::*;

#[test]
fn paths_find_fields_indices_and_filtered_elements() {
    let object = json!({"spec":{"a":[{"b":1},{"b":2}],"x.y":3},"status":{"conditions":[{"type":"A","status":"F"},{"type":"Ready","status":"T"}]}});
    for (path, expected) in [
        (".spec.a[1].b", json!([2])),
        (".spec.a[*].b", json!([1, 2])),
        (".spec.a[-1].b", json!([2])),
        (".spec['x\\.y']", json!([3])),
        (".spec.x\\.y", json!([3])),
        (
            ".status.conditions[?(@.type==\"Ready\")].status",
            json!(["T"]),
        ),
        (".status.conditions[?(@.type=='A')].status", json!(["F"])),
        (".nothing.here", json!([])),
        (".spec[", json!([])),
    ] {
        assert_eq!(json!(json_path::find(&object, path)), expected, "{path}");
    }
}

fn definition() -> Value {
    let schema = json!({"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer","default":1}}},
        "status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}});
    json!({"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Gadget"},"versions":[
            {"name":"v1beta1","served":true,"deprecated":true,"schema":{"openAPIV3Schema":schema}},
            {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":schema},
                "additionalPrinterColumns":[{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}],
                "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}}]},
        "status":{"acceptedNames":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"}}})
}

#[test]
fn a_definition_makes_a_row_of_the_registry() {
    let made = crate::registry::of_definition(&definition(), None);
    assert_eq!(
        made.versions
            .iter()
            .map(|v| v.name.as_str())
            .collect::<Vec<_>>(),
        ["v1", "v1beta1"]
    );
    assert_eq!(
        made.versions[1].deprecation,
        "example.com/v1beta1 Gadget is deprecated; use example.com/v1 Gadget"
    );
    assert_eq!(
        made.subresources
            .iter()
            .map(|s| s.name.as_str())
            .collect::<Vec<_>>(),
        ["status", "scale"]
    );
    assert_eq!(
        (made.storage_version.as_str(), &*made.collection),
        ("v1", "example.com/gadgets")
    );
}

#[test]
fn rows_and_scales_are_read_by_path() {
    let custom = CustomResource::new(&definition(), None);
    let object = json!({"metadata":{"name":"a"},"spec":{"replicas":3},"status":{"replicas":2}});
    assert_eq!(custom.row("v1", &object), [json!("a"), json!(3)]);
    let scale = custom.scale("v1").expect("v1 scales");
    assert_eq!(
        scale.read(&object).expect("a scale")["status"],
        json!({"replicas":2})
    );
    let bad = json!({"spec":{"replicas":-1},"status":{"replicas":"many"}});
    let texts: Vec<String> = scale
        .validate(&bad, Part::Main)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            ".spec.replicas: Invalid value: -1: should be a non-negative integer",
            ".status.replicas: Invalid value: 0: .status.replicas accessor error: many is of the type string, expected int64"
        ]
    );
}
