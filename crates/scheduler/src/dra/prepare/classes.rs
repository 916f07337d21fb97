//! Whether the device classes of a claim exist.

use allot_apimachinery::suggest;
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim};

use super::{DraContext, PLUGIN, requests_of};
use crate::dra::claims::allocation_of;
use crate::dra::resolve;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// The device classes that exist, for a pod with a claim whose class does not. `None` for other pods.
pub fn missing_class(pod: &PodInfo, cx: &DraContext<'_>) -> Option<String> {
    const SHOWN: usize = 5;
    let claims = resolve::all(pod, cx.claim_plugin, cx.claims).ok()?;
    let open = claims.iter().filter(|c| allocation_of(&c.claim).is_none());
    let classes = open
        .flat_map(|c| requests_of(&c.claim))
        .flat_map(classes_of);
    let missing = classes.into_iter().find(|c| cx.classes.get(c).is_none())?;
    let mut names: Vec<&str> = cx.classes.names().collect();
    names.sort_unstable();
    if names.is_empty() {
        return Some("There are no device classes.".to_owned());
    }
    let hint = suggest::hint(missing, names.iter().copied());
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(SHOWN);
    Some(format!(
        "Device classes that exist: {}{more}{}",
        names.join(", "),
        if hint.is_empty() { "." } else { &hint }
    ))
}

/// The classes that a request or its alternatives name.
fn classes_of(request: &DeviceRequest) -> Vec<&str> {
    let exactly = request.exactly.iter().map(|r| &*r.device_class_name);
    let alternatives = request.first_available.iter().flatten();
    let classes = exactly.chain(alternatives.map(|a| &*a.device_class_name));
    classes.filter(|class| !class.is_empty()).collect()
}

/// Rejects a pod with a claim whose requests cannot be read, or whose classes do not exist.
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
