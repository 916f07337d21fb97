//! The network of a cluster's pods, and the socket for plugins that adjust it and their containers.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use allot_node::{Bridge, BridgeError, Config, NetworkSettings, Ranges};
use anyhow::Context as _;
use ipnet::IpNet;

use super::Runtime;
use crate::bounds;

/// Which network pods have that do not ask for the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PodNetwork {
    /// That of the host
    Host,
    /// Addresses of their own on a bridge that the cluster creates; needs root and the CNI plugins bridge and host-local
    Bridge,
    /// What the first configuration in --cni-conf-dir says; needs root
    Cni,
}

/// Flags about it.
#[derive(Debug, clap::Args)]
#[group(id = "pod-network")]
pub struct Args {
    /// Which network pods have that do not ask for the host's
    #[arg(long, value_enum, value_name = "NETWORK", default_value_t = PodNetwork::Host)]
    pub pod_network: PodNetwork,
    /// Network of the pods with --pod-network bridge, and an IPv6 one besides for addresses of both families; a free one of IPv4 when
    /// absent
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// Length of the prefix of a node's part of the IPv4 network
    #[arg(long, value_name = "BITS", default_value_t = 24)]
    pub node_cidr_mask_size_ipv4: u8,
    /// Length of the prefix of a node's part of the IPv6 network
    #[arg(long, value_name = "BITS", default_value_t = 64)]
    pub node_cidr_mask_size_ipv6: u8,
    /// Directory of CNI configurations, of which the first counts, with --pod-network cni
    #[arg(long, value_name = "DIR", default_value = allot_node::CNI_CONF_DIR)]
    pub cni_conf_dir: PathBuf,
    /// Directories of CNI plugins; the first that has a plugin counts
    #[arg(long, value_name = "DIR", value_delimiter = ',', default_values = allot_node::CNI_BIN_DIRS)]
    pub cni_bin_dir: Vec<PathBuf>,
    /// Address of the nodes, and of their pods that share the host's network; when absent that of --listen. With a loopback address,
    /// such as by default, services have no endpoints among such pods
    #[arg(long, value_name = "IP", value_parser = bounds::node_ip)]
    pub node_ip: Option<IpAddr>,
    /// Socket for NRI plugins, usually /var/run/nri/nri.sock: programs on the node that adjust containers, and are as powerful
    /// as root. For one node; needs root; not with --runtime cri or simulated
    #[arg(long, value_name = "PATH")]
    pub nri_socket: Option<PathBuf>,
}

/// How pods are connected.
#[derive(Debug)]
pub(super) struct PodNetworks {
    settings: NetworkSettings,
    nri_socket: Option<PathBuf>,
    node_ip: IpAddr,
    bridge: Option<Bridge>,
    /// The cluster cannot be started again: its bridge ends with it, also if it fails to start.
    temporary: bool,
}

impl Drop for PodNetworks {
    fn drop(&mut self) {
        self.remove_if(self.temporary);
    }
}

impl PodNetworks {
    /// The network from the flags. A bridge exists from now on.
    ///
    /// # Errors
    /// It is not possible with the other flags, or plugins are missing. Without root pods share the network of the host.
    pub(super) async fn open(
        args: &super::Args,
        directory: &Path,
        temporary: bool,
    ) -> anyhow::Result<Self> {
        let listen = args.apiserver.listen;
        let (nodes, runtime, args) = (args.nodes, args.runtime, &args.network);
        let wanted = args.pod_network;
        if args.nri_socket.is_some() {
            allot_node::check_nri(runtime.into(), nodes)?;
        }
        anyhow::ensure!(
            wanted == PodNetwork::Host || runtime != Runtime::Cri,
            "--pod-network is not possible with --runtime cri: the container runtime connects pods by itself"
        );
        anyhow::ensure!(
            wanted == PodNetwork::Bridge || args.cluster_cidr.is_empty(),
            "--cluster-cidr needs --pod-network bridge"
        );
        let masks = (args.node_cidr_mask_size_ipv4, args.node_cidr_mask_size_ipv6);
        let ranges = Ranges::new(&args.cluster_cidr, masks).context("--cluster-cidr")?;
        let mut settings = NetworkSettings {
            conf_dir: args.cni_conf_dir.clone(),
            bin_dirs: args.cni_bin_dir.clone(),
            ..NetworkSettings::default()
        };
        let mut bridge = None;
        match wanted {
            PodNetwork::Host => {}
            PodNetwork::Cni => settings.mode = allot_node::PodNetwork::Cni,
            PodNetwork::Bridge if runtime == Runtime::Simulated => {}
            PodNetwork::Bridge => {
                let dirs = settings.bin_dirs.clone();
                match Bridge::open(directory, dirs, nodes, &ranges).await {
                    Ok(opened) => bridge = Some(opened),
                    Err(error @ BridgeError::Permission) => {
                        settings.unavailable = Some(error.to_string());
                    }
                    Err(error) => {
                        return Err(anyhow::Error::new(error).context("--pod-network bridge"));
                    }
                }
            }
        }
        Ok(Self {
            settings,
            nri_socket: args.nri_socket.clone(),
            node_ip: crate::machine::addresses(args.node_ip, Some(listen)).0,
            bridge,
            temporary,
        })
    }

    /// The host's address in the network of the pods, if it is known.
    pub(super) fn gateway(&self) -> Option<IpAddr> {
        self.bridge.as_ref().map(|it| it.gateway().into())
    }

    /// Configures a node, by its number. `server` is where the API server is reached on this machine.
    ///
    /// # Errors
    /// Files cannot be written.
    pub(super) fn equip(
        &self,
        number: usize,
        server: SocketAddr,
        config: &mut Config,
    ) -> anyhow::Result<()> {
        config.network = self.settings.clone();
        config.nri_socket.clone_from(&self.nri_socket);
        config.address = self.node_ip;
        config.listen = config.listen.map(|_| SocketAddr::new(self.node_ip, 0));
        let host = self.gateway().unwrap_or(server.ip());
        config.api_server = Some(SocketAddr::new(host, server.port()));
        if let Some(bridge) = &self.bridge {
            bridge.equip(number, config)?;
        }
        Ok(())
    }

    /// Removes the bridge if this was the `last` run of the cluster.
    pub(super) fn remove_if(&self, last: bool) {
        if let Some(bridge) = self.bridge.as_ref().filter(|_| last)
            && let Err(error) = bridge.remove()
        {
            tracing::warn!(%error, "the bridge of the pods was not removed");
        }
    }
}
