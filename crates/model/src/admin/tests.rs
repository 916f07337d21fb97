use serde_json::json;

use super::*;

fn labels(value: &str) -> BTreeMap<String, String> {
    [(ADMIN_ACCESS_LABEL.to_owned(), value.to_owned())].into()
}

fn claim() -> Value {
    let request = |admin: bool| json!({"name": "r", "exactly": {"adminAccess": admin}});
    json!({"spec": {"devices": {"requests": [request(false), request(true)]}}})
}

#[test]
fn only_a_labelled_namespace_allows_it() {
    let places = requested(Kind::ResourceClaim, &claim());
    let texts = |labels: &BTreeMap<String, String>| {
        check(&places, Ok(labels))
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        texts(&labels("True")),
        [
            "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
        ]
    );
    assert!(texts(&labels("true")).is_empty());
}

#[test]
fn templates_are_checked_like_claims() {
    let template = json!({"spec": claim()});
    let places = requested(Kind::ResourceClaimTemplate, &template);
    assert_eq!(
        places.iter().map(Path::as_str).collect::<Vec<_>>(),
        ["spec.spec.devices.requests[1].adminAccess"]
    );
}

#[test]
fn what_was_granted_before_stays_granted() {
    let claim = |admin: bool| json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": admin}]}}}});
    assert_eq!(granted(&claim(true), &claim(false)).len(), 1);
    assert!(granted(&claim(true), &claim(true)).is_empty());
    assert!(granted(&claim(false), &json!({})).is_empty());
}

#[test]
fn an_unreadable_namespace_is_an_internal_error() {
    let errors = check(
        &requested(Kind::ResourceClaim, &claim()),
        Err("gone".to_owned()),
    );
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].kind.reason(), "InternalError");
}
