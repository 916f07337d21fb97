//! Whether the device classes of a claim are there.

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{DraContext, PLUGIN, requests_of};
use crate::status::Rejection;

/// Rejects a pod with a claim whose requests can not be read, or whose classes do not exist.
pub(super) fn check_classes(claim: &ResourceClaim, cx: &DraContext<'_>) -> Result<(), Rejection> {
    let check = |request: String, class: &str| {
        if class.is_empty() {
            return Err(Rejection::error(
                PLUGIN,
                format!("request {request}: unsupported request type"),
            ));
        }
        if cx.classes.get(class).is_none() {
            let text = format!("request {request}: device class {class} does not exist");
            return Err(Rejection::unresolvable(PLUGIN, text));
        }
        Ok(())
    };
    for request in requests_of(claim) {
        let alternatives = request.first_available.as_deref().unwrap_or_default();
        let named = || {
            let meta = &claim.metadata;
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            format!(
                "resource claim {namespace}/{}, request {}",
                meta.name.as_deref().unwrap_or_default(),
                request.name
            )
        };
        match &request.exactly {
            Some(exactly) => check(request.name.clone(), &exactly.device_class_name)?,
            None if alternatives.is_empty() => {
                return Err(Rejection::unresolvable(
                    PLUGIN,
                    format!("{}: unknown request type", named()),
                ));
            }
            None if !cx.prioritized_list => {
                let text = format!(
                    "{}: has subrequests, but the DRAPrioritizedList feature is disabled",
                    named()
                );
                return Err(Rejection::unresolvable(PLUGIN, text));
            }
            None => {
                for sub in alternatives {
                    check(
                        format!("{}/{}", request.name, sub.name),
                        &sub.device_class_name,
                    )?;
                }
            }
        }
    }
    Ok(())
}
