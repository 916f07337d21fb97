//! Claims: administrative access by namespace, and granular permissions for the status.

use allot_apimachinery::field::ErrorList;
use allot_model::{Kind, admin, authorize};
use serde_json::Value;

use super::Admission;
use super::{Attributes, Operation};
use crate::auth::AuthorizerAttributes;
use crate::error::Result;
use crate::object::{meta, string_map};
use crate::versions::dra_kind;

/// Administrative access that the namespace does not give.
pub(super) async fn admin_errors(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<ErrorList> {
    let Some(kind) = dra_kind(attributes.resource) else {
        return Ok(ErrorList::new());
    };
    let status = attributes.subresource == "status";
    let place = match (attributes.operation, attributes.old) {
        (Operation::Create, _) => admin::requested(kind, object),
        (Operation::Update, Some(old)) if status && kind == Kind::ResourceClaim => {
            admin::granted(object, old)
        }
        _ => None,
    };
    let mut errors = ErrorList::new();
    if let Some(place) = place {
        let namespace = meta(object, "namespace");
        let labels = core
            .stored_parts("namespaces", namespace, &["metadata.labels"])
            .await?
            .map(|found| string_map(&found["metadata"]["labels"]));
        let labels = labels.ok_or_else(|| format!("namespaces {namespace:?} not found"));
        errors.extend(admin::check(&place, labels.as_ref().map_err(Clone::clone)));
    }
    Ok(errors)
}

/// What of a claim's status the user may not change.
pub(super) async fn status_errors(
    core: &Admission,
    attributes: &Attributes<'_>,
    verb: &str,
    object: &Value,
) -> Result<ErrorList> {
    let mut errors = ErrorList::new();
    let status = attributes.subresource == "status";
    let kind = dra_kind(attributes.resource);
    if let (true, Some(Kind::ResourceClaim), Some(old)) = (status, kind, attributes.old) {
        let caller = authorize::Caller {
            user: &attributes.user.name,
            extra: &attributes.user.extra,
        };
        for check in authorize::status_checks(object, old, verb, caller, &core.config.features) {
            let mut reason = None;
            for permission in &check.any_of {
                let access = AuthorizerAttributes {
                    subresource: permission.subresource,
                    namespace: &permission.namespace,
                    name: &permission.name,
                    ..AuthorizerAttributes::resource(
                        attributes.user,
                        &permission.verb,
                        allot_model::GROUP,
                        "resourceclaims",
                    )
                };
                let decision = core.authorizer.decide(core, &access).await?;
                if decision.allowed() {
                    reason = None;
                    break;
                }
                // Both verbs of a driver may be missing; the first one is reported.
                if reason.is_none() {
                    reason = Some(access.refusal(decision.reason()));
                }
            }
            if let Some(reason) = reason {
                errors.push(check.denied(&reason));
            }
        }
    }
    Ok(errors)
}
