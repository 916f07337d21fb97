//! The interfaces of a node, and their report in an annotation of its Node object.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Annotation of a Node: its interfaces as a JSON list.
pub const ANNOTATION: &str = "dra.spidernet.io/interfaces";

/// An interface of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name on the node.
    pub name: String,
    /// It carries traffic.
    pub up: bool,
    /// Addresses with their networks, `172.18.0.5/16`.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// It is capable of RDMA.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rdma: bool,
}

impl Interface {
    /// The addresses that can be read.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        self.addresses.iter().filter_map(|a| a.parse().ok())
    }
}

/// Reads the annotation of a Node.
///
/// # Errors
/// It does not exist, or is no list of interfaces; the text says which.
pub fn read_annotation(text: Option<&String>) -> Result<Vec<Interface>, String> {
    let text = text.ok_or("it has not reported its interfaces")?;
    let wrong = |what: String| format!("its annotation {ANNOTATION} can not be read: {what}");
    let interfaces: Vec<Interface> =
        serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
    for interface in &interfaces {
        let bad = interface
            .addresses
            .iter()
            .find(|a| a.parse::<IpNet>().is_err());
        if let Some(bad) = bad {
            let name = &interface.name;
            return Err(wrong(format!(
                "{name} has {bad:?}, which is no address such as 172.18.0.2/16"
            )));
        }
    }
    Ok(interfaces)
}

impl FromStr for Interface {
    type Err = String;

    /// Reads a modelled interface: `eth0`, `eth0=172.18.0.2/16`, `eth0=172.18.0.2/16,fd00::2/64,rdma,down`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        if name.is_empty() {
            return Err(format!(
                "{text:?} does not begin with the name of an interface"
            ));
        }
        let mut interface = Self {
            name: name.to_owned(),
            up: true,
            addresses: Vec::new(),
            rdma: false,
        };
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            match part {
                "rdma" => interface.rdma = true,
                "down" => interface.up = false,
                address => {
                    let network: Result<IpNet, _> = address.parse();
                    let network = network
                        .map_err(|_| format!("{address:?} is no address such as 172.18.0.2/16"))?;
                    interface.addresses.push(network.to_string());
                }
            }
        }
        Ok(interface)
    }
}

/// The interfaces of this machine, without loopback, by name.
///
/// # Errors
/// The system does not provide the interfaces.
pub fn discover() -> std::io::Result<Vec<Interface>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/sys/class/net")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lo" {
            found.insert(name.clone(), read(name, &entry.path()));
        }
    }
    for address in if_addrs::get_if_addrs()? {
        let (ip, prefix) = match &address.addr {
            if_addrs::IfAddr::V4(v4) => (IpAddr::from(v4.ip), v4.prefixlen),
            if_addrs::IfAddr::V6(v6) => (v6.ip.into(), v6.prefixlen),
        };
        if let Some(interface) = found.get_mut(&address.name) {
            interface.addresses.push(format!("{ip}/{prefix}"));
        }
    }
    Ok(found.into_values().collect())
}

/// What the kernel shows of an interface.
fn read(name: String, directory: &Path) -> Interface {
    let state = std::fs::read_to_string(directory.join("operstate")).unwrap_or_default();
    Interface {
        name,
        // Virtual interfaces report unknown.
        up: matches!(state.trim(), "up" | "unknown"),
        addresses: Vec::new(),
        rdma: directory.join("device/infiniband").exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modelled_interfaces_are_read() {
        let read = |text: &str| text.parse::<Interface>();
        let interface = read("eth0=172.18.0.2/16,rdma").expect("an interface");
        assert_eq!(interface.addresses, ["172.18.0.2/16"]);
        assert!(interface.up && interface.rdma);
        assert!(!read("eth1=down").expect("an interface").up);
        assert!(read("eth2").expect("an interface").addresses.is_empty());
        for wrong in ["", "=172.18.0.2/16", "eth0=172.18.0.2", "eth0=fast"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn regression_an_annotation_that_can_not_be_read_is_another_thing_than_none() {
        let read = |text: &str| read_annotation(Some(&text.to_owned()));
        assert_eq!(
            read(r#"[{"name": "eth0", "up": true}]"#).expect("interfaces")[0].name,
            "eth0"
        );
        let wrong = "its annotation dra.spidernet.io/interfaces can not be read: ";
        for (text, expected) in [
            ("eth0", "expected value at line 1 column 1"),
            (
                r#"[{"name": "eth0"}]"#,
                "missing field `up` at line 1 column 17",
            ),
            (
                r#"[{"name": "eth0", "up": true, "addresses": ["10.0.0.1"]}]"#,
                "eth0 has \"10.0.0.1\", which is no address such as 172.18.0.2/16",
            ),
        ] {
            assert_eq!(read(text).expect_err(text), format!("{wrong}{expected}"));
        }
        let none = read_annotation(None).expect_err("no annotation");
        assert_eq!(none, "it has not reported its interfaces");
    }

    #[test]
    fn this_machine_has_no_loopback_in_the_list() {
        let found = discover().expect("interfaces");
        assert!(found.iter().all(|i| i.name != "lo"), "{found:?}");
        let parsed = found
            .iter()
            .all(|i| i.networks().count() == i.addresses.len());
        assert!(parsed, "{found:?}");
    }
}
