//! Writes the files of device metadata on the host, and the CDI specs that mount them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_cdi::{ContainerEdits, Device as CdiDevice, Mount, Spec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::allocated::Claim;
use crate::claim::{ClaimRef, PreparedDevice, base_request};
use crate::error::Error;
use crate::metadata::{Device, File, Request, claim_file, decode, encode, template_file};

/// Set by the claim controller on claims created from a template.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// NAME_MAX of Linux.
const MAX_FILE_NAME: usize = 255;

/// The pod's name for a claim that was created from a template.
pub(crate) fn pod_claim_name(claim: &Claim) -> Option<&str> {
    let annotations = &claim.object["metadata"]["annotations"];
    let name = annotations[POD_CLAIM_NAME].as_str();
    name.filter(|name| !name.is_empty())
}

/// Everything below `DATA/dra-device-metadata/NAMESPACE_CLAIM/REQUEST/metadata.json`, as upstream's helper lays it out.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) driver: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) cdi_dir: PathBuf,
    /// A file that is updated while its claim is unprepared must not be created again.
    pub(crate) lock: Mutex<()>,
}

impl Writer {
    /// Writes the files of a prepared claim. Unless it is `new`, only missing ones: an existing file may have been
    /// updated since. `pod_claim` is the pod's name for a claim that was created from a template.
    pub(crate) fn write(
        &self,
        claim: &ClaimRef,
        pod_claim: Option<&str>,
        devices: &[PreparedDevice],
        new: bool,
    ) -> Result<(), Error> {
        let _lock = self.lock.lock();
        for (request, devices) in by_request(devices) {
            let base = base_request(request);
            let path = self.file(claim, base);
            let existing = self.read(claim, &path).filter(|_| !new);
            // Entries of earlier releases do not have it.
            let known = existing
                .as_ref()
                .and_then(|file| file.pod_claim_name.as_deref());
            let pod_claim = pod_claim.or(known);
            let container_path = match pod_claim {
                Some(name) => template_file(&self.driver, name, base),
                None => claim_file(&self.driver, &claim.name, base),
            };
            if existing.is_none() {
                self.put(&path, claim, pod_claim, 1, request, devices)?;
            }
            let mount = Mount {
                host_path: path.display().to_string(),
                container_path: container_path.display().to_string(),
                options: vec!["ro".into(), "bind".into()],
                ..Mount::default()
            };
            let device = CdiDevice {
                name: device_name(claim, base),
                edits: ContainerEdits {
                    mounts: vec![mount],
                    ..ContainerEdits::default()
                },
                ..CdiDevice::default()
            };
            Spec::new(&self.kind(), vec![device]).write(&self.spec(claim, base))?;
        }
        Ok(())
    }

    /// Whether a file of a prepared claim is missing.
    pub(crate) fn is_missing(&self, claim: &ClaimRef, devices: &[PreparedDevice]) -> bool {
        by_request(devices).keys().any(|request| {
            let base = base_request(request);
            !self.spec(claim, base).exists() || !self.file(claim, base).exists()
        })
    }

    /// The CDI device with the file of a request.
    pub(crate) fn cdi_id(&self, claim: &ClaimRef, base_request: &str) -> String {
        format!("{}={}", self.kind(), device_name(claim, base_request))
    }

    /// Replaces the metadata of the devices of a request.
    pub(crate) fn update(
        &self,
        claim: &ClaimRef,
        request: &str,
        devices: &[PreparedDevice],
    ) -> Result<(), Error> {
        let _lock = self.lock.lock();
        let path = self.file(claim, base_request(request));
        let before = self.read(claim, &path).ok_or_else(|| {
            Error::Config(format!(
                "request {request:?} not found in prepared claim {claim}"
            ))
        })?;
        let generation = before.metadata.generation.unwrap_or(0) + 1;
        let pod_claim = before.pod_claim_name.as_deref();
        let devices = devices.iter().collect();
        self.put(&path, claim, pod_claim, generation, request, devices)
    }

    /// Removes all files of a claim; they need not exist.
    pub(crate) fn remove(&self, claim: &ClaimRef) -> Result<(), Error> {
        let _lock = self.lock.lock();
        let io = |path: &Path, source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let directory = self.directory(claim);
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io(&directory, error));
            }
            _ => {}
        }
        let prefix = format!("{}_metadata_{}_", self.driver, claim.uid);
        let Ok(entries) = std::fs::read_dir(&self.cdi_dir) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // A process that was killed may have left a file that it was writing.
            let unfinished = name.strip_prefix('.').filter(|_| name.ends_with(".tmp"));
            let whole = Some(&*name).filter(|name| name.ends_with(".json"));
            if unfinished
                .or(whole)
                .is_some_and(|name| name.starts_with(&prefix))
            {
                let path = entry.path();
                allot_cdi::file::remove(&path).map_err(|error| io(&path, error))?;
            }
        }
        Ok(())
    }

    fn put(
        &self,
        path: &Path,
        claim: &ClaimRef,
        pod_claim: Option<&str>,
        generation: i64,
        request: &str,
        devices: Vec<&PreparedDevice>,
    ) -> Result<(), Error> {
        let device = |device: &PreparedDevice| Device {
            driver: self.driver.clone(),
            pool: device.pool.clone(),
            name: device.device.clone(),
            about: device.metadata.clone().unwrap_or_default(),
        };
        let file = File {
            metadata: ObjectMeta {
                name: Some(claim.name.clone()),
                namespace: Some(claim.namespace.clone()),
                uid: Some(claim.uid.clone()),
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            pod_claim_name: pod_claim.map(str::to_owned),
            requests: vec![Request {
                name: request.to_owned(),
                devices: devices.into_iter().map(device).collect(),
            }],
        };
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let content = encode(&file).map_err(|error| io(error.into()))?;
        allot_cdi::file::write_atomic(path, &content, 0o644).map_err(io)
    }

    /// The file, if it is about this very claim.
    fn read(&self, claim: &ClaimRef, path: &Path) -> Option<File> {
        let file = decode(&std::fs::read(path).ok()?).ok()?;
        (file.metadata.uid.as_deref() == Some(&claim.uid)).then_some(file)
    }

    fn kind(&self) -> String {
        format!("{}/metadata", self.driver)
    }

    fn directory(&self, claim: &ClaimRef) -> PathBuf {
        let mut name = format!("{}_{}", claim.namespace, claim.name);
        // A claim's name alone may be nearly as long as the name of a file.
        if name.len() > MAX_FILE_NAME {
            name.clone_from(&claim.uid);
        }
        self.data_dir.join("dra-device-metadata").join(name)
    }

    fn file(&self, claim: &ClaimRef, base_request: &str) -> PathBuf {
        self.directory(claim)
            .join(base_request)
            .join("metadata.json")
    }

    fn spec(&self, claim: &ClaimRef, base_request: &str) -> PathBuf {
        let (driver, uid) = (&self.driver, &claim.uid);
        self.cdi_dir
            .join(format!("{driver}_metadata_{uid}_{base_request}.json"))
    }
}

fn by_request(devices: &[PreparedDevice]) -> BTreeMap<&str, Vec<&PreparedDevice>> {
    let mut requests: BTreeMap<&str, Vec<&PreparedDevice>> = BTreeMap::new();
    for device in devices {
        for request in &device.requests {
            requests.entry(request).or_default().push(device);
        }
    }
    requests
}

fn device_name(claim: &ClaimRef, base_request: &str) -> String {
    format!("{}_{base_request}", claim.uid)
}
