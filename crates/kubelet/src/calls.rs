//! Calls of the DRA service in both versions, and of the health service.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use allot_protos::dra_health_v1::dra_resource_health_client::DraResourceHealthClient as HealthV1;
use allot_protos::dra_health_v1alpha1::dra_resource_health_client::DraResourceHealthClient as HealthV1alpha1;
use allot_protos::dra_health_v1alpha1::{NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use allot_protos::registration::PluginInfo;
use allot_protos::{dra_v1, dra_v1beta1, service_name};
use tonic::{Code, Request, Status, Streaming};

use super::Plugin;

/// Versions of the DRA service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Of Kubernetes 1.34 and later.
    V1,
    /// Of Kubernetes 1.31 and later.
    V1beta1,
}

impl Version {
    /// The versions that a plugin offers, in its order.
    pub fn offered(info: &PluginInfo) -> Vec<Self> {
        let known = |name: &String| match name.as_str() {
            service_name::DRA_V1 => Some(Self::V1),
            service_name::DRA_V1BETA1 => Some(Self::V1beta1),
            _ => None,
        };
        info.supported_versions.iter().filter_map(known).collect()
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        })
    }
}

/// A claim as calls of the DRA service name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A device of an answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The pool that the device is in.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// The requests of the claim that it is for.
    pub requests: Vec<String>,
    /// The CDI devices that containers get.
    pub cdi: Vec<String>,
}

/// What became of a claim.
pub type Outcome<T> = Result<T, String>;
/// By UID; an error of the whole call takes precedence.
pub type Answers<T> = Result<BTreeMap<String, Outcome<T>>, String>;

/// The text of a gRPC error.
pub(crate) fn status_text(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// The innermost cause of an error: the outer ones only say that a connection failed.
pub(crate) fn root(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

async fn limited<T>(
    deadline: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, String> {
    let begun = Instant::now();
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        // tonic has the same deadline, from the request: either timer may fire first.
        Ok(Err(status)) if !is_late(&status, begun, deadline) => Err(status_text(&status)),
        Ok(Err(_)) | Err(_) => Err(format!("no answer within {deadline:?}")),
    }
}

/// Whether a call failed because its deadline passed.
fn is_late(status: &Status, begun: Instant, deadline: Duration) -> bool {
    matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) && begun.elapsed() >= deadline
}

fn request<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

macro_rules! version {
    ($wire:ident, $prepare:ident, $unprepare:ident) => {
        async fn $prepare(
            plugin: &Plugin,
            claims: &[ClaimRef],
            deadline: Duration,
        ) -> Answers<Vec<Device>> {
            let mut client = $wire::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let claim = |claim: &ClaimRef| $wire::Claim {
                namespace: claim.namespace.clone(),
                uid: claim.uid.clone(),
                name: claim.name.clone(),
            };
            let message = $wire::NodePrepareResourcesRequest {
                claims: claims.iter().map(claim).collect(),
            };
            let answer = limited(
                deadline,
                client.node_prepare_resources(request(message, deadline)),
            )
            .await?;
            let device = |device: $wire::Device| Device {
                pool: device.pool_name,
                device: device.device_name,
                requests: device.request_names,
                cdi: device.cdi_device_ids,
            };
            let outcome = |(uid, claim): (String, $wire::NodePrepareResourceResponse)| {
                let devices = claim.devices.into_iter().map(device).collect();
                (
                    uid,
                    if claim.error.is_empty() {
                        Ok(devices)
                    } else {
                        Err(claim.error)
                    },
                )
            };
            Ok(answer.claims.into_iter().map(outcome).collect())
        }

        async fn $unprepare(
            plugin: &Plugin,
            claims: &[ClaimRef],
            deadline: Duration,
        ) -> Answers<()> {
            let mut client = $wire::dra_plugin_client::DraPluginClient::new(plugin.channel.clone());
            let claim = |claim: &ClaimRef| $wire::Claim {
                namespace: claim.namespace.clone(),
                uid: claim.uid.clone(),
                name: claim.name.clone(),
            };
            let message = $wire::NodeUnprepareResourcesRequest {
                claims: claims.iter().map(claim).collect(),
            };
            let answer = limited(
                deadline,
                client.node_unprepare_resources(request(message, deadline)),
            )
            .await?;
            let outcome = |(uid, claim): (String, $wire::NodeUnprepareResourceResponse)| {
                (
                    uid,
                    if claim.error.is_empty() {
                        Ok(())
                    } else {
                        Err(claim.error)
                    },
                )
            };
            Ok(answer.claims.into_iter().map(outcome).collect())
        }
    };
}

version!(dra_v1, prepare_v1, unprepare_v1);
version!(dra_v1beta1, prepare_v1beta1, unprepare_v1beta1);

impl Plugin {
    /// The version that a kubelet uses: the first that the plugin names.
    pub fn version(&self) -> Version {
        Version::offered(&self.info)
            .first()
            .copied()
            .unwrap_or(Version::V1)
    }

    /// Calls NodePrepareResources for claims in one call.
    ///
    /// # Errors
    /// The whole call failed, or had no answer within the deadline.
    pub async fn prepare(
        &self,
        version: Version,
        claims: &[ClaimRef],
        deadline: Duration,
    ) -> Answers<Vec<Device>> {
        match version {
            Version::V1 => prepare_v1(self, claims, deadline).await,
            Version::V1beta1 => prepare_v1beta1(self, claims, deadline).await,
        }
    }

    /// Calls NodeUnprepareResources for claims in one call.
    ///
    /// # Errors
    /// The whole call failed, or had no answer within the deadline.
    pub async fn unprepare(
        &self,
        version: Version,
        claims: &[ClaimRef],
        deadline: Duration,
    ) -> Answers<()> {
        match version {
            Version::V1 => unprepare_v1(self, claims, deadline).await,
            Version::V1beta1 => unprepare_v1beta1(self, claims, deadline).await,
        }
    }

    /// The name of the health service that is offered.
    pub fn health(&self) -> Option<&str> {
        let known = [service_name::HEALTH_V1, service_name::HEALTH_V1ALPHA1];
        let mut offered = self.info.supported_versions.iter().map(String::as_str);
        offered.find(|name| known.contains(name))
    }
}

/// Opens the health stream and returns it with its first message.
///
/// # Errors
/// The call failed, the stream ended, or there was no message within the deadline.
pub async fn health_messages(
    plugin: &Plugin,
    deadline: Duration,
) -> Result<
    (
        Streaming<NodeWatchResourcesResponse>,
        NodeWatchResourcesResponse,
    ),
    String,
> {
    let message = NodeWatchResourcesRequest {};
    let open = async {
        let channel = plugin.channel.clone();
        let stream = match plugin.health() {
            Some(service_name::HEALTH_V1) => {
                HealthV1::new(channel).node_watch_resources(message).await
            }
            _ => {
                HealthV1alpha1::new(channel)
                    .node_watch_resources(message)
                    .await
            }
        };
        let mut stream = stream.map_err(|status| status_text(&status))?.into_inner();
        let first = stream
            .message()
            .await
            .map_err(|status| status_text(&status))?;
        let first = first.ok_or("the stream ended without a message")?;
        Ok((stream, first))
    };
    tokio::time::timeout(deadline, open)
        .await
        .unwrap_or_else(|_| Err(format!("no message within {deadline:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tonic's own timer cancels the call at the same time: a driver that hung on a claim was said to have refused it.
    #[tokio::test]
    async fn regression_a_call_that_was_cancelled_at_its_deadline_has_no_answer() {
        let fails = async |status: Status, deadline| {
            let failed = async { Err::<tonic::Response<()>, _>(status) };
            limited(deadline, failed).await.unwrap_err()
        };
        let late = Status::cancelled("Timeout expired");
        assert_eq!(
            fails(late.clone(), Duration::ZERO).await,
            "no answer within 0ns"
        );
        let refused = Status::internal("no such device");
        assert_eq!(
            fails(refused, Duration::ZERO).await,
            "Internal: no such device"
        );
        let hour = Duration::from_secs(3600);
        assert_eq!(fails(late, hour).await, "Cancelled: Timeout expired");
    }
}
