//! The health service: what the driver reports, streamed to the kubelet.

use allot_protos::dra_health_v1alpha1 as wire;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

/// Can a device be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// Nobody knows.
    #[default]
    Unknown,
    /// It works.
    Healthy,
    /// It does not.
    Unhealthy,
}

/// Health of one device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceHealth {
    /// Pool of the device.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Its state.
    pub health: Health,
    /// Seconds since the epoch at which the state was found out.
    pub updated: i64,
    /// After so many seconds without news the kubelet takes the health as unknown; 0 means its default of 30.
    pub timeout: i64,
    /// For people; shown in the pod's status, at most 1024 bytes.
    pub message: String,
}

#[derive(Clone)]
pub(crate) struct HealthService {
    pub(crate) source: watch::Receiver<Vec<DeviceHealth>>,
}

#[tonic::async_trait]
impl wire::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream =
        BoxStream<'static, Result<wire::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<wire::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let stream = WatchStream::new(self.source.clone());
        Ok(Response::new(
            stream.map(|devices| Ok(message(devices))).boxed(),
        ))
    }
}

fn message(devices: Vec<DeviceHealth>) -> wire::NodeWatchResourcesResponse {
    let device = |device: DeviceHealth| wire::DeviceHealth {
        device: Some(wire::DeviceIdentifier {
            pool_name: device.pool,
            device_name: device.device,
        }),
        health: match device.health {
            Health::Unknown => wire::HealthStatus::Unknown,
            Health::Healthy => wire::HealthStatus::Healthy,
            Health::Unhealthy => wire::HealthStatus::Unhealthy,
        } as i32,
        last_updated_time: device.updated,
        health_check_timeout_seconds: device.timeout,
        message: device.message,
    };
    wire::NodeWatchResourcesResponse {
        devices: devices.into_iter().map(device).collect(),
    }
}
