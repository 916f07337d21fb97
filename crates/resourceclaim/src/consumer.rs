//! The consumers of a claim.

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};

/// The API group of PodGroups, in references to consumers (KEP 4671).
pub const POD_GROUP_API_GROUP: &str = "scheduling.k8s.io";
/// The resource of PodGroups, as references to consumers name it.
pub const POD_GROUP_RESOURCE: &str = "podgroups";

/// The consumers in `status.reservedFor`.
pub fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let status = claim.status.as_ref();
    let consumers = status.and_then(|s| s.reserved_for.as_deref());
    consumers.unwrap_or_default()
}

/// Whether a claim is reserved for the pod or PodGroup with a UID. As `resourceclaim.IsReservedForPod` in upstream.
pub fn is_reserved_for(claim: &ResourceClaim, uid: &str) -> bool {
    consumers(claim).iter().any(|consumer| consumer.uid == uid)
}

/// Whether a consumer is a PodGroup, in whatever version of the API.
pub fn is_pod_group(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.resource == POD_GROUP_RESOURCE
        && consumer.api_group.as_deref() == Some(POD_GROUP_API_GROUP)
}

/// Whether a consumer is the pod with a UID, or its PodGroup. PodGroups are compared by name: a pod contains nothing
/// else.
pub fn is_consumer(
    consumer: &ResourceClaimConsumerReference,
    pod_uid: &str,
    pod_group: Option<&str>,
) -> bool {
    match is_pod_group(consumer) {
        true => pod_group == Some(&*consumer.name),
        false => consumer.uid == pod_uid,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_consumes_what_is_reserved_for_it_or_for_its_group() {
        let check = |api_group: Option<&str>, resource: &str, expected: bool| {
            let claim = json!({"spec": {}, "status": {"reservedFor": [
                {"apiGroup": api_group, "resource": resource, "name": "g", "uid": "x"},
            ]}});
            let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
            let found = is_consumer(&consumers(&claim)[0], "u", Some("g"));
            assert_eq!(found, expected, "{resource}");
            assert!(is_reserved_for(&claim, "x") && !is_reserved_for(&claim, "u"));
        };
        check(Some(POD_GROUP_API_GROUP), POD_GROUP_RESOURCE, true);
        check(Some("example.com"), POD_GROUP_RESOURCE, false);
        check(None, "pods", false);
        let none = ResourceClaim::default();
        assert!(consumers(&none).is_empty());
    }
}
