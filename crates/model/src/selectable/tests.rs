use serde_json::json;

use super::*;

#[test]
fn slices_can_be_selected_by_node_and_driver() {
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d"}});
    let fields = field_values(Kind::ResourceSlice, &slice);
    let expected = [
        ("metadata.name", "s"),
        ("spec.driver", "d"),
        ("spec.nodeName", ""),
    ];
    assert_eq!(
        fields,
        expected
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    );
}

#[test]
fn namespaced_kinds_can_be_selected_by_namespace() {
    assert_eq!(
        selectable_fields(Kind::ResourceClaim),
        ["metadata.name", "metadata.namespace"]
    );
    assert_eq!(selectable_fields(Kind::DeviceClass), ["metadata.name"]);
}
