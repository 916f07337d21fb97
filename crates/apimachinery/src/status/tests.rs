use serde_json::json;

use super::*;
use crate::field::{Error, Path};

fn claims() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
}

#[test]
fn not_found_is_upstreams_object() {
    assert_eq!(
        Status::not_found(&claims(), "c").to_json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "resourceclaims.resource.k8s.io \"c\" not found", "reason": "NotFound",
            "details": {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"}, "code": 404
        })
    );
}

#[test]
fn invalid_lists_causes_and_aggregates() {
    let errors = ErrorList::from([
        Error::required(&Path::new("spec").child("a"), ""),
        Error::invalid(&Path::new("b"), "x", "is bad"),
    ]);
    let status = Status::invalid(
        &GroupKind::new("resource.k8s.io", "DeviceClass"),
        "n",
        &errors,
    );
    assert_eq!(
        status.message,
        "DeviceClass.resource.k8s.io \"n\" is invalid: [spec.a: Required value, b: Invalid value: \"x\": is bad]"
    );
    let details = status.details.unwrap();
    assert_eq!(details.causes[1].reason, "FieldValueInvalid");
    assert_eq!(details.causes[1].message, "Invalid value: \"x\": is bad");
}

#[test]
fn messages_of_conflict_forbidden_and_internal_errors_are_upstreams() {
    assert_eq!(
        Status::conflict(&claims(), "c", "the object has been modified").message,
        "Operation cannot be fulfilled on resourceclaims.resource.k8s.io \"c\": the object has been modified"
    );
    assert_eq!(
        Status::forbidden(&claims(), "", "no").message,
        "resourceclaims.resource.k8s.io is forbidden: no"
    );
    assert_eq!(Status::internal("x").message, "Internal error occurred: x");
    let text = Status::too_many_requests("slow", 3).to_json();
    assert_eq!(
        serde_json::from_value::<Status>(text)
            .unwrap()
            .details
            .unwrap()
            .retry_after_seconds,
        3
    );
}
