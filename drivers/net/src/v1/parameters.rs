//! The opaque parameters of a claim or class, `net.allot.dev/v1alpha1` `InterfaceConfig`: how a device is attached and how
//! the interface is configured in the pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pools::reserved_of_subnet;

#[cfg(test)]
mod tests;

/// API version of the parameters.
pub const API_VERSION: &str = "net.allot.dev/v1alpha1";
/// Kind of the parameters.
pub const KIND: &str = "InterfaceConfig";

/// Maximum number of addresses of an interface: as many as the status of a claim can contain.
pub const ADDRESSES: usize = 16;
/// Maximum number of routes of an interface.
const ROUTES: usize = 32;
/// Maximum number of pools of an interface: one for each IP family.
const POOLS: usize = 2;

/// How a device is attached to the pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Moves the interface itself into the pod.
    #[default]
    HostDevice,
    /// Creates a macvlan interface on top of it, with its own hardware address.
    Macvlan,
    /// Creates an ipvlan interface on top of it, with the same hardware address.
    Ipvlan,
    /// Creates a VLAN interface on top of it.
    Vlan,
}

/// Traffic between macvlan interfaces on one parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacvlanMode {
    /// Interfaces on one parent reach each other directly.
    #[default]
    Bridge,
    /// Interfaces on one parent cannot reach each other.
    Private,
    /// Interfaces on one parent reach each other through the external switch.
    Vepa,
}

/// The layer at which ipvlan forwards packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpvlanMode {
    /// Layer 2, as on a separate network.
    #[default]
    L2,
    /// Layer 3, routed by the parent; no broadcasts.
    L3,
    /// Like `l3`, but packets also pass the node's netfilter hooks.
    L3s,
}

/// A route in the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Destination network; `0.0.0.0/0` and `::/0` are default routes.
    #[serde(with = "super::text")]
    pub destination: IpNet,
    /// Next hop; if absent, the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// Configuration of an interface. [`InterfaceConfig::parse`] is the only way to create one from parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceConfig {
    #[serde(default, skip_serializing)]
    api_version: String,
    #[serde(default, skip_serializing)]
    kind: String,
    /// How the device is attached.
    #[serde(default)]
    pub mode: Mode,
    /// Name in the pod; defaults to the first free one of `net1`, `net2`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// MTU; defaults to that of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Only for the mode `macvlan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macvlan_mode: Option<MacvlanMode>,
    /// Only for the mode `ipvlan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipvlan_mode: Option<IpvlanMode>,
    /// Only for the mode `vlan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
    /// Static addresses with prefix lengths.
    #[serde(
        default,
        with = "super::text::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub addresses: Vec<IpNet>,
    /// SpiderIPPools from which the interface gets addresses, one from each; at most one pool for each IP family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_pools: Vec<String>,
    /// Routes over the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// An error in the parameters of a claim or class.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The parameters do not match the schema.
    #[error("InterfaceConfig: {0}")]
    Decode(#[from] serde_json::Error),
    /// The parameters are an object of another kind.
    #[error("expected apiVersion {API_VERSION:?} and kind {KIND:?}, got {version:?} and {kind:?}")]
    Kind {
        /// The kind found.
        kind: String,
        /// The API version found.
        version: String,
    },
    /// A field has an invalid value.
    #[error("InterfaceConfig: {field}: {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// Why the value is invalid.
        reason: String,
    },
}

fn invalid(field: &'static str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Invalid {
        field,
        reason: reason.into(),
    }
}

impl InterfaceConfig {
    /// Parses and validates parameters. Accepted parameters can be applied, except where that depends on the node.
    ///
    /// # Errors
    /// The parameters are invalid; the error names the field.
    pub fn parse(parameters: &Value) -> Result<Self, ConfigError> {
        let text = |field: &str| parameters[field].as_str().unwrap_or_default().to_owned();
        let (kind, version) = (text("kind"), text("apiVersion"));
        if kind != KIND || version != API_VERSION {
            return Err(ConfigError::Kind { kind, version });
        }
        let mut config = Self::deserialize(parameters)?;
        config.check()?;
        // They are always the same, so they are not stored.
        config.kind.clear();
        config.api_version.clear();
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = &self.interface_name {
            check_name(name).map_err(|reason| invalid("interfaceName", reason))?;
        }
        let only_for = |field, is_set: bool, mode: Mode, name| match is_set && self.mode != mode {
            true => Err(invalid(field, format!("is for the mode {name} only"))),
            false => Ok(()),
        };
        only_for(
            "macvlanMode",
            self.macvlan_mode.is_some(),
            Mode::Macvlan,
            "macvlan",
        )?;
        only_for(
            "ipvlanMode",
            self.ipvlan_mode.is_some(),
            Mode::Ipvlan,
            "ipvlan",
        )?;
        only_for("vlanId", self.vlan_id.is_some(), Mode::Vlan, "vlan")?;
        match (self.mode, self.vlan_id) {
            (Mode::Vlan, None) => return Err(invalid("vlanId", "is required in the mode vlan")),
            (_, Some(0 | 4095..)) => return Err(invalid("vlanId", "must be from 1 to 4094")),
            _ => {}
        }
        self.check_addresses()?;
        let six = self.addresses.iter().any(|it| it.addr().is_ipv6());
        match self.mtu {
            Some(mtu) if !(68..=65_535).contains(&mtu) => {
                return Err(invalid("mtu", "must be from 68 to 65535"));
            }
            Some(mtu) if six && mtu < 1280 => {
                return Err(invalid("mtu", "must be at least 1280 for IPv6"));
            }
            _ => {}
        }
        self.check_routes()
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        if self.addresses.len() + self.ip_pools.len() > ADDRESSES {
            let reason = format!(
                "at most {ADDRESSES}, including those of pools: a claim's status has no more"
            );
            return Err(invalid("addresses", reason));
        }
        let mut seen = BTreeSet::new();
        for network in &self.addresses {
            let address = network.addr();
            if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
                return Err(invalid(
                    "addresses",
                    format!("{address} is no address of an interface"),
                ));
            }
            if let Some(reserved) = reserved_of_subnet(*network, address) {
                let reason = format!("{address} is {reserved} of {}", network.trunc());
                return Err(invalid("addresses", reason));
            }
            if self
                .routes
                .iter()
                .any(|route| route.gateway == Some(address))
            {
                return Err(invalid(
                    "addresses",
                    format!("{address} is the gateway of a route"),
                ));
            }
            if !seen.insert(address) {
                return Err(invalid("addresses", format!("{address} is there twice")));
            }
        }
        if self.ip_pools.len() > POOLS {
            return Err(invalid(
                "ipPools",
                "at most 2: one for IPv4 and one for IPv6",
            ));
        }
        let mut seen = BTreeSet::new();
        for pool in &self.ip_pools {
            let bad = |byte: u8| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            if pool.is_empty() || pool.len() > 253 || pool.bytes().any(bad) {
                return Err(invalid(
                    "ipPools",
                    format!("{pool:?} is no name of an object"),
                ));
            }
            if !seen.insert(pool) {
                return Err(invalid("ipPools", format!("{pool:?} is there twice")));
            }
        }
        Ok(())
    }

    fn check_routes(&self) -> Result<(), ConfigError> {
        if self.routes.len() > ROUTES {
            return Err(invalid("routes", format!("at most {ROUTES}")));
        }
        let mut seen = BTreeSet::new();
        for Route {
            destination,
            gateway,
        } in &self.routes
        {
            if destination.trunc() != *destination {
                let network = destination.trunc();
                return Err(invalid(
                    "routes",
                    format!("{destination} is no network; {network} is"),
                ));
            }
            if gateway.is_some_and(|it| it.is_ipv4() != destination.addr().is_ipv4()) {
                let reason = format!("the gateway to {destination} is of the other family");
                return Err(invalid("routes", reason));
            }
            if gateway.is_some_and(|it| it.is_unspecified() || it.is_multicast()) {
                let reason = format!("the gateway to {destination} is no address");
                return Err(invalid("routes", reason));
            }
            if !seen.insert(destination) {
                return Err(invalid("routes", format!("{destination} is there twice")));
            }
        }
        Ok(())
    }
}

/// Checks that a string is a valid interface name for the kernel and has no special meaning elsewhere.
fn check_name(name: &str) -> Result<(), &'static str> {
    let allowed =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    match name {
        "lo" => Err("lo is the loopback interface"),
        "." | ".." | "all" | "default" => Err("is not the name of an interface"),
        _ if name.is_empty() || name.len() > 15 => Err("must have from 1 to 15 characters"),
        _ if !name.bytes().all(allowed) => Err("must consist of letters, digits, '-', '_' and '.'"),
        _ => Ok(()),
    }
}
