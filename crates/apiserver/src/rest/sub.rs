//! Subresources.

use bytes::Bytes;
use http::Response;
use serde_json::json;

use super::{patch, read};
use crate::body::Body;
use crate::context::Call;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Shape;
use crate::registry::Subresource;
use crate::request::Part;

pub(super) mod binding;
mod connect;
mod eviction;
mod scale;
mod token;

/// Answers a request on a subresource that exists.
pub(super) async fn dispatch(
    call: Call<'_>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>> {
    let verb = call.request.info.verb.as_str();
    // `OPTIONS` has no verb, and is passed on by a proxy.
    if !verb.is_empty() && !subresource.verbs.iter().any(|known| known == verb) {
        return Err(ApiError::method_not_allowed());
    }
    let part = match subresource.name.as_str() {
        "status" => Part::Status,
        "approval" => Part::Approval,
        "ephemeralcontainers" => Part::EphemeralContainers,
        "resize" => Part::Resize,
        "finalize" => Part::Finalize,
        "scale" => return scale::answer(call, body).await,
        "binding" => return binding::create(call, body).await,
        "eviction" => return eviction::create(call, body).await,
        "token" => return token::create(call, body).await,
        _ => return connect::answer(call, subresource, body).await,
    };
    match verb {
        "get" => read::get(call).await,
        "update" => {
            let object = call.object_for_update(&body)?;
            let stored = call.replace(part, object).await?;
            call.stored_response(200, stored).await
        }
        "patch" => patch::patch_part(call, body, part).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The Status of a success without other content.
fn success(call: &Call<'_>) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    let media = crate::negotiate::MediaType {
        shape: Shape::Whole,
        ..call.media
    };
    value_response(201, &status, media)
}
