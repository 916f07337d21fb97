//! `log`, `exec`, `attach`, `portforward`, `proxy`: passed on to the kubelet of the node, or to the workload.

use bytes::Bytes;
use http::Response;

use crate::admission::{self, Attributes, Operation};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::registry::Subresource;
use crate::rest::Call;
use crate::{kubelet, proxy};

pub(super) async fn answer(
    call: Call<'_>,
    subresource: &Subresource,
    body: Bytes,
) -> Result<Response<Body>> {
    let attributes = Attributes {
        operation: Operation::Connect,
        resource: &call.resource,
        subresource: &subresource.name,
        namespace: call.namespace(),
        name: call.name(),
        user: &call.request.user,
        old: None,
        dry_run: false,
    };
    admission::validate(
        call.core,
        &attributes,
        &serde_json::Value::Null,
        &call.request.warnings,
    )
    .await?;
    match (call.resource.plural.as_str(), subresource.name.as_str()) {
        ("pods", "log") => kubelet::log(&call).await,
        ("pods", "exec" | "attach" | "portforward") => {
            kubelet::stream(&call, &subresource.name).await
        }
        ("pods", "proxy") => proxy::pod(&call, body).await,
        ("services", "proxy") => proxy::service(&call, body).await,
        ("nodes", "proxy") => kubelet::proxy(&call, body).await,
        _ => Err(ApiError::no_such_path()),
    }
}
