use serde_json::json;

use super::*;

fn labels(value: &str) -> BTreeMap<String, String> {
    [(ADMIN_ACCESS_LABEL.to_owned(), value.to_owned())].into()
}

fn claim() -> Value {
    let request = |admin: bool| json!({"name": "r", "exactly": {"adminAccess": admin}});
    json!({"spec": {"devices": {"requests": [request(false), request(true), request(true)]}}})
}

#[test]
fn only_a_labelled_namespace_allows_it_and_only_the_first_request_is_named() {
    let place = requested(Kind::ResourceClaim, &claim()).unwrap();
    let text = |labels: &BTreeMap<String, String>| {
        check(&place, Ok(labels)).map(|error| error.to_string())
    };
    assert_eq!(
        text(&labels("True")).unwrap(),
        "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    );
    assert_eq!(text(&labels("true")), None);
}

#[test]
fn templates_are_checked_like_claims() {
    let template = json!({"spec": claim()});
    assert_eq!(
        requested(Kind::ResourceClaimTemplate, &template),
        requested(Kind::ResourceClaim, &claim())
    );
}

#[test]
fn what_was_granted_before_stays_granted() {
    let claim = |admin: bool| json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": admin}]}}}});
    let place = granted(&claim(true), &claim(false)).unwrap();
    assert_eq!(
        place.as_str(),
        "status.allocation.devices.results[0].adminAccess"
    );
    assert!(granted(&claim(true), &claim(true)).is_none());
    assert!(granted(&claim(false), &json!({})).is_none());
}

#[test]
fn an_unreadable_namespace_is_an_internal_error() {
    let place = requested(Kind::ResourceClaim, &claim()).unwrap();
    let error = check(&place, Err("gone".to_owned())).unwrap();
    assert_eq!(error.kind.reason(), "InternalError");
}
