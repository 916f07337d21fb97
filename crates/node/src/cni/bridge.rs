//! A pod network that needs no configuration of the machine: a bridge for all nodes of a cluster on this machine, each with
//! addresses of its own.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::plugin::{self, PluginError};
use crate::config::{Config, PodNetwork};
use crate::error::PathError;
use crate::interfaces::Socket;
use crate::spec;

/// The record in the directory of a cluster.
const RECORD: &str = "pod-network.json";
/// Networks `10.N.0.0/16` that are tried in this order.
const CANDIDATES: std::ops::RangeInclusive<u8> = 201..=254;
/// Most nodes: each has 254 addresses.
const MOST_NODES: usize = 256;
/// How long iptables may take to answer.
const IPTABLES: Duration = Duration::from_secs(10);

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user may not create it.
    #[error("a bridge for pods needs an agent that runs as root")]
    Permission,
    /// Plugins are missing.
    #[error(
        "{0}; install the CNI plugins (Debian's package containernetworking-plugins), or name their directory with --cni-bin-dir"
    )]
    Plugins(#[source] PluginError),
    /// The kernel refuses.
    #[error("bridge for pods: {0}")]
    Kernel(#[source] std::io::Error),
    /// A record or a configuration cannot be written.
    #[error("bridge for pods: {0}")]
    File(#[from] PathError),
    /// More nodes than there are addresses for.
    #[error("bridge for pods: it has addresses for {} nodes", MOST_NODES)]
    TooManyNodes,
    /// The machine uses all networks that a bridge could have.
    #[error("bridge for pods: no network 10.N.0.0/16 is free")]
    NoNetwork,
}

/// A bridge, by its name, that the kernel does not remove.
#[derive(Debug, thiserror::Error)]
#[error("{bridge}: {source}")]
pub struct RemoveError {
    bridge: String,
    source: std::io::Error,
}

/// What a later run needs to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    /// Second number of the addresses; the name of the bridge follows from it.
    network: u8,
    /// Distinguishes the bridge from a later one of the same name, which is another cluster's.
    identity: String,
}

impl Record {
    /// Whether the bridge of the record is there.
    fn holds(&self) -> bool {
        identity(&name(self.network)).as_ref() == Some(&self.identity)
    }
}

/// The bridge of a cluster.
#[derive(Debug, Clone)]
pub struct Bridge {
    record: Record,
    bin_dirs: Vec<PathBuf>,
    /// Pods reach other networks, and ports of the host lead to pods.
    translates: bool,
    /// The host forwards packets of pods also where its own rules would drop them.
    permits: bool,
}

impl Bridge {
    /// The bridge of the cluster in a directory, created unless it is there. The network of an earlier run is kept if
    /// nothing else on the machine uses it by now.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn open(
        directory: &Path,
        bin_dirs: Vec<PathBuf>,
        nodes: usize,
    ) -> Result<Self, Error> {
        if nodes > MOST_NODES {
            return Err(Error::TooManyNodes);
        }
        // Without root pods share the network of the host, whether there are plugins or not.
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Permission);
        }
        for kind in ["bridge", "host-local"] {
            plugin::find(kind, &bin_dirs).map_err(Error::Plugins)?;
        }
        let translates = plugin::find("portmap", &bin_dirs).is_ok()
            && iptables_works("nat", "POSTROUTING").await;
        let permits = plugin::find("firewall", &bin_dirs).is_ok()
            && iptables_works("filter", "FORWARD").await;
        let record = reserve(directory)?;
        let bridge = Self {
            record,
            bin_dirs,
            translates,
            permits,
        };
        Ok(bridge)
    }

    /// The host's address on the bridge, at which pods reach it.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        gateway(self.record.network)
    }

    /// Removes it. Pods on it lose their network.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn remove(&self) -> Result<(), RemoveError> {
        remove_recorded(&self.record).map(drop)
    }

    /// Configures a node, by its number, to put its pods on the bridge.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn equip(&self, index: usize, config: &mut Config) -> Result<(), Error> {
        let network = self.record.network;
        let bridge = name(network);
        let third = u8::try_from(index).map_err(|_| Error::TooManyNodes)?;
        let first = Ipv4Addr::new(10, network, third, if third == 0 { 2 } else { 1 });
        let range = json!({
            "subnet": format!("10.{network}.0.0/16"),
            "rangeStart": first,
            "rangeEnd": Ipv4Addr::new(10, network, third, 254),
            "gateway": self.gateway(),
        });
        let root = config.root_dir.join("cni");
        let mut plugins = vec![json!({
            "type": "bridge",
            "bridge": bridge,
            "isGateway": true,
            "ipMasq": self.translates,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": root.join("ipam"),
                "ranges": [[range]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        })];
        if self.translates {
            let capabilities = json!({"portMappings": true});
            plugins.push(json!({"type": "portmap", "capabilities": capabilities, "snat": true}));
        }
        if self.permits {
            plugins.push(json!({"type": "firewall"}));
        }
        let whole = json!({
            "cniVersion": "1.0.0",
            "name": format!("{bridge}-{index}"),
            "plugins": plugins,
        });
        let directory = root.join("net.d");
        let file = directory.join("10-allot.conflist");
        spec::write(&file, &whole)?;
        config.network.mode = PodNetwork::Cni;
        config.network.conf_dir = directory;
        config.network.bin_dirs.clone_from(&self.bin_dirs);
        config.network.pod_cidr = Some(format!("10.{network}.{third}.0/24"));
        Ok(())
    }
}

/// Removes the bridge of the cluster in a directory, whose pods have ended. Returns its name if there was one.
///
/// # Errors
/// The kernel does not permit it.
pub fn remove(directory: &Path) -> Result<Option<String>, RemoveError> {
    let Ok(record) = spec::read::<Record>(&directory.join(RECORD)) else {
        return Ok(None);
    };
    remove_recorded(&record)
}

fn remove_recorded(record: &Record) -> Result<Option<String>, RemoveError> {
    if !record.holds() {
        return Ok(None);
    }
    let bridge = name(record.network);
    let removed = Socket::open().and_then(|socket| socket.remove_bridge(&bridge));
    match removed {
        Ok(()) => Ok(Some(bridge)),
        Err(source) => Err(RemoveError { bridge, source }),
    }
}

fn gateway(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, network, 0, 1)
}

fn name(network: u8) -> String {
    format!("allot-10-{network}")
}

/// The number of an interface, which no later one has until the machine is started again.
fn identity(bridge: &str) -> Option<String> {
    let index = Path::new("/sys/class/net").join(bridge).join("ifindex");
    let index = std::fs::read_to_string(index).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{}/{}", boot.trim(), index.trim()))
}

/// Creates the bridge of a directory. That the kernel has no two of one name keeps clusters apart that start at once.
fn reserve(directory: &Path) -> Result<Record, Error> {
    let file = directory.join(RECORD);
    let before = spec::read::<Record>(&file).ok();
    let before = before.filter(|it| CANDIDATES.contains(&it.network));
    let socket = Socket::open().map_err(Error::Kernel)?;
    if let Some(before) = before.as_ref().filter(|it| it.holds()) {
        set_up(&socket, before.network).map_err(permission)?;
        return Ok(before.clone());
    }
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let first = before.map(|it| it.network);
    for network in first.into_iter().chain(CANDIDATES) {
        if is_used(&routes, network) {
            continue;
        }
        let bridge = name(network);
        match socket.add_bridge(&bridge) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            result => result.map_err(permission)?,
        }
        let record = Record {
            network,
            identity: identity(&bridge).unwrap_or_default(),
        };
        let made = spec::write(&file, &record)
            .map_err(Error::File)
            .and_then(|()| set_up(&socket, network).map_err(permission));
        if let Err(error) = made {
            let _ = socket.remove_bridge(&bridge);
            return Err(error);
        }
        return Ok(record);
    }
    Err(Error::NoNetwork)
}

/// Gives a bridge the address of the gateway, and sets it up.
fn set_up(socket: &Socket, network: u8) -> std::io::Result<()> {
    let bridge = name(network);
    let mask = Ipv4Addr::new(255, 255, 0, 0);
    socket.set_address(&bridge, gateway(network), mask)?;
    socket.set_up(&bridge)
}

fn permission(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Error::Permission,
        _ => Error::Kernel(error),
    }
}

/// Whether a route of the machine overlaps with `10.N.0.0/16`. Default routes do not count, also those that are written as two
/// halves of all addresses.
fn is_used(routes: &str, network: u8) -> bool {
    let own = u32::from(Ipv4Addr::new(10, network, 0, 0));
    let own_mask = u32::from(Ipv4Addr::new(255, 255, 0, 0));
    routes.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // In the byte order of the machine.
        let number = |index: usize| {
            let text = fields.get(index)?;
            u32::from_str_radix(text, 16).ok().map(u32::from_be)
        };
        let (Some(destination), Some(mask)) = (number(1), number(7)) else {
            return false;
        };
        mask.count_ones() >= 8 && (destination ^ own) & mask & own_mask == 0
    })
}

async fn iptables_works(table: &str, chain: &str) -> bool {
    let mut command = tokio::process::Command::new("iptables");
    command
        .args(["-w", "5", "-t", table, "-S", chain])
        .env_clear()
        .env("PATH", plugin::PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(IPTABLES, command.status()).await;
    ended.is_ok_and(|status| status.is_ok_and(|status| status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_the_machine_has_are_left_alone() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000C90A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
            eth1\t0301CB0A\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            damaged\n";
        if cfg!(target_endian = "big") {
            return;
        }
        assert!(is_used(routes, 201));
        assert!(!is_used(routes, 202));
        assert!(is_used(routes, 203));
        let all = "h\ne\t0000000A\t0\t0\t0\t0\t0\t000000FF\n";
        assert!(is_used(all, 254));
        let half = "h\ne\t00000000\t0\t0\t0\t0\t0\t00000080\n";
        assert!(!is_used(half, 254));
    }

    #[test]
    fn nodes_have_ranges_of_their_own_on_one_bridge() {
        let directory = tempfile::tempdir().unwrap();
        let bridge = Bridge {
            record: Record {
                network: 201,
                identity: String::new(),
            },
            bin_dirs: vec!["/plugins".into()],
            translates: true,
            permits: true,
        };
        let mut cidrs = Vec::new();
        for index in [0, 1, 255] {
            let mut config = Config::new("n", directory.path().join(index.to_string()));
            bridge.equip(index, &mut config).unwrap();
            let network = super::super::find(&config.network.conf_dir).unwrap();
            assert_eq!(network.name, format!("allot-10-201-{index}"));
            assert!(network.declares("portMappings"));
            let kinds: Vec<_> = network.plugins.iter().map(|own| &own["type"]).collect();
            assert_eq!(kinds, ["bridge", "portmap", "firewall"]);
            let range = network.plugins[0]["ipam"]["ranges"][0][0].clone();
            assert_eq!(range["gateway"], "10.201.0.1");
            cidrs.push((
                config.network.pod_cidr.unwrap(),
                range["rangeStart"].clone(),
            ));
        }
        let expected = [
            ("10.201.0.0/24", "10.201.0.2"),
            ("10.201.1.0/24", "10.201.1.1"),
            ("10.201.255.0/24", "10.201.255.1"),
        ];
        assert_eq!(
            cidrs,
            expected.map(|(cidr, first)| (cidr.to_owned(), json!(first)))
        );
        assert!(
            bridge
                .equip(256, &mut Config::new("n", directory.path()))
                .is_err()
        );
    }

    #[test]
    fn a_record_removes_no_other_interface() {
        let directory = tempfile::tempdir().unwrap();
        let identity = identity("lo").unwrap_or_default();
        let record = json!({"bridge": "lo", "network": 201, "identity": identity});
        spec::write(&directory.path().join(RECORD), &record).unwrap();
        for path in [directory.path(), &directory.path().join("none")] {
            let removed = remove(path).expect("nothing is removed");
            assert_eq!(removed, None, "{path:?}");
        }
    }
}
