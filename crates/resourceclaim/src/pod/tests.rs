use serde_json::{Value, json};

use super::*;

fn pod(entry: Value, status: Value) -> Pod {
    let pod = json!({
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [], "resourceClaims": [entry]},
        "status": status,
    });
    serde_json::from_value(pod).unwrap()
}

#[test]
fn the_name_comes_from_the_entry_or_from_the_status() {
    let check = |entry: Value, status: Value, expected: Result<Option<&str>, UnknownName>| {
        let pod = pod(entry, status);
        let entry = &pod.spec.as_ref().unwrap().resource_claims.as_ref().unwrap()[0];
        assert_eq!(claim_name(&pod, entry), expected);
    };
    let named = json!({"name": "e", "resourceClaimName": "c"});
    let generated = json!({"name": "e", "resourceClaimTemplateName": "t"});
    let status = |entry: Value| json!({"resourceClaimStatuses": [entry]});
    check(named, json!({}), Ok(Some("c")));
    check(generated.clone(), json!({}), Err(UnknownName::NotCreated));
    let other = status(json!({"name": "f", "resourceClaimName": "x"}));
    check(generated.clone(), other, Err(UnknownName::NotCreated));
    let created = status(json!({"name": "e", "resourceClaimName": "x"}));
    check(generated.clone(), created, Ok(Some("x")));
    check(generated, status(json!({"name": "e"})), Ok(None));
    check(
        json!({"name": "e"}),
        json!({}),
        Err(UnknownName::Unsupported),
    );
}

#[test]
fn a_claim_is_for_the_pod_that_controls_it() {
    let check = |owner: Value, expected: bool| {
        let claim = json!({"metadata": {"ownerReferences": [owner]}, "spec": {}});
        let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
        assert_eq!(
            is_for_pod(&pod(json!({"name": "e"}), json!({})), &claim),
            expected
        );
    };
    let owner = |uid: &str, controller: Value| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": controller});
    check(owner("u", json!(true)), true);
    check(owner("u", Value::Null), false);
    check(owner("v", json!(true)), false);
}
