//! What is to be made of the devices of a claim, in a file that the driver writes and the hook of the container runtime
//! reads; and what came of it, in files the other way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use allot_driver::ClaimRef;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::Device;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::parameters::InterfaceConfig;

/// What aliases of interfaces begin with that belong to a claim.
pub const ALIAS: &str = "net.allot.dev";
const PLAN: &str = ".plan.json";
const OUTCOME: &str = ".outcome.json";

/// The devices of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The claim.
    pub claim: ClaimRef,
    /// One for each device that becomes an interface of the pod.
    pub interfaces: Vec<Planned>,
}

/// An interface that a pod gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Which device of the claim this is.
    pub key: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// The share of a device that several claims use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Name of the device's interface on the node.
    pub parent: String,
    /// Its hardware address: another interface of that name is another one.
    pub parent_mac: String,
    /// What is made of it.
    pub config: InterfaceConfig,
    /// The addresses that it gets.
    #[serde(with = "super::text::list")]
    pub addresses: Vec<IpNet>,
    /// What the interface is on the node, to put it back.
    pub original: Original,
    /// What is published about it, also while it is in a pod.
    pub published: Device,
}

/// An interface before anything was done to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Original {
    /// Its alias.
    #[serde(default)]
    pub alias: String,
    /// Its largest packet.
    pub mtu: u32,
    /// It was set up.
    pub up: bool,
    /// Its addresses.
    #[serde(with = "super::text::list")]
    pub addresses: Vec<IpNet>,
    /// Where the kernel shows the hardware below it, for as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<PathBuf>,
}

/// What came of a planned interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// When it came to be so.
    pub at: Timestamp,
    /// Why the pod does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its name in the pod.
    #[serde(default)]
    pub interface_name: String,
    /// Its hardware address.
    #[serde(default)]
    pub hardware_address: String,
    /// Its addresses, with their networks.
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
    /// The alias of the interface from the moment when something is done to it: whose it is, and its name on the node.
    pub fn alias(&self, uid: &str) -> String {
        format!("{ALIAS} {uid} {} {}", self.key, self.parent)
    }

    /// The name of the interface until it is complete.
    pub fn interim_name(&self, uid: &str) -> String {
        let hash = hash(uid, &self.key);
        let hash: String = hash[6..12]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("al{hash}")
    }

    /// The hardware address of an interface that has one of its own: always the same one for a device of a claim, so that
    /// the kernel refuses a second interface for it on the same parent.
    pub fn mac(&self, uid: &str) -> [u8; 6] {
        let hash = hash(uid, &self.key);
        // Locally administered, of one station.
        [0x0a, hash[0], hash[1], hash[2], hash[3], hash[4]]
    }
}

/// Claim, device and name on the node of an interface with this alias.
pub fn read_alias(alias: &str) -> Option<(&str, &str, &str)> {
    let mut words = alias.strip_prefix(ALIAS)?.strip_prefix(' ')?.split(' ');
    let found = (words.next()?, words.next()?, words.next()?);
    words.next().is_none().then_some(found)
}

fn hash(uid: &str, key: &str) -> [u8; 32] {
    Sha256::digest(format!("{uid}/{key}")).into()
}

/// The directory with the plans.
#[derive(Debug, Clone)]
pub struct Plans {
    directory: PathBuf,
}

impl Plans {
    /// In this directory, which is made when something is written.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of a claim.
    pub fn file(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{uid}{PLAN}"))
    }

    fn outcome_file(&self, uid: &str, key: &str) -> PathBuf {
        self.directory.join(format!("{uid}_{key}{OUTCOME}"))
    }

    /// Writes the plan of a claim, unless it is there. From here on the hook makes interfaces.
    ///
    /// # Errors
    /// The disk is full.
    pub fn write(&self, plan: &Plan) -> io::Result<()> {
        // A hook may be at work with the file.
        if self
            .read(&plan.claim.uid)
            .is_ok_and(|it| it.as_ref() == Some(plan))
        {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(plan)?;
        allot_cdi::file::write_atomic(&self.file(&plan.claim.uid), &text, 0o600)
    }

    /// The plan of a claim, if it has one.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn read(&self, uid: &str) -> io::Result<Option<Plan>> {
        read(&self.file(uid))
    }

    /// UIDs of the claims that have plans.
    pub fn claims(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory);
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let uid = name.strip_suffix(PLAN)?;
                (!uid.starts_with('.')).then(|| uid.to_owned())
            })
            .collect()
    }

    /// The claim that a file of the directory is about.
    pub fn claim_of(name: &str) -> Option<&str> {
        let uid = match name.strip_suffix(OUTCOME) {
            Some(rest) => rest.split_once('_')?.0,
            None => name.strip_suffix(PLAN)?,
        };
        (!uid.starts_with('.')).then_some(uid)
    }

    /// Takes the plan away: the hook makes nothing any more.
    ///
    /// # Errors
    /// A hook is at work with it, or those of the file system.
    pub fn remove_plan(&self, uid: &str) -> io::Result<()> {
        let path = self.file(uid);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |error| io::Error::other(format!("a container is being connected ({error})")),
        )?;
        fs::remove_file(&path)
    }

    /// Forgets what came of a claim's devices.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_outcomes(&self, uid: &str) -> io::Result<()> {
        let prefix = format!("{uid}_");
        for entry in fs::read_dir(&self.directory).into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(OUTCOME) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Writes what came of a device.
    ///
    /// # Errors
    /// The disk is full.
    pub fn write_outcome(&self, uid: &str, key: &str, outcome: &Outcome) -> io::Result<()> {
        let text = serde_json::to_vec(outcome)?;
        allot_cdi::file::write_atomic(&self.outcome_file(uid, key), &text, 0o600)
    }

    /// What came of a device, if something did.
    ///
    /// # Errors
    /// The file is damaged.
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
