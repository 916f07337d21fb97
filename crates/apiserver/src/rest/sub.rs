//! Subresources.

use bytes::Bytes;
use http::Response;

use super::{Call, patch, read, update};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::registry::Subresource;
use crate::strategy::Part;

mod binding;

/// Answers a request on a subresource that exists.
pub(super) async fn dispatch(
    call: Call<'_>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>> {
    let verb = call.request.info.verb.as_str();
    if !subresource.verbs.iter().any(|known| known == verb) {
        return Err(ApiError::method_not_allowed());
    }
    let _ = update::creates_on_update;
    match (subresource.name.as_str(), verb) {
        ("status", "get") => read::get(call).await,
        ("status", "update") => {
            let object = call.object_for_update(&body)?;
            let stored = call.modify(Part::Status, |_| Ok(object.clone())).await?;
            call.stored_response(200, stored)
        }
        ("status", "patch") => patch::patch_part(call, body, Part::Status).await,
        ("binding", "create") => binding::create(call, body).await,
        ("finalize", "update") => {
            let object = call.object_for_update(&body)?;
            let stored = call
                .modify(Part::Sub, |current| {
                    let mut new = current.clone();
                    new["spec"]["finalizers"] = object["spec"]["finalizers"].clone();
                    new["metadata"]["resourceVersion"] =
                        object["metadata"]["resourceVersion"].clone();
                    Ok(new)
                })
                .await?;
            call.stored_response(200, stored)
        }
        _ => Err(ApiError::no_such_path()),
    }
}
