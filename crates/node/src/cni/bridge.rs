//! A pod network that needs no configuration of the machine: a bridge for all nodes of a cluster on this machine, each with
//! addresses of its own.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::plugin::{self, PluginError};
use super::ranges::{self, Ranges, candidate, gateway_v4};
use crate::config::{Config, PodNetwork};
use crate::error::PathError;
use crate::interfaces::Socket;
use crate::spec;

/// The record in the directory of a cluster.
const RECORD: &str = "pod-network.json";
/// Networks `10.N.0.0/16` that are tried in this order if none is named.
const CANDIDATES: std::ops::RangeInclusive<u8> = 201..=254;
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
    #[error("bridge for pods: its networks have too few parts for the nodes")]
    TooManyNodes,
    /// The machine uses all networks that a bridge could have.
    #[error("bridge for pods: no network 10.N.0.0/16 is free")]
    NoNetwork,
    /// The machine uses the network that was named.
    #[error("bridge for pods: a route of the machine overlaps with {0}")]
    Used(ipnet::IpNet),
    /// The kernel has no IPv6.
    #[error("bridge for pods: IPv6 is switched off on this machine")]
    NoIpv6,
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
    /// Second number of the addresses, if the network was not named; the name of the bridge follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<u8>,
    /// The network that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cidr: Option<String>,
    /// Distinguishes the bridge from a later one of the same name, which is another cluster's.
    identity: String,
}

impl Record {
    /// Its IPv4 network; `None` if the record is damaged.
    fn v4(&self) -> Option<Ipv4Net> {
        match (self.network, &self.cidr) {
            (_, Some(cidr)) => cidr.parse().ok(),
            (Some(number), None) => Some(candidate(number)),
            (None, None) => None,
        }
    }

    /// The name of its bridge, of at most 15 letters.
    fn bridge(&self) -> Option<String> {
        match (self.network, self.v4()?) {
            (Some(number), _) => Some(format!("allot-10-{number}")),
            (None, v4) => Some(format!("allot-{:08x}", v4.network().to_bits())),
        }
    }

    /// Whether the bridge of the record is there.
    fn holds(&self) -> bool {
        let identity = self.bridge().and_then(|bridge| identity(&bridge));
        identity.as_ref() == Some(&self.identity)
    }
}

/// The bridge of a cluster.
#[derive(Debug, Clone)]
pub struct Bridge {
    record: Record,
    v4: Ipv4Net,
    /// The name of its interface.
    name: String,
    ranges: Ranges,
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
        ranges: &Ranges,
    ) -> Result<Self, Error> {
        let last = u32::try_from(nodes.saturating_sub(1)).map_err(|_| Error::TooManyNodes)?;
        let v4 = ranges.v4.unwrap_or_else(ranges::any_v4);
        let four = ranges::part_v4(v4, ranges.nodes.0, last);
        let six = ranges
            .v6
            .map(|it| ranges::part_v6(it, ranges.nodes.1, last));
        if four.is_none() || six == Some(None) {
            return Err(Error::TooManyNodes);
        }
        // Without root pods share the network of the host, whether there are plugins or not.
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Permission);
        }
        for kind in ["bridge", "host-local"] {
            plugin::find(kind, &bin_dirs).map_err(Error::Plugins)?;
        }
        if ranges.v6.is_some() && !has_ipv6() {
            return Err(Error::NoIpv6);
        }
        let both = ranges.v6.is_some();
        let translates = plugin::find("portmap", &bin_dirs).is_ok()
            && iptables_works("nat", "POSTROUTING", both).await;
        let permits = plugin::find("firewall", &bin_dirs).is_ok()
            && iptables_works("filter", "FORWARD", both).await;
        let record = reserve(directory, ranges)?;
        let (Some(v4), Some(name)) = (record.v4(), record.bridge()) else {
            return Err(Error::NoNetwork);
        };
        let bridge = Self {
            record,
            v4,
            name,
            ranges: *ranges,
            bin_dirs,
            translates,
            permits,
        };
        Ok(bridge)
    }

    /// The host's address on the bridge, at which pods reach it.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        gateway_v4(self.v4)
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
        let bridge = &self.name;
        let number = u32::try_from(index).map_err(|_| Error::TooManyNodes)?;
        let (four, six) = self.ranges.nodes;
        let v4 = ranges::part_v4(self.v4, four, number).ok_or(Error::TooManyNodes)?;
        let v6 = self.ranges.v6.map(|it| ranges::part_v6(it, six, number));
        let v6 = v6.map(|part| part.ok_or(Error::TooManyNodes)).transpose()?;
        let mut routes = vec![json!({"dst": "0.0.0.0/0"})];
        if v6.is_some() {
            routes.push(json!({"dst": "::/0"}));
        }
        let parts: Vec<_> = std::iter::once(v4).chain(v6).collect();
        // A pod has an address of each set of ranges.
        let sets: Vec<_> = parts.iter().map(|(_, range)| json!([range])).collect();
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
                "ranges": sets,
                "routes": routes,
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
        config.network.pod_cidrs = parts.iter().map(|(part, _)| part.to_string()).collect();
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
    let Some(bridge) = record.bridge() else {
        return Ok(None);
    };
    let removed = Socket::open().and_then(|socket| socket.remove_bridge(&bridge));
    match removed {
        Ok(()) => Ok(Some(bridge)),
        Err(source) => Err(RemoveError { bridge, source }),
    }
}

/// The number of an interface, which no later one has until the machine is started again.
fn identity(bridge: &str) -> Option<String> {
    let index = Path::new("/sys/class/net").join(bridge).join("ifindex");
    let index = std::fs::read_to_string(index).ok()?;
    let boot = Some(crate::boot::id()).filter(|id| !id.is_empty())?;
    Some(format!("{boot}/{}", index.trim()))
}

/// Creates the bridge of a directory. That the kernel has no two of one name keeps clusters apart that start at once.
fn reserve(directory: &Path, ranges: &Ranges) -> Result<Record, Error> {
    let file = directory.join(RECORD);
    let before = spec::read::<Record>(&file).ok();
    let socket = Socket::open().map_err(Error::Kernel)?;
    let of_v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let is_used_v6 = |bridge: &str| {
        let used = ranges
            .v6
            .filter(|it| ranges::is_used_v6(&of_v6, *it, bridge));
        used.map_or(Ok(()), |it| Err(Error::Used(it.into())))
    };
    let named = ranges.v4.map(|it| it.to_string());
    if let Some(before) = before.as_ref().filter(|it| it.holds()) {
        if before.cidr == named
            && let (Some(bridge), Some(v4)) = (before.bridge(), before.v4())
        {
            is_used_v6(&bridge)?;
            set_up(&socket, &bridge, v4).map_err(permission)?;
            return Ok(before.clone());
        }
        // That of an earlier run with another network, whose pods cannot stay on it.
        remove_recorded(before).map_err(|error| permission(error.source))?;
    }
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let first = before.and_then(|it| it.network);
    let first = first.filter(|it| CANDIDATES.contains(it));
    let tried: Vec<(Option<u8>, Ipv4Net)> = match ranges.v4 {
        Some(v4) => vec![(None, v4)],
        None => first
            .into_iter()
            .chain(CANDIDATES)
            .map(|number| (Some(number), candidate(number)))
            .collect(),
    };
    for (number, v4) in tried {
        if ranges::is_used_v4(&routes, v4) {
            continue;
        }
        let mut record = Record {
            network: number,
            cidr: named.clone(),
            identity: String::new(),
        };
        let Some(bridge) = record.bridge() else {
            continue;
        };
        is_used_v6(&bridge)?;
        match socket.add_bridge(&bridge) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            result => result.map_err(permission)?,
        }
        record.identity = identity(&bridge).unwrap_or_default();
        let made = spec::write(&file, &record)
            .map_err(Error::File)
            .and_then(|()| set_up(&socket, &bridge, v4).map_err(permission));
        if let Err(error) = made {
            let _ = socket.remove_bridge(&bridge);
            return Err(error);
        }
        return Ok(record);
    }
    match ranges.v4 {
        Some(v4) => Err(Error::Used(v4.into())),
        None => Err(Error::NoNetwork),
    }
}

/// Whether pods can have addresses of IPv6.
fn has_ipv6() -> bool {
    let off = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    off.is_ok_and(|off| off.trim() == "0")
}

/// Gives a bridge the address of the gateway, and sets it up. The plugin `bridge` adds the address of IPv6.
fn set_up(socket: &Socket, bridge: &str, v4: Ipv4Net) -> std::io::Result<()> {
    socket.set_address(bridge, gateway_v4(v4), v4.netmask())?;
    socket.set_up(bridge)
}

fn permission(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Error::Permission,
        _ => Error::Kernel(error),
    }
}

/// Whether there are such tables, for IPv6 too if addresses of `both` families are translated.
async fn iptables_works(table: &str, chain: &str, both: bool) -> bool {
    works("iptables", table, chain).await && (!both || works("ip6tables", table, chain).await)
}

async fn works(program: &str, table: &str, chain: &str) -> bool {
    let mut command = tokio::process::Command::new(program);
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
    fn nodes_have_ranges_of_their_own_on_one_bridge() {
        let directory = tempfile::tempdir().unwrap();
        let bridge = Bridge {
            record: Record {
                network: Some(201),
                cidr: None,
                identity: String::new(),
            },
            v4: candidate(201),
            name: "allot-10-201".to_owned(),
            ranges: Ranges::default().with_ipv6("fd00:9::/48".parse().unwrap()),
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
            let ipam = &network.plugins[0]["ipam"];
            assert_eq!(ipam["ranges"][1][0]["gateway"], "fd00:9::1");
            assert_eq!(ipam["routes"][1]["dst"], "::/0");
            let [v4, v6] = <[String; 2]>::try_from(config.network.pod_cidrs).unwrap();
            let third = if index == 0 {
                String::new()
            } else {
                format!("0:{index:x}")
            };
            assert_eq!(v6, format!("fd00:9:{third}::/64").replace(":::", "::"));
            cidrs.push((v4, range["rangeStart"].clone()));
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
        for named in ["10.0.0.0/8", "lo", "x/16"] {
            let record = json!({"cidr": named, "identity": identity("lo").unwrap_or_default()});
            spec::write(&directory.path().join(RECORD), &record).unwrap();
            assert_eq!(remove(directory.path()).expect("nothing is removed"), None);
        }
        let identity = identity("lo").unwrap_or_default();
        let record = json!({"bridge": "lo", "network": 201, "identity": identity});
        spec::write(&directory.path().join(RECORD), &record).unwrap();
        for path in [directory.path(), &directory.path().join("none")] {
            let removed = remove(path).expect("nothing is removed");
            assert_eq!(removed, None, "{path:?}");
        }
    }
}
