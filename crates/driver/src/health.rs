//! The health service: what the driver reports, streamed to the kubelet.

use std::time::Duration;

use allot_protos::dra_health_v1alpha1 as wire;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// Can a device be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// The health is not known.
    #[default]
    Unknown,
    /// The device works.
    Healthy,
    /// The device does not work.
    Unhealthy,
}

/// The health of a device, which the kubelet shows in `allocatedResourcesStatus` of pods (KEP 4680).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceHealth {
    /// Name of the pool that the device is published in.
    pub pool: String,
    /// Name of the device in its pool.
    pub device: String,
    /// The health, or unknown.
    pub health: Health,
    /// Seconds since the epoch at which the state was determined.
    pub updated: i64,
    /// After this many seconds without a report the kubelet sets the health to unknown; 0 means its default of 30. The
    /// SDK repeats the list in time for as long as the driver keeps the sender.
    pub timeout: i64,
    /// For users; shown in the pod's status, at most 1024 bytes.
    pub message: String,
}

/// What a kubelet takes when a device names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct HealthService {
    pub(crate) source: watch::Receiver<Vec<DeviceHealth>>,
    /// The initial value of the channel is not a report: the first message is the first list that is sent into it.
    pub(crate) awaits_first: bool,
}

type Messages = BoxStream<'static, Result<wire::NodeWatchResourcesResponse, Status>>;

impl HealthService {
    fn messages(&self) -> Messages {
        let (mut source, awaits_first) = (self.source.clone(), self.awaits_first);
        let first = async move {
            if awaits_first {
                // Without a sender there is the last list, and then the end.
                let _ = source.changed().await;
            }
            futures::stream::unfold(Some((source, None)), next)
        };
        futures::stream::once(first).flatten().boxed()
    }
}

/// The current list, then a new one after every change, and repetitions often enough that a kubelet does not consider
/// it outdated. A driver that no longer monitors its devices drops the sender: then nothing is repeated.
async fn next(
    state: Option<(watch::Receiver<Vec<DeviceHealth>>, Option<Duration>)>,
) -> Option<(
    Result<wire::NodeWatchResourcesResponse, Status>,
    Option<(watch::Receiver<Vec<DeviceHealth>>, Option<Duration>)>,
)> {
    let (mut source, repeat) = state?;
    if let Some(repeat) = repeat {
        let changed = tokio::time::timeout(repeat, source.changed()).await;
        if changed.is_ok_and(|open| open.is_err()) {
            return None;
        }
    }
    let devices = source.borrow_and_update().clone();
    let timeouts = devices.iter().map(|device| {
        let seconds = u64::try_from(device.timeout).unwrap_or(0);
        match seconds {
            0 => DEFAULT_TIMEOUT,
            seconds => Duration::from_secs(seconds),
        }
    });
    let repeat = timeouts.min().unwrap_or(DEFAULT_TIMEOUT) / 3;
    Some((Ok(message(devices)), Some((source, Some(repeat)))))
}

/// One version of the service; they differ in name only.
macro_rules! serve {
    ($wire:ident) => {
        #[tonic::async_trait]
        impl allot_protos::$wire::dra_resource_health_server::DraResourceHealth for HealthService {
            type NodeWatchResourcesStream = Messages;

            async fn node_watch_resources(
                &self,
                _: Request<wire::NodeWatchResourcesRequest>,
            ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
                Ok(Response::new(self.messages()))
            }
        }
    };
}

serve!(dra_health_v1);
serve!(dra_health_v1alpha1);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_list_is_repeated_before_it_is_outdated() {
        let device = |health, timeout| DeviceHealth {
            device: "gpu-0".into(),
            health,
            timeout,
            ..DeviceHealth::default()
        };
        let (sender, source) = watch::channel(vec![device(Health::Healthy, 0)]);
        let service = HealthService {
            source,
            awaits_first: false,
        };
        let mut messages = service.messages();
        let start = tokio::time::Instant::now();
        let mut check = async |seconds: u64, health: wire::HealthStatus| {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(start.elapsed().as_secs(), seconds);
            assert_eq!(message.devices[0].health(), health);
        };
        check(0, wire::HealthStatus::Healthy).await;
        check(10, wire::HealthStatus::Healthy).await;
        sender.send_replace(vec![device(Health::Unhealthy, 3)]);
        check(10, wire::HealthStatus::Unhealthy).await;
        check(11, wire::HealthStatus::Unhealthy).await;
        drop(sender);
        assert!(messages.next().await.is_none());
    }

    /// A kubelet that connected before the driver knew its devices got an empty list.
    #[tokio::test(start_paused = true)]
    async fn the_first_list_is_awaited() {
        let (sender, source) = watch::channel(Vec::new());
        let service = HealthService {
            source,
            awaits_first: true,
        };
        let mut early = service.messages();
        let waits = tokio::time::timeout(Duration::from_secs(60), early.next());
        assert!(waits.await.is_err());
        sender.send_replace(vec![DeviceHealth::default()]);
        // Also for a kubelet that connects later.
        for mut messages in [early, service.messages()] {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(message.devices.len(), 1);
        }
    }
}
