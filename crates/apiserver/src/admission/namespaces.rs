//! The plugins NamespaceLifecycle and NamespaceExists.

use allot_apimachinery::Status;
use allot_apimachinery::gvk::GroupResource;

use super::{Admission, Attributes, Operation};
use crate::error::{ApiError, Result};

/// Namespaces that always exist.
const SYSTEM_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Objects live only in namespaces that exist and are not going away.
pub(super) async fn admit(core: &Admission, attributes: &Attributes<'_>) -> Result<()> {
    let namespaces = attributes.resource.rules.is_namespace;
    if attributes.operation == Operation::Delete
        && namespaces
        && SYSTEM_NAMESPACES.contains(&attributes.name)
    {
        let why = "this namespace may not be deleted";
        return Err(
            Status::forbidden(&attributes.resource.group_resource(), attributes.name, why).into(),
        );
    }
    if namespaces || !attributes.resource.namespaced || attributes.operation != Operation::Create {
        return Ok(());
    }
    // Reviews are answered, not stored.
    if attributes.resource.group == "authorization.k8s.io" {
        return Ok(());
    }
    check_name(attributes.namespace)?;
    let namespace = core.backend.get("namespaces", attributes.namespace).await?;
    let namespace = namespace.ok_or_else(|| not_found(attributes.namespace))?;
    if !attributes.subresource.is_empty() {
        return Ok(());
    }
    let namespace = crate::select::extract(&namespace.value, &["status.phase"]);
    if namespace["status"]["phase"] == "Terminating" {
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            attributes.namespace
        );
        let mut status =
            Status::forbidden(&attributes.resource.group_resource(), attributes.name, &why);
        if let Some(details) = &mut status.details {
            details.causes.push(allot_apimachinery::status::Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {} is being terminated", attributes.namespace),
                field: "metadata.namespace".to_owned(),
            });
        }
        return Err(status.into());
    }
    Ok(())
}

/// Upstream requests the namespace with a client that builds no path from such a name.
fn check_name(namespace: &str) -> Result<()> {
    if !matches!(namespace, "." | "..") {
        return Ok(());
    }
    let why = format!("invalid resource name \"{namespace}\": [may not be '{namespace}']");
    Err(Status::internal(&why).into())
}

/// The plugin NamespaceExists: also changes and deletions need a namespace that exists.
///
/// # Errors
/// 404.
pub(super) async fn exists(core: &Admission, attributes: &Attributes<'_>) -> Result<()> {
    let namespace = attributes.namespace;
    let concerned = attributes.operation != Operation::Connect
        && !namespace.is_empty()
        && !attributes.resource.rules.is_namespace;
    if !concerned || core.backend.get("namespaces", namespace).await?.is_some() {
        return Ok(());
    }
    Err(not_found(namespace))
}

/// The response 404 for a request into a namespace that does not exist.
pub(super) fn not_found(namespace: &str) -> ApiError {
    Status::not_found(&GroupResource::new("", "namespaces"), namespace).into()
}
