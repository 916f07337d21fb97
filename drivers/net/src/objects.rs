//! Spiderpool's kinds, as far as the driver reads them. The definitions in `manifests/` have all fields.

use std::collections::BTreeMap;
use std::fmt;

use allot_client::discovery::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Group of the kinds.
pub const GROUP: &str = "spiderpool.spidernet.io";
/// Version of the kinds.
pub const VERSION: &str = "v2beta1";

/// SpiderMultusConfig.
pub fn multus_configs() -> ApiResource {
    resource(GROUP, VERSION, "SpiderMultusConfig", "spidermultusconfigs")
}

/// SpiderIPPool.
pub fn ip_pools() -> ApiResource {
    resource(GROUP, VERSION, "SpiderIPPool", "spiderippools")
}

/// SpiderClaimParameter.
pub fn claim_parameters() -> ApiResource {
    resource(
        GROUP,
        VERSION,
        "SpiderClaimParameter",
        "spiderclaimparameters",
    )
}

/// NetworkAttachmentDefinition, which Multus reads.
pub fn attachment_definitions() -> ApiResource {
    let plural = "network-attachment-definitions";
    resource(
        "k8s.cni.cncf.io",
        "v1",
        "NetworkAttachmentDefinition",
        plural,
    )
}

/// How pods are attached to a network.
pub type MultusConfig = Object<MultusConfigSpec, Value>;
/// Addresses for pods.
pub type IpPool = Object<IpPoolSpec, IpPoolStatus>;

/// Namespace and name of a network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl NetworkName {
    /// Reads `name` or `namespace/name`.
    pub fn read(text: &str, namespace: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
        Self {
            namespace: namespace.trim().to_owned(),
            name: name.trim().to_owned(),
        }
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Spec of a SpiderMultusConfig. Only the section of its `cniType` is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MultusConfigSpec {
    /// `macvlan`, `ipvlan`, `vlan`, `sriov`, `ib-sriov`, `ipoib`, `ovs` or `custom`.
    pub cni_type: String,
    /// An interface with its own hardware address on top of a master.
    pub macvlan: Option<Link>,
    /// An interface with the hardware address of its master.
    pub ipvlan: Option<Link>,
    /// A VLAN of a master.
    pub vlan: Option<Link>,
    /// A virtual function.
    pub sriov: Option<Function>,
    /// A virtual function of InfiniBand.
    #[serde(rename = "ibsriov")]
    pub ib_sriov: Option<Function>,
    /// IP over InfiniBand.
    pub ipoib: Option<Ipoib>,
    /// A port of an Open vSwitch bridge.
    pub ovs: Option<Ovs>,
    /// A CNI configuration as it is.
    #[serde(rename = "customCNI")]
    pub custom_cni: Option<String>,
    /// Plugins to run after the one of the network, each as JSON.
    #[serde(rename = "chainCNIJsonData")]
    pub chain: Vec<String>,
    /// The plugin `coordinator` sets up routes; true when absent.
    pub enable_coordinator: Option<bool>,
    /// No addresses are assigned.
    #[serde(rename = "disableIPAM")]
    pub disable_ipam: Option<bool>,
}

/// What an interface on top of others needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// Interfaces of the node; several are bonded.
    pub master: Vec<String>,
    /// VLAN, if not 0.
    #[serde(rename = "vlanID")]
    pub vlan_id: Option<i64>,
    /// Largest packet.
    pub mtu: Option<i64>,
    /// How several masters become one.
    pub bond: Option<Value>,
    /// Pods can use RDMA through it.
    pub enable_rdma: Option<bool>,
    /// Extended resource of the device plugin for RDMA.
    pub rdma_resource_name: Option<String>,
    /// Pools of addresses.
    pub ippools: Option<PoolNames>,
}

/// What a virtual function needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Function {
    /// Extended resource of the device plugin.
    pub resource_name: String,
    /// VLAN, if not 0.
    #[serde(rename = "vlanID")]
    pub vlan_id: Option<i64>,
    /// Largest packet.
    pub mtu: Option<i64>,
    /// Key of the partition, of InfiniBand.
    pub pkey: Option<String>,
    /// State of the link, of InfiniBand.
    pub link_state: Option<String>,
    /// Pools of addresses.
    pub ippools: Option<PoolNames>,
}

/// What IP over InfiniBand needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ipoib {
    /// Interface of the node.
    pub master: String,
    /// Pools of addresses.
    pub ippools: Option<PoolNames>,
}

/// What a port of Open vSwitch needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ovs {
    /// Bridge of the node.
    pub bridge: String,
    /// VLAN.
    pub vlan: Option<i64>,
    /// Pools of addresses.
    pub ippools: Option<PoolNames>,
}

/// Names of pools by family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolNames {
    /// Of IPv4.
    pub ipv4: Vec<String>,
    /// Of IPv6.
    pub ipv6: Vec<String>,
}

impl PoolNames {
    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.ipv4.iter().chain(&self.ipv6).cloned().collect()
    }
}

/// Spec of a SpiderIPPool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolSpec {
    /// The network of the addresses.
    pub subnet: String,
    /// Addresses and ranges.
    pub ips: Vec<String>,
    /// Addresses that are not for pods.
    #[serde(rename = "excludeIPs")]
    pub exclude_ips: Vec<String>,
    /// The router of the subnet.
    pub gateway: Option<String>,
    /// Networks for which the pool is; all when empty.
    pub multus_name: Vec<String>,
    /// Nodes for whose pods the pool is; replaces the affinity.
    pub node_name: Vec<String>,
    /// Nodes for whose pods the pool is.
    pub node_affinity: Option<LabelSelector>,
    /// Namespaces for whose pods the pool is; replaces the affinity.
    pub namespace_name: Vec<String>,
    /// Namespaces for whose pods the pool is.
    pub namespace_affinity: Option<LabelSelector>,
    /// Pods for which the pool is.
    pub pod_affinity: Option<LabelSelector>,
    /// For pods that request no pool.
    pub default: bool,
    /// Gives no more addresses.
    pub disable: bool,
}

/// Status of a SpiderIPPool.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpPoolStatus {
    /// How many addresses pods have.
    #[serde(rename = "allocatedIPCount")]
    pub allocated_ip_count: Option<i64>,
}

/// Spec of a SpiderClaimParameter: the union of what its releases had.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimParameterSpec {
    /// Containers get the library that accelerates RDMA.
    #[serde(alias = "rdma")]
    pub rdma_acc: bool,
    /// All networks of the pod must support RDMA.
    pub enable_rdma: bool,
    /// The pod's first network.
    pub default_nic: Option<Nic>,
    /// Its other networks.
    pub secondary_nics: Vec<Nic>,
    /// The same in an older form.
    pub static_nics: Vec<Nic>,
    /// Pools that addresses must come from.
    pub ippools: Vec<String>,
    /// Resources of device plugins, with amounts.
    #[serde(alias = "resources")]
    pub net_resources: BTreeMap<String, Value>,
}

/// A network, by reference; older releases wrote the name alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nic {
    /// `name` or `namespace/name`.
    Name(String),
    /// Name and namespace apart.
    #[serde(rename_all = "camelCase")]
    Reference {
        /// Name of the SpiderMultusConfig.
        #[serde(alias = "multusConfigName")]
        multus_name: String,
        /// Its namespace; that of the claim when absent.
        #[serde(default)]
        namespace: Option<String>,
    },
}

impl Nic {
    /// The network, for a claim in a namespace.
    pub fn network(&self, claim_namespace: &str) -> NetworkName {
        match self {
            Self::Name(name) => NetworkName::read(name, claim_namespace),
            Self::Reference {
                multus_name,
                namespace,
            } => NetworkName {
                namespace: namespace.clone().unwrap_or(claim_namespace.to_owned()),
                name: multus_name.clone(),
            },
        }
    }
}

impl ClaimParameterSpec {
    /// The networks that it names, the default one first.
    pub fn networks(&self, claim_namespace: &str) -> Vec<NetworkName> {
        let others = self.secondary_nics.iter().chain(&self.static_nics);
        let all = self.default_nic.iter().chain(others);
        all.map(|nic| nic.network(claim_namespace)).collect()
    }
}

impl MultusConfigSpec {
    /// The section of an interface on top of others, if the network is of that type.
    pub fn link(&self) -> Option<&Link> {
        match self.cni_type.as_str() {
            "macvlan" => self.macvlan.as_ref(),
            "ipvlan" => self.ipvlan.as_ref(),
            "vlan" => self.vlan.as_ref(),
            _ => None,
        }
    }

    /// The section of a virtual function, if the network is of that type.
    pub fn function(&self) -> Option<&Function> {
        match self.cni_type.as_str() {
            "sriov" => self.sriov.as_ref(),
            "ib-sriov" => self.ib_sriov.as_ref(),
            _ => None,
        }
    }

    /// Interfaces that a node has to have.
    pub fn masters(&self) -> Vec<&str> {
        let link = self.link().into_iter().flat_map(|l| &l.master);
        let ipoib = self.ipoib.iter().filter(|_| self.cni_type == "ipoib");
        let ovs = self.ovs.iter().filter(|_| self.cni_type == "ovs");
        link.map(String::as_str)
            .chain(ipoib.map(|i| i.master.as_str()))
            .chain(ovs.map(|o| o.bridge.as_str()))
            .collect()
    }

    /// The extended resource that a pod of this network takes.
    pub fn resource(&self) -> Option<&str> {
        let rdma = self.link().and_then(|l| l.rdma_resource_name.as_deref());
        let function = self.function().map(|f| f.resource_name.as_str());
        rdma.or(function).filter(|name| !name.is_empty())
    }

    /// The pools that it names, by family.
    pub fn pools(&self) -> Option<&PoolNames> {
        let link = self.link().and_then(|l| l.ippools.as_ref());
        let function = self.function().and_then(|f| f.ippools.as_ref());
        let ipoib = self.ipoib.as_ref().and_then(|i| i.ippools.as_ref());
        let ovs = self.ovs.as_ref().and_then(|o| o.ippools.as_ref());
        link.or(function).or(ipoib).or(ovs)
    }
}
