//! The planned interfaces of a claim, in a file written by the driver and read by the hook of the container runtime; and
//! their outcomes, in files written by the hook and read by the driver.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use allot_driver::ClaimRef;
use allot_netlink::Link;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::Device;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::identity::{Identity, boot, is_this_boot};
use super::parameters::InterfaceConfig;

const PLAN: &str = ".plan.json";
const RELEASE: &str = ".release.json";
const OUTCOME: &str = ".outcome.json";
const LOCATION: &str = ".location.json";

/// The plan of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Reference to the claim.
    pub claim: ClaimRef,
    /// One entry for each device that becomes an interface of the pod.
    pub interfaces: Vec<Planned>,
}

impl Plan {
    /// Names of all pools from which addresses of the claim are allocated.
    pub fn pools(&self) -> BTreeSet<String> {
        let pools = self.interfaces.iter().flat_map(|it| &it.pools);
        pools.cloned().collect()
    }
}

/// A planned interface of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Key of the device in the claim.
    pub key: String,
    /// Name of the device's pool.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Share ID of a device that is allocated to several claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Name of the device's interface on the node.
    pub parent: String,
    /// Hardware address of that interface on the node.
    pub parent_mac: String,
    /// Identity of that interface, by which it is found in any namespace.
    pub identity: Identity,
    /// Configuration of the interface.
    pub config: InterfaceConfig,
    /// Names of the pools from which its addresses are allocated, recorded before any is.
    pub pools: BTreeSet<String>,
    /// Addresses allocated to the interface.
    #[serde(with = "super::text::list")]
    pub addresses: Vec<IpNet>,
    /// Original state of the interface on the node, for restoring it.
    pub original: Original,
    /// The published device, which stays published while the interface is in a pod.
    pub published: Device,
}

/// The state of an interface before it was changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Original {
    /// Original alias.
    #[serde(default)]
    pub alias: String,
    /// Original alternative names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternative_names: Vec<String>,
    /// Original MTU.
    pub mtu: u32,
    /// Whether it was administratively up.
    pub up: bool,
    /// Whether it was set to receive all packets, or all multicast packets.
    #[serde(default)]
    pub promiscuous: bool,
    /// Original addresses.
    #[serde(with = "super::text::list")]
    pub addresses: Vec<IpNet>,
    /// The sysfs directory of the underlying hardware, which exists as long as the hardware does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<PathBuf>,
}

impl Original {
    /// The state of `link`, with these addresses and this hardware.
    pub fn of(link: &Link, addresses: &[IpNet], hardware: Option<&PathBuf>) -> Self {
        Self {
            alias: link.alias.clone(),
            alternative_names: link.alternative_names.clone(),
            mtu: link.mtu,
            up: link.up,
            promiscuous: link.promiscuous,
            addresses: addresses.to_vec(),
            hardware: hardware.cloned(),
        }
    }
}

/// A network namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// ID of the boot in which it exists.
    boot: String,
    device: u64,
    inode: u64,
}

impl Namespace {
    /// The namespace of a file such as `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// The file has no metadata.
    pub fn of(file: &fs::File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            boot: boot(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Whether this record is about a namespace that exists now.
    fn is(&self, present: &Self) -> bool {
        is_this_boot(&self.boot) && (self.device, self.inode) == (present.device, present.inode)
    }
}

/// Where the hook put an interface, recorded before it changed anything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    /// The pod's network namespace.
    pub namespace: Namespace,
    /// Index of the interface in it, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// The outcome of attaching a planned interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Time of the last change of the outcome.
    pub at: Timestamp,
    /// Why the interface could not be attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Name of the interface in the pod.
    #[serde(default)]
    pub interface_name: String,
    /// Hardware address of the interface.
    #[serde(default)]
    pub hardware_address: String,
    /// Addresses of the interface, with prefix lengths.
    #[serde(default)]
    pub ips: Vec<String>,
}

/// The key of a device in a claim.
pub fn key(device: &str, share_id: Option<&str>) -> String {
    match share_id {
        Some(share) => format!("{device}-{share}"),
        None => device.to_owned(),
    }
}

impl Planned {
    /// The name of the interface until its configuration is complete.
    pub fn interim_name(&self, uid: &str) -> String {
        let hash = hash(uid, &self.key);
        let hash: String = hash[6..12]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("al{hash}")
    }

    /// The hardware address for an interface that needs its own: stable for a device of a claim, so that the kernel rejects a
    /// second interface for it on the same parent.
    pub fn mac(&self, uid: &str) -> [u8; 6] {
        let hash = hash(uid, &self.key);
        // A locally administered unicast address.
        [0x0a, hash[0], hash[1], hash[2], hash[3], hash[4]]
    }
}

fn hash(uid: &str, key: &str) -> [u8; 32] {
    Sha256::digest(format!("{uid}/{key}")).into()
}

/// The directory that contains plans and outcomes.
#[derive(Debug, Clone)]
pub struct Plans {
    directory: PathBuf,
}

impl Plans {
    /// Uses this directory, which is created on the first write.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path of a claim's plan.
    pub fn file(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{uid}{PLAN}"))
    }

    fn release_file(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{uid}{RELEASE}"))
    }

    /// One file for each namespace: an attempt of another pod does not change what is recorded about the first one.
    fn location_file(&self, uid: &str, key: &str, namespace: &Namespace) -> PathBuf {
        let inode = namespace.inode;
        self.directory
            .join(format!("{uid}_{key}.{inode}{LOCATION}"))
    }

    fn outcome_file(&self, uid: &str, key: &str) -> PathBuf {
        self.directory.join(format!("{uid}_{key}{OUTCOME}"))
    }

    /// Writes the plan of a claim unless it already exists. From then on the hook can attach interfaces.
    ///
    /// # Errors
    /// A file system operation failed, for example because the disk is full.
    pub fn write(&self, plan: &Plan) -> io::Result<()> {
        // A hook may currently hold a lock on the file.
        if self
            .read(&plan.claim.uid)
            .is_ok_and(|it| it.as_ref() == Some(plan))
        {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(plan)?;
        allot_cdi::file::write_atomic(&self.file(&plan.claim.uid), &text, 0o600)
    }

    /// Reads the plan of a claim, if it exists.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(&self, uid: &str) -> io::Result<Option<Plan>> {
        read(&self.file(uid))
    }

    /// Reads the plan of a claim that is being released.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read_released(&self, uid: &str) -> io::Result<Option<Plan>> {
        read(&self.release_file(uid))
    }

    /// UIDs of the claims that have plans.
    pub fn claims(&self) -> Vec<String> {
        self.with_suffix(PLAN)
    }

    /// UIDs of the claims whose release began.
    pub fn released(&self) -> Vec<String> {
        self.with_suffix(RELEASE)
    }

    fn with_suffix(&self, suffix: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.directory);
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let uid = name.strip_suffix(suffix)?;
                (!uid.starts_with('.')).then(|| uid.to_owned())
            })
            .collect()
    }

    /// The UID of the claim that a file in the directory belongs to.
    pub fn claim_of(name: &str) -> Option<&str> {
        let uid = match name.strip_suffix(OUTCOME) {
            Some(rest) => rest.split_once('_')?.0,
            None => name.strip_suffix(PLAN)?,
        };
        (!uid.starts_with('.')).then_some(uid)
    }

    /// Begins the release of a claim: from then on the hook attaches no interfaces, and the plan has another name until
    /// everything is released.
    ///
    /// # Errors
    /// A hook is using the plan, or a file system operation failed.
    pub fn begin_release(&self, uid: &str) -> io::Result<()> {
        let path = self.file(uid);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |error| io::Error::other(format!("a container is being connected ({error})")),
        )?;
        fs::rename(&path, self.release_file(uid))
    }

    /// Removes all files of a claim that is released.
    ///
    /// # Errors
    /// A file system operation failed.
    pub fn end_release(&self, uid: &str) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory).into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // The hook may have been killed while it wrote a file.
            let own = name.strip_prefix('.').unwrap_or(&name).strip_prefix(uid);
            let is_device = own.is_some_and(|rest| rest.starts_with('_'));
            let is_unfinished =
                own.is_some_and(|rest| rest.starts_with('.')) && name.ends_with(".tmp");
            if is_device || is_unfinished {
                fs::remove_file(entry.path())?;
            }
        }
        match fs::remove_file(self.release_file(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Records where a device's interface is put.
    ///
    /// # Errors
    /// A file system operation failed, for example because the disk is full.
    pub fn write_location(&self, uid: &str, key: &str, location: &Location) -> io::Result<()> {
        let text = serde_json::to_vec(location)?;
        let file = self.location_file(uid, key, &location.namespace);
        allot_cdi::file::write_atomic(&file, &text, 0o600)
    }

    /// The index that a device's interface got in a namespace, if the hook recorded it.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn index(&self, uid: &str, key: &str, namespace: &Namespace) -> io::Result<Option<u32>> {
        let location: Option<Location> = read(&self.location_file(uid, key, namespace))?;
        // An inode number is used again.
        Ok(location
            .filter(|it| it.namespace.is(namespace))
            .and_then(|it| it.index))
    }

    /// Whether a hook began to attach a device.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn is_located(&self, uid: &str, key: &str) -> io::Result<bool> {
        let prefix = format!("{uid}_{key}.");
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(LOCATION) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records the outcome of a device.
    ///
    /// # Errors
    /// A file system operation failed, for example because the disk is full.
    pub fn write_outcome(&self, uid: &str, key: &str, outcome: &Outcome) -> io::Result<()> {
        let text = serde_json::to_vec(outcome)?;
        allot_cdi::file::write_atomic(&self.outcome_file(uid, key), &text, 0o600)
    }

    /// Reads the outcome of a device, if one is recorded.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn outcome(&self, uid: &str, key: &str) -> io::Result<Option<Outcome>> {
        read(&self.outcome_file(uid, key))
    }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> io::Result<Option<T>> {
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {error}", file.display()),
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
