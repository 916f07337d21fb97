//! The part that runs on every node: turns allocations into CDI files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_cdi::{ContainerEdits, Device, Spec};
use allot_driver::classic::{Handle, Instance, NodeDriver, NodePlugin, StructuredHandle};
use allot_driver::{ClaimRef, Error, Failure};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::Operations;
use crate::{Variables, parameters, variables};

/// How to run the plugin.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the driver.
    pub driver_name: String,
    /// The node; checked against allocations if known.
    pub node_name: String,
    /// The kubelet's directory for registration sockets.
    pub registrar_dir: PathBuf,
    /// Where the plugin listens.
    pub endpoint: PathBuf,
    /// Where the kubelet finds it, if that is another path.
    pub dra_address: Option<PathBuf>,
    /// Where CDI files go.
    pub cdi_dir: PathBuf,
    /// How many instances `instance-00`, `instance-01`, … the scheduler may allocate (structured parameters of 1.30).
    pub instances: usize,
    /// Counts what the kubelet asks for.
    pub operations: Arc<Operations>,
}

impl Config {
    /// A plugin with everything below the kubelet's root directory, without instances.
    pub fn new(driver_name: &str, node_name: &str, kubelet_dir: &Path) -> Self {
        Self {
            driver_name: driver_name.to_owned(),
            node_name: node_name.to_owned(),
            registrar_dir: kubelet_dir.join("plugins_registry"),
            endpoint: kubelet_dir
                .join("plugins")
                .join(driver_name)
                .join("dra.sock"),
            dra_address: None,
            cdi_dir: kubelet_dir.join("cdi"),
            instances: 0,
            operations: Arc::default(),
        }
    }
}

/// Runs the plugin until `shutdown`.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let mut plugin = NodePlugin::new(&config.driver_name, Environment::new(&config), "")
        .registrar_dir(&config.registrar_dir)
        .socket(&config.endpoint);
    if let Some(address) = &config.dra_address {
        plugin = plugin.address(address);
    }
    plugin.run(shutdown).await
}

pub(crate) struct Environment {
    driver_name: String,
    node_name: String,
    cdi_dir: PathBuf,
    /// `None` without instances: this driver's controller allocates.
    instances: Option<watch::Sender<Vec<Instance>>>,
    /// Instances in use, by UID of the claim.
    in_use: Mutex<HashMap<String, Vec<String>>>,
    operations: Arc<Operations>,
}

impl Environment {
    pub(crate) fn new(config: &Config) -> Self {
        let instance = |number: usize| Instance {
            name: format!("instance-{number:02}"),
            attributes: Vec::new(),
        };
        let instances: Vec<_> = (0..config.instances).map(instance).collect();
        Self {
            driver_name: config.driver_name.clone(),
            node_name: config.node_name.clone(),
            cdi_dir: config.cdi_dir.clone(),
            instances: (!instances.is_empty()).then(|| watch::channel(instances).0),
            in_use: Mutex::default(),
            operations: Arc::clone(&config.operations),
        }
    }

    fn file(&self, claim: &ClaimRef) -> PathBuf {
        let Self {
            cdi_dir,
            driver_name,
            ..
        } = self;
        cdi_dir.join(format!("{driver_name}-{}.json", claim.uid))
    }

    /// What an allocation of this driver's controller means.
    fn opaque(&self, data: &str) -> Result<Variables, Failure> {
        let handle: crate::Handle = serde_json::from_str(data)
            .map_err(|error| format!("unmarshal resource handle: {error}"))?;
        self.check_node(&handle.node_name)?;
        Ok(handle.env_vars)
    }

    /// What an allocation of the scheduler means.
    fn structured(
        &self,
        claim: &ClaimRef,
        handle: &StructuredHandle,
    ) -> Result<Variables, Failure> {
        self.check_node(&handle.node_name)?;
        let mut env = variables("admin", &parameters::flat(&handle.vendor_class_parameters));
        env.extend(variables(
            "user",
            &parameters::flat(&handle.vendor_claim_parameters),
        ));
        let known = self
            .instances
            .as_ref()
            .map(|known| known.borrow().clone())
            .unwrap_or_default();
        let mut in_use = self.in_use.lock();
        let mut taken: Vec<String> = Vec::new();
        for result in &handle.results {
            let name = result
                .named_resources
                .as_ref()
                .map_or("", |named| &named.name);
            if !known.iter().any(|instance| instance.name == name) {
                return Err(format!("unknown allocated instance {name:?}").into());
            }
            let others = in_use.iter().filter(|(uid, _)| **uid != claim.uid);
            let mut all = others.flat_map(|(_, names)| names).chain(&taken);
            if all.any(|other| other == name) {
                return Err(format!("resource instance {name:?} used more than once").into());
            }
            taken.push(name.to_owned());
            let own = parameters::flat(&result.vendor_request_parameters);
            env.extend(variables("user", &own));
        }
        in_use.insert(claim.uid.clone(), taken);
        Ok(env)
    }

    fn check_node(&self, node: &str) -> Result<(), Failure> {
        if node.is_empty() || self.node_name.is_empty() || node == self.node_name {
            return Ok(());
        }
        let here = &self.node_name;
        Err(format!("claim was allocated for {node:?}, cannot be prepared on {here:?}").into())
    }
}

impl NodeDriver for Environment {
    async fn prepare(&self, claim: &ClaimRef, handle: &Handle) -> Result<Vec<String>, Failure> {
        self.operations.count("prepare", self.set_up(claim, handle))
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Failure> {
        self.operations.count("unprepare", self.give_back(claim))
    }

    fn resources(&self) -> Option<watch::Receiver<Vec<Instance>>> {
        self.instances.as_ref().map(watch::Sender::subscribe)
    }
}

impl Environment {
    fn set_up(&self, claim: &ClaimRef, handle: &Handle) -> Result<Vec<String>, Failure> {
        let env = match handle {
            Handle::Opaque(data) => self.opaque(data)?,
            Handle::Structured(handle) => self.structured(claim, handle)?,
        };
        let env = env.iter().map(|(name, value)| format!("{name}={value}"));
        let edits = ContainerEdits {
            env: env.collect(),
            ..ContainerEdits::default()
        };
        let (kind, name) = (
            format!("{}/test", self.driver_name),
            format!("claim-{}", claim.uid),
        );
        let id = format!("{kind}={name}");
        let device = Device {
            name,
            edits,
            ..Device::default()
        };
        Spec::new(&kind, vec![device]).write(&self.file(claim))?;
        tracing::info!(%claim, device = id, "prepared");
        Ok(vec![id])
    }

    fn give_back(&self, claim: &ClaimRef) -> Result<(), Failure> {
        allot_cdi::file::remove(&self.file(claim))?;
        self.in_use.lock().remove(&claim.uid);
        tracing::info!(%claim, "given back");
        Ok(())
    }
}
