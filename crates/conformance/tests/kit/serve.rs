//! The services of the driver.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allot_protos::dra_health_v1alpha1 as health;
use allot_protos::registration as wire;
use allot_protos::{DRA_PLUGIN_TYPE, dra_v1, dra_v1beta1, service_name};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::{Claim, DEVICES, NAME, Prepared, Raw};

#[derive(Clone)]
pub struct Registrar {
    driver: Arc<Raw>,
    info: wire::PluginInfo,
    asked: Arc<AtomicUsize>,
    dead: Arc<AtomicBool>,
    registered: watch::Sender<bool>,
}

impl Registrar {
    pub fn new(driver: Arc<Raw>, endpoint: &Path) -> Self {
        let mut versions = vec![
            service_name::DRA_V1,
            service_name::DRA_V1BETA1,
            service_name::HEALTH_V1ALPHA1,
        ];
        if driver.fault("unknown-service") {
            versions.push("v2.DRAPlugin");
        }
        let mut path = endpoint.display().to_string();
        if driver.fault("relative-endpoint") {
            let depth = std::env::current_dir().unwrap().components().count();
            path = "../".repeat(depth - 1) + path.trim_start_matches('/');
        }
        let info = wire::PluginInfo {
            r#type: DRA_PLUGIN_TYPE.into(),
            name: NAME.into(),
            endpoint: path,
            supported_versions: versions.into_iter().map(str::to_owned).collect(),
        };
        let registered = watch::channel(false).0;
        Self {
            driver,
            info,
            asked: Arc::default(),
            dead: Arc::default(),
            registered,
        }
    }

    pub fn registered(&self) -> watch::Receiver<bool> {
        self.registered.subscribe()
    }
}

#[tonic::async_trait]
impl wire::registration_server::Registration for Registrar {
    async fn get_info(
        &self,
        _: Request<wire::InfoRequest>,
    ) -> Result<Response<wire::PluginInfo>, Status> {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.driver.fault("one-get-info") && before > 0 {
            return Err(Status::unavailable("asked before"));
        }
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> Result<Response<wire::RegistrationStatusResponse>, Status> {
        let registered = request.into_inner().plugin_registered;
        if !registered && self.driver.fault("refused-hangs") {
            self.dead.store(true, Ordering::Relaxed);
        }
        self.registered.send_replace(registered);
        Ok(Response::new(wire::RegistrationStatusResponse {}))
    }
}

#[derive(Clone)]
pub struct Service(pub Arc<Raw>);

/// Continues when the caller has given up.
async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::spawn(work).await.unwrap()
}

type Answer = Result<Vec<(Prepared, Vec<String>)>, String>;

async fn prepare(driver: &Arc<Raw>, claims: Vec<Claim>) -> Result<HashMap<String, Answer>, Status> {
    if claims.is_empty() && driver.fault("refuses-nothing") {
        return Err(Status::invalid_argument("no claims"));
    }
    if driver.fault("not-cancel-safe") {
        for claim in &claims {
            if !driver.busy.lock().insert(claim.uid.clone()) {
                return Err(Status::aborted("the claim is busy"));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for claim in &claims {
            driver.busy.lock().remove(&claim.uid);
        }
    }
    let driver = Arc::clone(driver);
    to_the_end(async move {
        let mut answers = HashMap::new();
        for claim in &claims {
            if driver.fault("first-only") && !answers.is_empty() {
                break;
            }
            answers.insert(claim.uid.clone(), driver.prepare(claim).await);
        }
        if driver.fault("poisoned-batch")
            && answers.len() > 1
            && answers.values().any(Result::is_err)
        {
            let mut memory = driver.memory.lock().await;
            memory.marked.extend(answers.keys().cloned());
        }
        Ok(answers)
    })
    .await
}

async fn unprepare(
    driver: &Arc<Raw>,
    claims: Vec<Claim>,
) -> Result<HashMap<String, String>, Status> {
    if claims.is_empty() && driver.fault("refuses-nothing") {
        return Err(Status::invalid_argument("no claims"));
    }
    let driver = Arc::clone(driver);
    to_the_end(async move {
        let mut answers = HashMap::new();
        for claim in &claims {
            let error = driver.unprepare(claim).await.err().unwrap_or_default();
            answers.insert(claim.uid.clone(), error);
        }
        Ok(answers)
    })
    .await
}

macro_rules! serve {
    ($wire:ident, $old:literal, $device:expr) => {
        #[tonic::async_trait]
        impl $wire::dra_plugin_server::DraPlugin for Service {
            async fn node_prepare_resources(
                &self,
                request: Request<$wire::NodePrepareResourcesRequest>,
            ) -> Result<Response<$wire::NodePrepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter();
                let claims = claims
                    .map(|c| Claim {
                        namespace: c.namespace,
                        name: c.name,
                        uid: c.uid,
                    })
                    .collect();
                let answers = prepare(&self.0, claims).await?;
                let claim = |(uid, answer): (String, Answer)| {
                    let mut response = $wire::NodePrepareResourceResponse::default();
                    match answer {
                        Ok(_) if $old && self.0.fault("old-version-differs") => {}
                        Ok(mut devices) => {
                            for (device, _) in &mut devices {
                                device.share.take_if(|_| self.0.fault("no-share-id"));
                            }
                            response.devices = devices.into_iter().map($device).collect()
                        }
                        Err(error) => response.error = error,
                    }
                    (uid, response)
                };
                let claims = answers.into_iter().map(claim).collect();
                Ok(Response::new($wire::NodePrepareResourcesResponse {
                    claims,
                }))
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<$wire::NodeUnprepareResourcesRequest>,
            ) -> Result<Response<$wire::NodeUnprepareResourcesResponse>, Status> {
                let claims = request.into_inner().claims.into_iter();
                let claims = claims
                    .map(|c| Claim {
                        namespace: c.namespace,
                        name: c.name,
                        uid: c.uid,
                    })
                    .collect();
                let answers = unprepare(&self.0, claims).await?;
                let claim = |(uid, error)| (uid, $wire::NodeUnprepareResourceResponse { error });
                let claims = answers.into_iter().map(claim).collect();
                Ok(Response::new($wire::NodeUnprepareResourcesResponse {
                    claims,
                }))
            }
        }
    };
}

serve!(dra_v1, false, |(device, ids): (Prepared, Vec<String>)| {
    dra_v1::Device {
        request_names: vec![device.request],
        pool_name: device.pool,
        device_name: device.device,
        cdi_device_ids: ids,
        share_id: device.share,
    }
});
serve!(dra_v1beta1, true, |(device, ids): (
    Prepared,
    Vec<String>
)| dra_v1beta1::Device {
    request_names: vec![device.request],
    pool_name: device.pool,
    device_name: device.device,
    cdi_device_ids: ids,
});

/// All devices are well.
#[derive(Clone)]
pub struct Health {
    node: String,
    streams: Arc<AtomicUsize>,
    once: bool,
    unknown: bool,
    lost: bool,
    silent: bool,
}

impl Health {
    pub fn new(driver: &Raw) -> Self {
        let marker = driver.data().join("ran-before");
        let lost = driver.fault("health-lost") && marker.exists();
        if driver.fault("health-lost") {
            std::fs::write(marker, "").unwrap();
        }
        Self {
            node: driver.settings.node.clone(),
            streams: Arc::default(),
            once: driver.fault("health-once"),
            unknown: driver.fault("health-of-unknown"),
            lost,
            silent: driver.fault("health-silent"),
        }
    }
}

#[tonic::async_trait]
impl health::dra_resource_health_server::DraResourceHealth for Health {
    type NodeWatchResourcesStream =
        BoxStream<'static, Result<health::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<health::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        if self.once && self.streams.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(Response::new(futures::stream::empty().boxed()));
        }
        let name = if self.unknown { "other" } else { "dev" };
        let count = if self.lost { 0 } else { DEVICES };
        let device = |index| health::DeviceHealth {
            device: Some(health::DeviceIdentifier {
                pool_name: self.node.clone(),
                device_name: format!("{name}-{index}"),
            }),
            health: health::HealthStatus::Healthy as i32,
            health_check_timeout_seconds: 20,
            ..Default::default()
        };
        let message = health::NodeWatchResourcesResponse {
            devices: (0..count).map(device).collect(),
        };
        if self.silent {
            let once = futures::stream::once(async { Ok(message) });
            return Ok(Response::new(
                once.chain(futures::stream::pending()).boxed(),
            ));
        }
        let messages = futures::stream::unfold(false, move |again| {
            let message = message.clone();
            async move {
                if again {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Some((Ok(message), true))
            }
        });
        Ok(Response::new(messages.boxed()))
    }
}
