//! The gRPC services of the versions of the DRA API: they check the claims of a request and pass it to [`Core`].

use std::collections::HashMap;
use std::sync::Arc;

use allot_protos::{dra_v1, dra_v1beta1};
use tonic::{Request, Response, Status};

use super::Core;
use crate::Driver;
use crate::claim::ClaimRef;
use crate::error::Failure;

/// Continues when the caller no longer waits. A kubelet waits for 45 s: the driver must not be interrupted at an
/// arbitrary point then, and a late result is answered from the checkpoint when the kubelet asks again.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let result = tokio::spawn(work).await;
    result.unwrap_or_else(|error| Err(Status::internal(format!("driver: {error}"))))
}

/// The claims of a request, of any version.
macro_rules! references {
    ($request:ident) => {{
        let claims = $request.into_inner().claims.into_iter();
        let claims = claims.map(|claim| ClaimRef {
            namespace: claim.namespace,
            name: claim.name,
            uid: claim.uid,
        });
        claims.map(checked).collect::<Result<Vec<_>, Status>>()?
    }};
}

/// All three parts become parts of file names.
fn checked(claim: ClaimRef) -> Result<ClaimRef, Status> {
    let bad = |part: &String| {
        part.is_empty() || part.contains(['/', '\0']) || matches!(part.as_str(), "." | "..")
    };
    let parts = [&claim.namespace, &claim.name, &claim.uid];
    if parts.into_iter().any(bad) {
        return Err(Status::invalid_argument(format!(
            "claim {claim:?}: namespace, name and UID must be set and must not contain a slash"
        )));
    }
    Ok(claim)
}

/// One version of the service; the versions differ in their generated types only.
macro_rules! serve {
    ($service:ident, $wire:ident, $device:expr) => {
        pub(crate) struct $service<D>(pub(crate) Arc<Core<D>>);

        impl<D> Clone for $service<D> {
            fn clone(&self) -> Self {
                Self(Arc::clone(&self.0))
            }
        }

        #[tonic::async_trait]
        impl<D: Driver> $wire::dra_plugin_server::DraPlugin for $service<D> {
            async fn node_prepare_resources(
                &self,
                request: Request<$wire::NodePrepareResourcesRequest>,
            ) -> Result<Response<$wire::NodePrepareResourcesResponse>, Status> {
                let (core, claims) = (Arc::clone(&self.0), references!(request));
                let answers = to_the_end(async move { core.prepare_all(claims).await }).await?;
                let entry = |(uid, result): (String, Result<Vec<dra_v1::Device>, Failure>)| {
                    let mut response = $wire::NodePrepareResourceResponse::default();
                    match result {
                        Ok(devices) => {
                            response.devices = devices.into_iter().map($device).collect()
                        }
                        Err(error) => response.error = error.to_string(),
                    }
                    (uid, response)
                };
                let claims: HashMap<_, _> = answers.into_iter().map(entry).collect();
                Ok(Response::new($wire::NodePrepareResourcesResponse {
                    claims,
                }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$wire::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$wire::NodeUnprepareResourcesResponse>, Status> {
                let (core, claims) = (Arc::clone(&self.0), references!(request));
                let answers = to_the_end(async move { core.unprepare_all(claims).await }).await?;
                let entry = |(uid, result): (String, Result<(), Failure>)| {
                    (
                        uid,
                        $wire::NodeUnprepareResourceResponse {
                            error: result
                                .err()
                                .map(|error| error.to_string())
                                .unwrap_or_default(),
                        },
                    )
                };
                let claims: HashMap<_, _> = answers.into_iter().map(entry).collect();
                Ok(Response::new($wire::NodeUnprepareResourcesResponse {
                    claims,
                }))
            }
        }
    };
}

serve!(ServiceV1, dra_v1, |device| device);
serve!(ServiceV1beta1, dra_v1beta1, |device: dra_v1::Device| {
    dra_v1beta1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
    }
});
