//! Permission to set owner references: the plugin OwnerReferencesPermissionEnforcement, which is off by default.
//!
//! An owner reference hands an object to the garbage collector, so changing it takes the right to delete the object. One
//! that blocks the deletion of the owner takes the right to set the owner's finalizers.

use serde_json::Value;

use super::Admission;
use super::{Attributes, Operation, forbidden};
use crate::auth::AuthorizerAttributes;
use crate::error::Result;
use crate::object::{items, split_api_version, text};

/// Refuses owner references that the user may not set.
///
/// # Errors
/// 403, and those of the authorizer.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    let resource = attributes.resource;
    let written = matches!(attributes.operation, Operation::Create | Operation::Update);
    // A status update keeps the owners, whatever an old kubelet sends.
    let exempt = resource.is("", "pods") && attributes.subresource == "status";
    let owners = items(&object["metadata"]["ownerReferences"]);
    let before = attributes
        .old
        .map_or(&[][..], |old| items(&old["metadata"]["ownerReferences"]));
    if !written || exempt || owners == before {
        return Ok(());
    }
    if attributes.operation != Operation::Create {
        let delete = AuthorizerAttributes {
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            ..AuthorizerAttributes::resource(
                attributes.user,
                "delete",
                &resource.group,
                &resource.plural,
            )
        };
        let decision = core.authorizer.decide(core, &delete).await?;
        if !decision.allowed() {
            let why = format!(
                "cannot set an ownerRef on a resource you can't delete: {}, <nil>",
                decision.reason()
            );
            return Err(forbidden(attributes, &why));
        }
    }
    check_blocking(core, attributes, owners, before).await
}

async fn check_blocking(
    core: &Admission,
    attributes: &Attributes<'_>,
    owners: &[Value],
    before: &[Value],
) -> Result<()> {
    let new: Vec<&Value> = owners
        .iter()
        .filter(|owner| blocks(owner))
        .filter(|owner| {
            let known = before.iter().rfind(|old| old["uid"] == owner["uid"]);
            !known.is_some_and(blocks)
        })
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let all = finalize(attributes, ("*", "*"), "", "*");
    if core.authorizer.decide(core, &all).await?.allowed() {
        return Ok(());
    }
    let registry = core.registry.load_full();
    for owner in new {
        let (version, kind) = (text(owner, &["apiVersion"]), text(owner, &["kind"]));
        let (group, _) = split_api_version(version);
        let Some(resource) = registry.by_kind(group, kind) else {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                 Kind {kind}: no matches for kind {kind:?} in group {group:?}"
            );
            return Err(forbidden(attributes, &why));
        };
        // The owner of an object in a namespace is in the same one, or in none.
        let namespace = match resource.namespaced {
            true => attributes.namespace,
            false => "",
        };
        let name = text(owner, &["name"]);
        let access = finalize(attributes, (group, &resource.plural), namespace, name);
        let decision = core.authorizer.decide(core, &access).await?;
        if !decision.allowed() {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
                 {}, <nil>",
                decision.reason()
            );
            return Err(forbidden(attributes, &why));
        }
    }
    Ok(())
}

/// The reference sets `blockOwnerDeletion`.
fn blocks(owner: &Value) -> bool {
    owner["blockOwnerDeletion"] == true
}

/// The access that the user needs to set the finalizers of a resource.
fn finalize<'a>(
    attributes: &Attributes<'a>,
    (group, resource): (&'a str, &'a str),
    namespace: &'a str,
    name: &'a str,
) -> AuthorizerAttributes<'a> {
    AuthorizerAttributes {
        subresource: "finalizers",
        namespace,
        name,
        ..AuthorizerAttributes::resource(attributes.user, "update", group, resource)
    }
}
