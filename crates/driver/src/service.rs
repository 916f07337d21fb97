//! The DRA service in its versions, in front of one [`Driver`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use allot_cdi::{ContainerEdits, Device as CdiDevice, Spec};
use allot_protos::{dra_v1, dra_v1beta1};
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use crate::Driver;
use crate::api::ResourceApi;
use crate::checkpoint::{Checkpoint, Entry};
use crate::claim::{Claim, ClaimRef, PreparedDevice, base_request};
use crate::error::{Error, Failure};
use crate::metadata::Writer;

/// Where and under which kind CDI devices are written.
#[derive(Debug, Clone)]
pub(crate) struct Cdi {
    /// `vendor/class`.
    pub(crate) kind: String,
    pub(crate) directory: PathBuf,
    /// Edits that every container with a device of this driver gets, as a device named `common`.
    pub(crate) common: ContainerEdits,
}

const COMMON: &str = "common";

impl Cdi {
    fn file(&self, id: &str) -> PathBuf {
        self.directory
            .join(format!("{}_{id}.json", self.kind.replace('/', "-")))
    }

    /// Writes the devices that come with the driver itself.
    pub(crate) fn write_common(&self) -> Result<(), allot_cdi::Error> {
        if self.common.is_empty() {
            return Ok(());
        }
        let device = CdiDevice {
            name: COMMON.into(),
            edits: self.common.clone(),
            ..CdiDevice::default()
        };
        Spec::new(&self.kind, vec![device]).write(&self.file(COMMON))
    }

    fn device_name(claim: &ClaimRef, device: &PreparedDevice) -> String {
        match &device.share_id {
            Some(share) => format!("{}-{}-{share}", claim.uid, device.device),
            None => format!("{}-{}", claim.uid, device.device),
        }
    }

    /// Writes the file of a claim and returns the names of its devices, in order.
    fn write(&self, entry: &Entry) -> Result<(), allot_cdi::Error> {
        let mut devices: Vec<CdiDevice> = Vec::new();
        for prepared in &entry.devices {
            let Some(edits) = &prepared.edits else {
                continue;
            };
            let name = Self::device_name(&entry.claim, prepared);
            // A device that satisfies several requests is one CDI device.
            if !devices.iter().any(|device| device.name == name) {
                devices.push(CdiDevice {
                    name,
                    edits: edits.clone(),
                    ..CdiDevice::default()
                });
            }
        }
        if devices.is_empty() {
            return Ok(());
        }
        Spec::new(&self.kind, devices).write(&self.file(&entry.claim.uid))
    }

    /// What is the device's own comes first: a kubelet calls the device by its first name in the pod's status.
    fn ids(&self, claim: &ClaimRef, device: &PreparedDevice) -> Vec<String> {
        let mut ids = Vec::new();
        if device.edits.is_some() {
            let name = Self::device_name(claim, device);
            ids.push(format!("{}={name}", self.kind));
            if !self.common.is_empty() {
                ids.push(format!("{}={COMMON}", self.kind));
            }
        }
        ids.extend(device.cdi_ids.iter().cloned());
        ids
    }
}

/// How calls exclude each other.
pub(crate) enum Serialization {
    /// Not at all, except around the checkpoint.
    Off,
    /// Within this process.
    Process(Mutex<()>),
    /// Also against the process that this one replaces, through a lock file.
    Host(Mutex<()>, PathBuf),
}

/// Everything a call needs.
pub(crate) struct Core<D> {
    pub(crate) driver: D,
    pub(crate) api: Arc<ResourceApi>,
    pub(crate) cdi: Option<Cdi>,
    pub(crate) metadata: Option<Arc<Writer>>,
    pub(crate) serialization: Serialization,
    pub(crate) checkpoint: Mutex<Checkpoint>,
    pub(crate) checkpoint_path: Option<PathBuf>,
}

/// Held while a driver works.
struct Exclusive<'a> {
    _process: Option<tokio::sync::MutexGuard<'a, ()>>,
    /// The lock goes with the file.
    _host: Option<std::fs::File>,
}

impl<D: Driver> Core<D> {
    async fn exclusive(&self) -> Result<Exclusive<'_>, Status> {
        let (process, host) = match &self.serialization {
            Serialization::Off => (None, None),
            Serialization::Process(mutex) => (Some(mutex.lock().await), None),
            Serialization::Host(mutex, path) => {
                let guard = mutex.lock().await;
                let path = path.clone();
                let file = tokio::task::spawn_blocking(move || lock(&path))
                    .await
                    .map_err(|error| Status::internal(error.to_string()))?
                    .map_err(|error| Status::internal(format!("serialize: {error}")))?;
                let fresh = Checkpoint::open(self.checkpoint_path.clone());
                *self.checkpoint.lock().await =
                    fresh.map_err(|error| Status::internal(error.to_string()))?;
                (Some(guard), Some(file))
            }
        };
        Ok(Exclusive {
            _process: process,
            _host: host,
        })
    }

    async fn prepare_all(
        &self,
        wanted: Vec<ClaimRef>,
    ) -> Result<Vec<(String, Result<Vec<dra_v1::Device>, String>)>, Status> {
        // Claims are fetched before the lock is taken: a slow API server must not hold up other pods.
        let fetch = wanted.iter().map(|claim| self.api.claim(claim));
        let mut claims = Vec::new();
        for (result, claim) in futures::future::join_all(fetch)
            .await
            .into_iter()
            .zip(&wanted)
        {
            claims.push(result.map_err(|error| {
                let context = match error {
                    crate::AccessError::Claim(text) => text,
                    error => format!("retrieve claim {claim}: {error}"),
                };
                Status::internal(format!("get resource claims: {context}"))
            })?);
        }
        let _exclusive = self.exclusive().await?;
        let mut answers = Vec::new();
        for claim in claims {
            let result = self
                .prepare(&claim)
                .await
                .map_err(|error| error.to_string());
            if let Err(error) = &result {
                tracing::warn!(claim = %claim.reference, error, "claim could not be prepared");
            }
            answers.push((claim.reference.uid.clone(), result));
        }
        Ok(answers)
    }

    async fn prepare(&self, claim: &Claim) -> Result<Vec<dra_v1::Device>, Failure> {
        let known = self
            .checkpoint
            .lock()
            .await
            .get(&claim.reference.uid)
            .cloned();
        let entry = match known {
            Some(entry) if !entry.begun => {
                self.write_files(claim, &entry, false)?;
                entry
            }
            known => {
                let mut entry = Entry {
                    claim: claim.reference.clone(),
                    devices: Vec::new(),
                    begun: true,
                };
                // From here on the driver is told when the claim is given back, whatever becomes of this attempt.
                if known.is_none() {
                    self.checkpoint.lock().await.insert(entry.clone())?;
                }
                entry.devices = self.driver.prepare(claim).await?;
                entry.begun = false;
                self.write_files(claim, &entry, true)?;
                self.checkpoint.lock().await.insert(entry.clone())?;
                entry
            }
        };
        Ok(self.answer(&entry))
    }

    fn write_files(&self, claim: &Claim, entry: &Entry, new: bool) -> Result<(), Failure> {
        self.write_cdi(entry)?;
        if let Some(metadata) = &self.metadata {
            let written = metadata.write(claim, &entry.devices, new);
            written.map_err(|error| format!("write device metadata: {error}"))?;
        }
        Ok(())
    }

    fn write_cdi(&self, entry: &Entry) -> Result<(), Failure> {
        match &self.cdi {
            Some(cdi) => Ok(cdi.write(entry)?),
            None if entry.devices.iter().any(|device| device.edits.is_some()) => {
                Err("container edits need a CDI kind: set Builder::cdi_kind".into())
            }
            None => Ok(()),
        }
    }

    fn answer(&self, entry: &Entry) -> Vec<dra_v1::Device> {
        let devices = entry.devices.iter();
        let mut answer: Vec<_> = devices.map(|d| self.wire(&entry.claim, d)).collect();
        // The file of a request comes with the first device of the request.
        let mut seen: Vec<String> = Vec::new();
        if let Some(metadata) = &self.metadata {
            for device in &mut answer {
                for request in &device.request_names {
                    if !seen.contains(request) {
                        seen.push(request.clone());
                        let id = metadata.cdi_id(&entry.claim, request);
                        device.cdi_device_ids.push(id);
                    }
                }
            }
        }
        answer
    }

    fn wire(&self, claim: &ClaimRef, device: &PreparedDevice) -> dra_v1::Device {
        let mut request_names: Vec<String> = Vec::new();
        for request in &device.requests {
            let base = base_request(request).to_owned();
            if !request_names.contains(&base) {
                request_names.push(base);
            }
        }
        dra_v1::Device {
            request_names,
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            cdi_device_ids: match &self.cdi {
                Some(cdi) => cdi.ids(claim, device),
                None => device.cdi_ids.clone(),
            },
            share_id: device.share_id.clone(),
        }
    }

    async fn unprepare_all(
        &self,
        claims: Vec<ClaimRef>,
    ) -> Result<Vec<(String, Result<(), String>)>, Status> {
        let _exclusive = self.exclusive().await?;
        let mut answers = Vec::new();
        for claim in claims {
            let result = self
                .unprepare(&claim)
                .await
                .map_err(|error| error.to_string());
            if let Err(error) = &result {
                tracing::warn!(%claim, error, "claim could not be unprepared");
            }
            answers.push((claim.uid, result));
        }
        Ok(answers)
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Failure> {
        let known = self.checkpoint.lock().await.get(&claim.uid).cloned();
        // With a checkpoint an unknown claim was never prepared, or is given back already.
        if known.is_none() && self.checkpoint_path.is_some() {
            return Ok(());
        }
        self.driver.unprepare(claim).await?;
        if let Some(cdi) = &self.cdi {
            let path = cdi.file(&claim.uid);
            allot_cdi::file::remove(&path).map_err(|source| Error::Io { path, source })?;
        }
        if let Some(metadata) = &self.metadata {
            let removed = metadata.remove(claim);
            removed.map_err(|error| format!("clean up device metadata: {error}"))?;
        }
        Ok(self.checkpoint.lock().await.remove(&claim.uid)?)
    }
}

/// Takes the lock file; another process may hold it for as long as one call takes.
fn lock(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Goes on when the caller no longer waits. A kubelet does so for 45 s: the driver must not be stopped wherever it is then,
/// and what takes longer is answered from the checkpoint when the kubelet asks again.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let result = tokio::spawn(work).await;
    result.unwrap_or_else(|error| Err(Status::internal(format!("driver: {error}"))))
}

/// The claims of a request, of any version.
macro_rules! references {
    ($request:ident) => {
        $request
            .into_inner()
            .claims
            .into_iter()
            .map(|claim| ClaimRef {
                namespace: claim.namespace,
                name: claim.name,
                uid: claim.uid,
            })
            .collect()
    };
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
                let entry = |(uid, result): (String, Result<Vec<dra_v1::Device>, String>)| {
                    let mut response = $wire::NodePrepareResourceResponse::default();
                    match result {
                        Ok(devices) => {
                            response.devices = devices.into_iter().map($device).collect()
                        }
                        Err(error) => response.error = error,
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
                let entry = |(uid, result): (String, Result<(), String>)| {
                    (
                        uid,
                        $wire::NodeUnprepareResourceResponse {
                            error: result.err().unwrap_or_default(),
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
