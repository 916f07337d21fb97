//! Admission: what may change or refuse a write after authorization and before storage.
//!
//! One chain, in upstream's order. Every plugin is a function of the write; webhooks get their place here.

mod quota;

use allot_apimachinery::Status;
use serde_json::Value;

use crate::error::Result;
use crate::identity::User;
use crate::registry::Resource;
use crate::server::Core;

/// What a write is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A removal.
    Delete,
    /// A stream to a pod.
    Connect,
}

/// A write as admission sees it.
pub struct Attributes<'a> {
    /// What happens.
    pub operation: Operation,
    /// To which resource.
    pub resource: &'a Resource,
    /// Through which subresource, or empty.
    pub subresource: &'a str,
    /// Namespace, or empty.
    pub namespace: &'a str,
    /// Name, or empty.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a User,
    /// The present object.
    pub old: Option<&'a Value>,
    /// Nothing is stored.
    pub dry_run: bool,
}

/// Lets every plugin change or refuse a write.
///
/// # Errors
/// The first refusal.
pub async fn mutate(core: &Core, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    let _ = object;
    namespace_lifecycle(core, attributes).await
}

/// Lets every plugin refuse the final object.
///
/// # Errors
/// The first refusal.
pub async fn validate(core: &Core, attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    quota::check(core, attributes, object).await
}

/// Namespaces that always exist.
const SYSTEM_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Objects live only in namespaces that exist and are not going away.
async fn namespace_lifecycle(core: &Core, attributes: &Attributes<'_>) -> Result<()> {
    let namespaces = attributes.resource.is("", "namespaces");
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
    let namespace = core.backend.get("namespaces", attributes.namespace).await?;
    let Some(namespace) = namespace else {
        let resource = allot_apimachinery::gvk::GroupResource::new("", "namespaces");
        return Err(Status::not_found(&resource, attributes.namespace).into());
    };
    if !attributes.subresource.is_empty() {
        return Ok(());
    }
    let namespace: Value = serde_json::from_slice(&namespace.value).unwrap_or(Value::Null);
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
