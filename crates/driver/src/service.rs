//! What calls of the kubelet do: claims are prepared and unprepared by one [`Driver`], with checkpoint and CDI files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::dra_v1;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::Status;
use tracing::{Instrument, Span};

use crate::Driver;
use crate::allocated::Claim;
use crate::api::ResourceApi;
use crate::checkpoint::{Checkpoint, Entry, taken};
use crate::claim::{ClaimRef, PreparedDevice, base_request};
use crate::error::{BackgroundError, Error, Failure};
use crate::journal::Journal;
use crate::metadata_writer::{Writer, pod_claim_name};
use crate::metrics::{Metrics, Operation};
use crate::prepared::{PreparedClaim, State};

mod cdi;
mod exclusion;
mod grpc;
mod keep;
mod restore;
#[cfg(test)]
mod tests;

pub(crate) use cdi::Cdi;
use exclusion::Exclusive;
pub(crate) use exclusion::Serialization;
pub(crate) use grpc::{ServiceV1, ServiceV1beta1};

/// How long the API server may take for the claims of a call. A kubelet waits for 45 s.
const FETCH_LIMIT: Duration = Duration::from_secs(15);

/// Everything a call needs.
pub(crate) struct Core<D> {
    pub(crate) driver_name: String,
    pub(crate) driver: D,
    pub(crate) api: Arc<ResourceApi>,
    pub(crate) cdi: Option<Cdi>,
    pub(crate) metadata: Option<Arc<Writer>>,
    pub(crate) serialization: Serialization,
    pub(crate) checkpoint: Arc<Mutex<Checkpoint>>,
    pub(crate) checkpoint_path: Option<PathBuf>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<D: Driver> Core<D> {
    /// Waits for its turn to work on these claims.
    async fn exclusive<'a>(
        &'a self,
        uids: impl IntoIterator<Item = &str>,
    ) -> Result<Exclusive<'a>, Status> {
        let exclusive = self.serialization.exclusive(uids).await;
        let exclusive =
            exclusive.map_err(|error| Status::internal(format!("serialize: {error}")))?;
        if exclusive.is_shared() {
            let fresh = Checkpoint::open(self.checkpoint_path.clone());
            *self.checkpoint.lock().await =
                fresh.map_err(|error| Status::internal(error.to_string()))?;
        }
        Ok(exclusive)
    }

    async fn prepare_all(
        &self,
        wanted: Vec<ClaimRef>,
    ) -> Result<Vec<(String, Result<Vec<dra_v1::Device>, Failure>)>, Status> {
        let _in_flight = self.metrics.begin(Operation::Prepare, wanted.len());
        // Claims are read after the lock is taken: one that was read before, and is unprepared and deleted while this
        // call waits, would be prepared without a consumer. The time limit keeps a slow API server from blocking other
        // pods for longer.
        let _exclusive = self
            .exclusive(wanted.iter().map(|claim| claim.uid.as_str()))
            .await?;
        let fetch = futures::future::join_all(wanted.iter().map(|claim| self.api.claim(claim)));
        let fetched = tokio::time::timeout(FETCH_LIMIT, fetch)
            .await
            .map_err(|_| {
                Status::deadline_exceeded(format!(
                    "get resource claims: no answer of the API server within {FETCH_LIMIT:?}"
                ))
            })?;
        let mut claims = Vec::new();
        for (result, claim) in fetched.into_iter().zip(&wanted) {
            claims.push(result.map_err(|error| {
                let context = match error {
                    crate::AccessError::Claim(text) => text,
                    error => format!("retrieve claim {claim}: {error}"),
                };
                Status::internal(format!("get resource claims: {context}"))
            })?);
        }
        let mut answers = Vec::new();
        for mut claim in claims {
            claim.journal = Some(Journal {
                checkpoint: Arc::clone(&self.checkpoint),
                version: D::STATE_VERSION,
            });
            // One consumer is enough for the log: a shared claim may have many.
            let pod = claim.pods().next().unwrap_or_default();
            let uid = &claim.reference.uid;
            let span = tracing::info_span!("prepare", claim = %claim.reference, uid, pod);
            let result = self
                .timed(Operation::Prepare, self.prepare(&claim), span)
                .await;
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
                self.write_files(&entry, false)?;
                entry
            }
            known => {
                let held = self.exclusive_devices(claim);
                self.make_free(claim.reference(), &held).await?;
                let mut entry = Entry {
                    claim: claim.reference().clone(),
                    devices: Vec::new(),
                    begun: true,
                    held: Some(held),
                    pod_claim: pod_claim_name(claim).map(str::to_owned),
                    state: None,
                };
                // From here on the driver is called when the claim is unprepared, regardless of the result of this attempt.
                if known.is_none() {
                    let mut checkpoint = self.checkpoint.lock().await;
                    // Without serialization the device may have been prepared for another claim meanwhile.
                    if let Some(error) = checkpoint.taken(&entry) {
                        return Err(error.into());
                    }
                    checkpoint.insert(entry.clone())?;
                }
                let prepared = self.driver.prepare(claim).await?;
                entry.devices = prepared.devices;
                entry.begun = false;
                let files = claim
                    .check_parameters(&self.driver_name)
                    .and_then(|()| self.write_files(&entry, true));
                let mut checkpoint = self.checkpoint.lock().await;
                // State that the driver saved during the call stays unless it returned a newer one.
                let saved = checkpoint.get(&entry.claim.uid);
                entry.state = match prepared.state {
                    Some(value) => Some(State {
                        version: D::STATE_VERSION,
                        value,
                    }),
                    None => saved.and_then(|saved| saved.state.clone()),
                };
                if let Err(error) = files {
                    // The driver did its work: `unprepare` needs the state to undo it.
                    entry.devices = Vec::new();
                    entry.begun = true;
                    checkpoint.insert(entry)?;
                    return Err(error);
                }
                checkpoint.insert(entry.clone())?;
                entry
            }
        };
        Ok(self.answer(&entry))
    }

    /// Runs an operation on a claim in its span, measures it, and logs how it ended.
    async fn timed<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, Failure>>,
        span: Span,
    ) -> Result<T, Failure> {
        let logged = async {
            let begun = Instant::now();
            let result = work.await;
            let took = begun.elapsed();
            self.metrics.ended(operation, result.is_err(), took);
            match &result {
                Ok(_) => tracing::debug!(?took, "done"),
                Err(error) => tracing::warn!(%error, ?took, "failed"),
            }
            result
        };
        logged.instrument(span).await
    }

    /// Reports a failure outside of any call to the driver.
    pub(crate) fn report(&self, error: &BackgroundError) {
        self.metrics.count_error();
        self.driver.handle_error(error);
    }

    /// The devices that no other claim may have at the same time.
    fn exclusive_devices(&self, claim: &Claim) -> Vec<(String, String)> {
        let results = claim.results(&self.driver_name);
        results
            .filter(|result| result.share_id.is_none() && result.admin_access != Some(true))
            .map(|result| (result.pool.clone(), result.device.clone()))
            .collect()
    }

    /// Ensures that no other claim holds the devices: the scheduler allocates the devices of a deleted claim again, and
    /// the kubelet may not have unprepared it yet. Claims that still exist keep their devices.
    async fn make_free(
        &self,
        claim: &ClaimRef,
        devices: &[(String, String)],
    ) -> Result<(), Failure> {
        for (pool, device) in devices {
            let holders: Vec<ClaimRef> = {
                let checkpoint = self.checkpoint.lock().await;
                let holders = checkpoint.holders(claim, pool, device);
                holders.map(|entry| entry.claim.clone()).collect()
            };
            for holder in holders {
                let gone = tokio::time::timeout(FETCH_LIMIT, self.api.is_gone(&holder)).await;
                if !matches!(gone, Ok(Ok(true))) {
                    return Err(taken(pool, device, &holder).into());
                }
                let Some(_held) = self.serialization.another(&holder.uid) else {
                    return Err(taken(pool, device, &holder).into());
                };
                tracing::info!(claim = %holder, device, "unpreparing a claim that is gone, for the next one with its device");
                let unprepared = self.unprepare(&holder).await;
                unprepared.map_err(|error| {
                    format!("{}: unprepare: {error}", taken(pool, device, &holder))
                })?;
            }
        }
        Ok(())
    }

    fn write_files(&self, entry: &Entry, new: bool) -> Result<(), Failure> {
        self.write_cdi(entry)?;
        if let Some(metadata) = &self.metadata {
            let pod_claim = entry.pod_claim.as_deref();
            let written = metadata.write(&entry.claim, pod_claim, &entry.devices, new);
            written.map_err(|error| format!("write device metadata: {error}"))?;
        }
        Ok(())
    }

    fn write_cdi(&self, entry: &Entry) -> Result<(), Failure> {
        match &self.cdi {
            Some(cdi) => {
                // The directory may have been emptied since the start.
                if cdi.lacks_common() {
                    cdi.write_common()?;
                }
                Ok(cdi.write(entry)?)
            }
            None if entry.devices.iter().any(|device| device.edits.is_some()) => {
                Err("container edits need a CDI kind: set Builder::cdi_kind".into())
            }
            None => Ok(()),
        }
    }

    fn answer(&self, entry: &Entry) -> Vec<dra_v1::Device> {
        let devices = entry.devices.iter();
        let mut answer: Vec<_> = devices.map(|d| self.wire(&entry.claim, d)).collect();
        // The file of a request is mounted with the first device of the request.
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
    ) -> Result<Vec<(String, Result<(), Failure>)>, Status> {
        let _in_flight = self.metrics.begin(Operation::Unprepare, claims.len());
        let uids = claims.iter().map(|claim| claim.uid.as_str());
        let _exclusive = self.exclusive(uids).await?;
        let mut answers = Vec::new();
        for claim in claims {
            let span = tracing::info_span!("unprepare", %claim, uid = claim.uid);
            let result = self
                .timed(Operation::Unprepare, self.unprepare(&claim), span)
                .await;
            answers.push((claim.uid, result));
        }
        Ok(answers)
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Failure> {
        // An unknown claim may have been prepared by a process whose checkpoint is lost.
        let known = self.checkpoint.lock().await.get(&claim.uid).cloned();
        let prepared = match &known {
            Some(entry) => entry.prepared(D::STATE_VERSION),
            None => PreparedClaim {
                reference: claim.clone(),
                devices: Vec::new(),
                state: None,
                version: D::STATE_VERSION,
                complete: false,
            },
        };
        if let Some(mut entry) = known.filter(|entry| !entry.begun) {
            // After a crash in what follows, it must not be taken for prepared.
            entry.begun = true;
            self.checkpoint.lock().await.insert(entry)?;
        }
        self.driver.unprepare(&prepared).await?;
        if let Some(cdi) = &self.cdi {
            let path = cdi.file(&claim.uid);
            // A process that was killed may have left a file that it was writing.
            let removed = allot_cdi::file::remove(&path)
                .and_then(|()| allot_cdi::file::remove_unfinished(&path));
            removed.map_err(|source| Error::Io { path, source })?;
        }
        if let Some(metadata) = &self.metadata {
            let removed = metadata.remove(claim);
            removed.map_err(|error| format!("clean up device metadata: {error}"))?;
        }
        Ok(self.checkpoint.lock().await.remove(&claim.uid)?)
    }
}
