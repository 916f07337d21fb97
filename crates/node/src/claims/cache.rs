//! The prepared claims with their pods, and the checkpoint file in the kubelet's format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use allot_model::classic::objects::ResourceHandle;
use serde::{Deserialize, Serialize};

use super::call::ClaimToPrepare;
use super::damaged::{self, Damage};
use super::{Batches, ClaimError, FetchedClaim};
use crate::error::{AtPath as _, Error};

/// Namespace and name of a claim.
pub(crate) type Key = (String, String);

/// A claim that at least one pod of this node uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClaimInfo {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// UIDs of the pods.
    pub(crate) pods: BTreeSet<String>,
    /// Devices by driver; drivers without devices are included, since they must unprepare the claim, too.
    pub(crate) drivers: BTreeMap<String, Vec<Device>>,
    /// Resource handles of a classic claim, for its plugins; empty for a current one.
    pub(crate) handles: Vec<ResourceHandle>,
    /// Class of a classic claim.
    pub(crate) class: String,
    /// Whether all drivers have prepared it. Not in the checkpoint: after a restart every driver is called again.
    pub(crate) prepared: bool,
}

/// A prepared device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) share_id: Option<String>,
    pub(crate) requests: Vec<String>,
    pub(crate) cdi_ids: Vec<String>,
}

impl ClaimInfo {
    /// Adds the claim to the calls of its plugins.
    pub(crate) fn batch(&self, batches: &mut Batches) {
        for (driver, devices) in &self.drivers {
            let wanted = ClaimToPrepare {
                namespace: self.namespace.clone(),
                name: self.name.clone(),
                uid: self.uid.clone(),
                handle: None,
                cdi_ids: devices
                    .iter()
                    .flat_map(|device| device.cdi_ids.clone())
                    .collect(),
            };
            if self.handles.is_empty() {
                batches
                    .entry((driver.clone(), false))
                    .or_default()
                    .push(wanted);
                continue;
            }
            let handles = self
                .handles
                .iter()
                .filter(|handle| handle.driver_name == *driver);
            let batch = batches.entry((driver.clone(), true)).or_default();
            batch.extend(handles.map(|handle| ClaimToPrepare {
                handle: Some(handle.clone()),
                ..wanted.clone()
            }));
        }
    }
}

/// All claims, and the file that remembers them.
#[derive(Debug)]
pub(crate) struct Cache {
    /// `None`: no checkpoint.
    file: Option<PathBuf>,
    claims: BTreeMap<Key, ClaimInfo>,
    /// Why the file that was found is not used.
    pub(super) damage: Option<Damage>,
    /// Whether a file was ever lost: claims can be prepared that are not known.
    pub(super) incomplete: bool,
    /// What the file holds.
    saved: Option<String>,
}

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
}

/// Field names are the ones Go uses for structs without tags; absent lists are null.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList")]
    claims: Option<Vec<ClaimState>>,
}

#[derive(Serialize, Deserialize)]
struct ClaimState {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "ClaimName")]
    name: String,
    #[serde(rename = "Namespace")]
    namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: Option<BTreeMap<String, Empty>>,
    #[serde(rename = "DriverState")]
    drivers: Option<BTreeMap<String, DriverState>>,
    /// Only of classic claims, so that files without them are the kubelet's.
    #[serde(
        rename = "ResourceHandles",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    handles: Vec<ResourceHandle>,
    #[serde(
        rename = "ClassName",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    class: String,
}

#[derive(Serialize, Deserialize)]
struct Empty {}

#[derive(Serialize, Deserialize)]
struct DriverState {
    #[serde(rename = "Devices")]
    devices: Option<Vec<DeviceState>>,
}

#[derive(Serialize, Deserialize)]
struct DeviceState {
    #[serde(rename = "PoolName")]
    pool: String,
    #[serde(rename = "DeviceName")]
    device: String,
    #[serde(rename = "ShareID")]
    share_id: Option<String>,
    #[serde(rename = "RequestNames")]
    requests: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs")]
    cdi_ids: Option<Vec<String>>,
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

impl From<&ClaimInfo> for ClaimState {
    fn from(info: &ClaimInfo) -> Self {
        let device = |device: &Device| DeviceState {
            pool: device.pool.clone(),
            device: device.device.clone(),
            share_id: device.share_id.clone(),
            requests: some(device.requests.clone()),
            cdi_ids: some(device.cdi_ids.clone()),
        };
        let driver = |(name, devices): (&String, &Vec<Device>)| {
            (
                name.clone(),
                DriverState {
                    devices: some(devices.iter().map(device).collect()),
                },
            )
        };
        Self {
            uid: info.uid.clone(),
            name: info.name.clone(),
            namespace: info.namespace.clone(),
            pods: Some(
                info.pods
                    .iter()
                    .map(|uid| (uid.clone(), Empty {}))
                    .collect(),
            ),
            drivers: Some(info.drivers.iter().map(driver).collect()),
            handles: info.handles.clone(),
            class: info.class.clone(),
        }
    }
}

impl From<ClaimState> for ClaimInfo {
    fn from(state: ClaimState) -> Self {
        let device = |device: DeviceState| Device {
            pool: device.pool,
            device: device.device,
            share_id: device.share_id,
            requests: device.requests.unwrap_or_default(),
            cdi_ids: device.cdi_ids.unwrap_or_default(),
        };
        let driver = |(name, state): (String, DriverState)| {
            (
                name,
                state
                    .devices
                    .unwrap_or_default()
                    .into_iter()
                    .map(device)
                    .collect(),
            )
        };
        Self {
            uid: state.uid,
            name: state.name,
            namespace: state.namespace,
            pods: state.pods.unwrap_or_default().into_keys().collect(),
            drivers: state
                .drivers
                .unwrap_or_default()
                .into_iter()
                .map(driver)
                .collect(),
            handles: state.handles,
            class: state.class,
            prepared: false,
        }
    }
}

/// Removes what an agent that was killed while it saved has left. There is one agent for a directory.
fn sweep(file: &std::path::Path) {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return;
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && name.ends_with(".tmp") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The claims of a checkpoint, or what is wrong with it.
fn decode(bytes: &[u8]) -> Result<BTreeMap<Key, ClaimInfo>, String> {
    let content: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if crc32fast::hash(content.data.as_bytes()) != content.checksum {
        return Err("checkpoint is corrupted".into());
    }
    let checkpoint: Checkpoint =
        serde_json::from_str(&content.data).map_err(|error| error.to_string())?;
    if (checkpoint.kind.as_str(), checkpoint.api_version.as_str()) != (KIND, API_VERSION) {
        return Err(format!(
            "unknown {} {}",
            checkpoint.api_version, checkpoint.kind
        ));
    }
    let claims = checkpoint.claims.unwrap_or_default().into_iter();
    let claims = claims.map(ClaimInfo::from);
    Ok(claims
        .map(|info| ((info.namespace.clone(), info.name.clone()), info))
        .collect())
}

impl Cache {
    /// Reads the file; a missing one is an empty cache, and a damaged one is set aside.
    ///
    /// # Errors
    /// The file cannot be read or renamed.
    pub(crate) fn open(file: PathBuf) -> Result<Self, Error> {
        let (claims, damage) = match std::fs::read(&file) {
            Ok(bytes) => match decode(&bytes) {
                Ok(claims) => (claims, None),
                Err(reason) => (BTreeMap::new(), Some(damaged::set_aside(&file, reason)?)),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (BTreeMap::new(), None),
            Err(source) => return Err(Error::Io { path: file, source }),
        };
        sweep(&file);
        Ok(Self {
            incomplete: damaged::is_there(&file),
            file: Some(file),
            claims,
            damage,
            saved: None,
        })
    }

    /// An empty cache without a file.
    pub(crate) fn in_memory() -> Self {
        Self {
            file: None,
            claims: BTreeMap::new(),
            damage: None,
            incomplete: false,
            saved: None,
        }
    }

    /// Writes the file if the state changed.
    pub(crate) fn save(&mut self) -> Result<(), ClaimError> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let checkpoint = Checkpoint {
            kind: KIND.into(),
            api_version: API_VERSION.into(),
            claims: some(self.claims.values().map(ClaimState::from).collect()),
        };
        let data = serde_json::to_string(&checkpoint).at(path)?;
        if self.saved.as_ref() == Some(&data) {
            return Ok(());
        }
        let file = File {
            checksum: crc32fast::hash(data.as_bytes()),
            data,
        };
        let bytes = serde_json::to_vec(&file).at(path)?;
        allot_cdi::file::write_atomic(path, &bytes, 0o600).at(path)?;
        self.saved = Some(file.data);
        Ok(())
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&ClaimInfo> {
        self.claims.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClaimInfo> {
        self.claims.values()
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut ClaimInfo> {
        self.claims.get_mut(key)
    }

    pub(crate) fn by_uid(&mut self, uid: &str) -> Option<&mut ClaimInfo> {
        self.claims.values_mut().find(|info| info.uid == uid)
    }

    /// The entry of a claim; a claim of the same name but another UID must be unprepared first.
    pub(crate) fn get_or_insert(
        &mut self,
        key: Key,
        claim: &FetchedClaim,
    ) -> Result<&mut ClaimInfo, ClaimError> {
        let info = self.claims.entry(key.clone()).or_insert_with(|| ClaimInfo {
            uid: claim.uid().to_owned(),
            namespace: key.0,
            name: key.1.clone(),
            drivers: claim
                .drivers
                .iter()
                .map(|driver| (driver.clone(), Vec::new()))
                .collect(),
            handles: claim.handles.clone(),
            class: claim.class.clone().unwrap_or_default(),
            ..ClaimInfo::default()
        });
        if info.uid != claim.uid() {
            return Err(ClaimError::Replaced {
                claim: key.1,
                uid: info.uid.clone(),
            });
        }
        Ok(info)
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.claims.remove(key);
    }

    /// Claims that a pod uses.
    pub(crate) fn of_pod(&self, uid: &str) -> Vec<Key> {
        let used = self
            .claims
            .iter()
            .filter(|(_, info)| info.pods.contains(uid));
        used.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn pods(&self) -> BTreeSet<String> {
        self.claims
            .values()
            .flat_map(|info| info.pods.iter().cloned())
            .collect()
    }
}

/// See [`crate::fuzzing::checkpoint`].
pub(crate) fn fuzz(directory: &std::path::Path, bytes: &[u8]) {
    let file = directory.join("dra_manager_state");
    let data = String::from_utf8_lossy(bytes).into_owned();
    let checksum = crc32fast::hash(data.as_bytes());
    let sealed = serde_json::to_vec(&File { data, checksum }).unwrap_or_default();
    for content in [bytes, &sealed] {
        if std::fs::write(&file, content).is_err() {
            return;
        }
        if let Ok(mut cache) = Cache::open(file.clone()) {
            // A checkpoint that was read can be written and read again.
            let again = cache.save().map(|()| Cache::open(file.clone()));
            assert!(
                matches!(again, Ok(Ok(again)) if again.damage.is_none()),
                "a checkpoint is lost when it is written"
            );
        }
    }
}
