//! Starting a cluster: flags are checked before anything is opened, then the components start one after the other.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::admission::plugins::Plugin;
use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::pki::Authority;
use allot_controllers::{Config as Controllers, Controller};
use allot_hardware::Fleet;
use allot_images::Registries;
use allot_node::{Config as Node, RuntimeKind};
use anyhow::{bail, ensure};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::network::PodNetworks;
use super::progress::Progress;
use super::{
    Args, Cluster, ClusterDirectory, Driver, Runtime, Threads, children, driver, hardware, kinds,
};
use crate::apiserver::{self, Running};
use crate::component::read_scheduler_config;

/// Longest path of a Unix socket that Linux takes, with its final NUL.
const SOCKET_PATH_MAX: usize = 108;

/// The longest socket path below a node's directory.
const LONGEST_SOCKET: &str = "plugins_registry/gpu.example.com-reg.sock";

/// What nodes have to know of the API server.
struct ServerAccess {
    /// Signs the certificates of clients that a node's own server admits.
    authority: Authority,
    /// Where the server is reached on this machine.
    address: SocketAddr,
}

/// Name and directory of a node.
type NodeDirectory = (String, PathBuf);

impl Cluster {
    /// Starts everything and returns as soon as the API server answers; [`Cluster::ready`] waits for the rest.
    pub async fn start(args: Args) -> anyhow::Result<Self> {
        Self::start_at(ClusterDirectory::of(&args)?, args, Progress::default()).await
    }

    /// The same at a place that was chosen before.
    pub async fn start_at(
        place: ClusterDirectory,
        mut args: Args,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let hardware = hardware::read(&mut args)?;
        progress.step("starting: the API server");
        let nodes = node_directories(&place.directory, args.nodes)?;
        args.apiserver.data_dir = Some(place.directory.clone());
        check_flags(&mut args, hardware.is_some()).await?;
        let registries = args.registries.as_deref().map(Registries::read);
        let registries = registries.transpose()?.unwrap_or_default();
        let controllers = select_controllers(&mut args)?;
        let features = args.apiserver.features()?;
        args.apiserver.serve_kinds_of(&features);
        let scheduling = read_scheduler_config(args.scheduler_config.as_deref(), features.clone())?;

        let (mut cluster, server) = Self::start_server(place, &mut args, progress).await?;
        let client = client_of(&cluster.server, "system:kube-scheduler", "allot-scheduler");
        cluster.spawn("scheduler", |stop| {
            allot_scheduler::run(client, scheduling, stop)
        });
        let client = client_of(
            &cluster.server,
            "system:kube-controller-manager",
            "allot-controllers",
        );
        let config = Controllers {
            features,
            root_ca: Some(server.authority.certificate().to_owned()),
            ..controllers
        };
        cluster.spawn("controllers", |stop| {
            allot_controllers::run(client, config, stop)
        });
        let (driver, hardware) = driver::choose(&cluster.client, &args, hardware).await?;
        if !nodes.is_empty() {
            let hardware = hardware.map(Arc::new);
            cluster.start_nodes(&args, &nodes, &server, &registries, hardware)?;
        }
        cluster.driver = driver;
        cluster.start_driver(&args, nodes);
        Ok(cluster)
    }

    /// Starts the API server in its directory, and returns the cluster that has only this component.
    async fn start_server(
        place: ClusterDirectory,
        args: &mut Args,
        progress: Progress,
    ) -> anyhow::Result<(Self, ServerAccess)> {
        let ClusterDirectory { directory, scratch } = place;
        // A cluster that cannot be started again must leave no containers behind.
        let ephemeral = scratch.is_some();
        // Another cluster may run there, whose kubeconfig would be replaced.
        let lock = (args.apiserver.in_memory && !ephemeral)
            .then(|| allot_store::DirectoryLock::take(&directory))
            .transpose()?;
        let network = PodNetworks::open(args, &directory, ephemeral).await?;
        args.apiserver.pod_gateway = network.gateway();
        let stop_api = CancellationToken::new();
        let Running {
            url,
            address,
            reached,
            kubeconfig,
            server,
            authority,
            task: api,
        } = apiserver::start(&args.apiserver, stop_api.clone()).await?;
        server.check_policy_types();
        let cluster = Self {
            url,
            kubeconfig,
            client: client_of(&server, "kubernetes-admin", "allot"),
            server,
            reached,
            // Nodes that share an agent are ready as soon as they are registered.
            nodes: match hardware::drivers_can_register(args) {
                true => args.nodes,
                false => 0,
            },
            accounts_are_made: args.apiserver.accounts_are_made,
            registered: Vec::new(),
            driver: None,
            published: 0,
            threads: Threads::new()?,
            components: JoinSet::new(),
            alive: Arc::default(),
            stop_components: CancellationToken::new(),
            api,
            stop_api,
            progress,
            directory,
            scratch,
            network,
            _lock: lock,
        };
        Ok((cluster, ServerAccess { authority, address }))
    }

    /// Starts the agents of all nodes, and the drivers of modelled hardware.
    fn start_nodes(
        &mut self,
        args: &Args,
        nodes: &[NodeDirectory],
        server: &ServerAccess,
        registries: &Registries,
        hardware: Option<Arc<Fleet>>,
    ) -> anyhow::Result<()> {
        let simulated = args.runtime == Runtime::Simulated;
        let plugins = hardware::drivers_can_register(args);
        let mut fleet = Vec::with_capacity(nodes.len());
        for (number, (name, root)) in nodes.iter().enumerate() {
            let mut config = node_config(name, root, args.runtime.into(), &server.authority)?;
            config.cri_endpoint.clone_from(&args.cri_endpoint);
            config.cdi_dirs.clone_from(&args.cdi_dir);
            self.network.equip(number, server.address, &mut config)?;
            config.ephemeral = self.scratch.is_some();
            config.images.mode = args.images;
            config.images.registries = registries.clone();
            config.plugins = plugins;
            if let Some(hardware) = &hardware {
                hardware::equip(hardware, number, simulated, &mut config)?;
            }
            fleet.push(config);
        }
        self.registered = fleet.iter().map(|node| node.registered.clone()).collect();
        let client = client_of(&self.server, "system:nodes", "allot-node");
        self.spawn("nodes", |stop| allot_node::run_fleet(client, fleet, stop));
        if let Some(hardware) = hardware.filter(|_| !simulated) {
            self.published = hardware::equipped(&hardware, args.nodes);
            let drivers = hardware::Drivers {
                client: client_of(&self.server, "system:nodes", "allot-driver"),
                fleet: hardware,
                nodes: nodes.to_vec(),
                cdi_dir: cdi_dir(args),
                registered: self.registered.clone(),
            };
            self.spawn("hardware", |stop| drivers.run(stop));
        }
        Ok(())
    }

    /// Starts the processes of the driver, one for each node.
    fn start_driver(&mut self, args: &Args, nodes: Vec<NodeDirectory>) {
        let Some(driver) = self.driver.clone() else {
            return;
        };
        let children = children::Drivers::new(driver, &self.kubeconfig, nodes, cdi_dir(args));
        self.spawn("driver", |stop| children.run(stop));
    }
}

/// A client in this process, with every right, as the given user and user agent.
fn client_of(server: &Server, user: &str, agent: &'static str) -> Client {
    let service = server.client_service(User::new(user, [MASTERS]));
    Client::new(service.with_agent(agent), "default")
}

/// Where drivers write CDI files, if that is not below the directory of their node.
fn cdi_dir(args: &Args) -> Option<PathBuf> {
    let mut node = Node::new("", "/");
    node.runtime = args.runtime.into();
    node.cdi_dirs.clone_from(&args.cdi_dir);
    let own = args.runtime != Runtime::Cri && args.cdi_dir.is_empty();
    node.cdi_dirs().pop().filter(|_| !own)
}

/// Refuses flags that exclude each other, and adds what `--dra` stands for.
async fn check_flags(args: &mut Args, has_hardware: bool) -> anyhow::Result<()> {
    driver::check_flags(args, has_hardware)?;
    ensure!(
        args.nodes <= 1 || args.cdi_dir.is_empty(),
        "--cdi-dir is for one node: drivers remove files that are not of their own node"
    );
    for directory in &mut args.cdi_dir {
        *directory = std::path::absolute(&*directory)?;
    }
    if args.runtime == Runtime::Cri {
        ensure!(
            args.nodes <= 1,
            "--runtime cri is for one node: a container runtime has one set of CDI files"
        );
        ensure!(
            args.hardware.is_empty(),
            "--hardware is not possible with --runtime cri: start `allot driver model` beside it"
        );
        kinds::runtime_listens(&args.cri_endpoint).await?;
    }
    if args.dra {
        let classic = matches!(args.driver, Some(Driver::Test | Driver::Net));
        args.apiserver.switch_on_dra(classic)?;
    }
    Ok(())
}

/// The controllers that `--controllers` names. The API server is told not to expect accounts and finalizers that no
/// selected controller handles.
fn select_controllers(args: &mut Args) -> anyhow::Result<Controllers> {
    let selected = Controllers::embedded().select(&args.controllers)?;
    let runs = |controller| selected.controllers.contains(&controller);
    args.apiserver.accounts_are_made = runs(Controller::ServiceAccount);
    let protection = [
        Controller::ClaimProtection,
        Controller::VolumeProtection,
        Controller::ClassProtection,
    ];
    if !protection.into_iter().all(runs) {
        args.apiserver
            .leave_unprotected(Plugin::StorageObjectInUseProtection);
    }
    if !runs(Controller::PodGroupProtection) {
        args.apiserver.leave_unprotected(Plugin::PodGroupProtection);
    }
    Ok(selected)
}

/// Name and directory of every node.
fn node_directories(directory: &Path, count: usize) -> anyhow::Result<Vec<NodeDirectory>> {
    let nodes: Vec<_> = (0..count)
        .map(|index| {
            let name = format!("node-{index}");
            let root = directory.join("nodes").join(&name);
            (name, root)
        })
        .collect();
    if let Some((_, root)) = nodes.last() {
        let length = root.join(LONGEST_SOCKET).as_os_str().len() + 1;
        if length > SOCKET_PATH_MAX {
            bail!(
                "the data directory {} is too deep: Unix sockets below it would have a path of {length} bytes, \
                 {SOCKET_PATH_MAX} are possible; choose a shorter --data-dir",
                directory.display()
            );
        }
    }
    Ok(nodes)
}

fn node_config(
    name: &str,
    root: &Path,
    runtime: RuntimeKind,
    authority: &Authority,
) -> anyhow::Result<Node> {
    let shim: Vec<OsString> = vec![std::env::current_exe()?.into(), "node-shim".into()];
    let mut config = Node::new(name, root);
    config.runtime = runtime;
    config.shim = shim;
    config.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.tls.client_ca_pem = Some(authority.certificate().as_bytes().to_vec());
    Ok(config)
}

#[cfg(test)]
mod tests;
