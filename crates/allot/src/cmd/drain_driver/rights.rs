//! Checks the permissions that a drain needs: a watch without permission would only be retried.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

/// Group of devices.
const DRA: &str = "resource.k8s.io";

/// A right: group, resource, verb.
type Right = (&'static str, &'static str, &'static str);

/// The permissions that every drain, and every `--undo`, needs.
const SLICES: [Right; 3] = [
    (DRA, "resourceslices", "list"),
    (DRA, "resourceslices", "watch"),
    (DRA, "resourceslices", "patch"),
];

/// The permissions that a drain needs in addition.
const DRAIN: [Right; 3] = [
    (DRA, "resourceslices", "delete"),
    (DRA, "resourceclaims", "list"),
    (DRA, "resourceclaims", "watch"),
];

/// Permissions for DeviceTaintRules, if the server serves them.
const RULES: [Right; 3] = [
    (DRA, "devicetaintrules", "create"),
    (DRA, "devicetaintrules", "patch"),
    (DRA, "devicetaintrules", "list"),
];

/// The permissions that `--undo` needs there.
const UNDO_RULES: [Right; 2] = [
    (DRA, "devicetaintrules", "list"),
    (DRA, "devicetaintrules", "delete"),
];

/// Permissions to see whether drivers run.
const NODES: [Right; 2] = [("", "nodes", "list"), ("", "nodes", "watch")];

/// Returns an error that names the missing permissions.
///
/// # Errors
/// The rights that are missing, `patch resourceslices.resource.k8s.io`.
pub async fn check(client: &Client, undo: bool, has_rules: bool) -> anyhow::Result<()> {
    let mut needed = SLICES.to_vec();
    match (undo, has_rules) {
        (false, false) => needed.extend(DRAIN),
        (false, true) => needed.extend(DRAIN.into_iter().chain(RULES)),
        (true, true) => needed.extend(UNDO_RULES),
        (true, false) => {}
    }
    let mut missing = Vec::new();
    for right in needed {
        if !has(client, right).await? {
            let (group, resource, verb) = right;
            missing.push(format!("{verb} {resource}.{group}"));
        }
    }
    anyhow::ensure!(
        missing.is_empty(),
        "the user has no right to {}",
        missing.join(", ")
    );
    Ok(())
}

/// Whether nodes may be watched, which report their drivers.
pub async fn sees_nodes(client: &Client) -> anyhow::Result<bool> {
    for right in NODES {
        if !has(client, right).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn has(client: &Client, (group, resource, verb): Right) -> anyhow::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match reviews.create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        // If the server does not support the review, the request itself shows it.
        Err(kube::Error::Api(_)) => Ok(true),
        Err(error) => Err(anyhow::Error::new(error).context("the API server does not answer")),
    }
}
