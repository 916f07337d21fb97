//! Modelled hardware: which nodes have what, and which component publishes and prepares it.
//!
//! The ResourceSlices of simulated nodes belong to the cluster, not to a driver: no driver publishes them again, so that a
//! device can be made to fail by changing them (`allot hardware fail`), and the node agent prepares the claims. On others a
//! driver for each model does both, which runs in this process, and learns of failures from the Node.

use std::path::PathBuf;
use std::sync::Arc;

use allot_hardware::Fleet;
use allot_node::{HARDWARE, SimulatedSlices};
use anyhow::{Context, ensure};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Args, Driver, Runtime};
use crate::modelled::Modelled;

/// Simulated nodes beyond this number share one agent, and drivers cannot register at them.
const MOST_AGENTS: usize = 64;

/// Default hardware of simulated nodes: the devices of the example driver, without its processes.
const USUAL: &str = "example-gpu";

/// Reads the flags, and sets the number of nodes if the hardware determines it.
pub(super) fn read(args: &mut Args) -> anyhow::Result<Option<Fleet>> {
    if args.hardware.is_empty() {
        let usual = args.runtime == Runtime::Simulated && args.driver.is_none() && !args.no_driver;
        return Ok(match usual {
            true => Some(Fleet::parse(&[USUAL])?),
            false => None,
        });
    }
    let fleet = Fleet::parse(&args.hardware).context("--hardware")?;
    let counted = fleet.counted();
    let most = *crate::bounds::NODES.end();
    ensure!(
        counted <= most,
        "--hardware is for {counted} nodes, {most} are possible"
    );
    // One node is what exists without a flag.
    if args.nodes == 1 {
        args.nodes = counted.max(1);
    }
    ensure!(
        args.nodes >= counted,
        "--hardware is for {counted} nodes, there are {}: pass --nodes {counted}",
        args.nodes
    );
    if args.driver == Some(Driver::Gpu) {
        let models = fleet.models();
        let mut drivers = models.iter().flat_map(|model| model.drivers());
        ensure!(
            !drivers.any(|driver| driver == allot_driver_gpu::DRIVER_NAME),
            "--driver gpu and hardware of {} are two drivers of one name on a node",
            allot_driver_gpu::DRIVER_NAME
        );
    }
    Ok(Some(fleet))
}

/// Whether drivers can register at nodes with this configuration.
pub(super) fn drivers_can_register(args: &Args) -> bool {
    let none = args.no_driver || matches!(args.driver, None | Some(Driver::None));
    !(args.runtime == Runtime::Simulated && none && args.nodes > MOST_AGENTS)
}

/// Adds what a node has to its configuration.
pub(super) fn equip(
    fleet: &Arc<Fleet>,
    number: usize,
    simulated: bool,
    config: &mut allot_node::Config,
) -> anyhow::Result<()> {
    let (labels, capacity) = fleet.node(&config.node_name, number)?;
    config.labels.extend(labels);
    config.capacity.extend(capacity);
    if simulated {
        let (fleet, node) = (Arc::clone(fleet), config.node_name.clone());
        config.slices = Some(SimulatedSlices::new(move |uid| {
            slices(&fleet, &node, number, uid)
        }));
    }
    Ok(())
}

/// The slices of a node, with the label of modelled hardware.
fn slices(fleet: &Fleet, node: &str, number: usize, uid: &str) -> Vec<Value> {
    let name = fleet.name(number);
    // Every model was tried when it was read.
    let expanded = fleet.expand(node, number).unwrap_or_default();
    let labelled = expanded.slices.iter().map(|slice| {
        let mut object = slice.object(Some(uid));
        object["metadata"]["labels"] = json!({HARDWARE: name});
        object
    });
    labelled.collect()
}

/// Creates the classes of the hardware, unless they exist.
pub(super) async fn create_classes(client: &Client, fleet: &Fleet) -> anyhow::Result<()> {
    let api: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &kube::api::ApiResource::erase::<DeviceClass>(&()),
    );
    for class in fleet.models().iter().flat_map(|model| &model.classes) {
        let object = DynamicObject {
            types: Some(kube::core::TypeMeta::resource::<DeviceClass>()),
            metadata: kube::core::ObjectMeta {
                name: Some(class.name.clone()),
                ..Default::default()
            },
            data: json!({"spec": class.spec}),
        };
        super::driver::create_missing(&api, &object)
            .await
            .with_context(|| format!("cannot create the device class {}", class.name))?;
    }
    Ok(())
}

/// The drivers of nodes whose containers are processes.
pub(super) struct Drivers {
    pub(super) client: Client,
    pub(super) fleet: Arc<Fleet>,
    pub(super) nodes: Vec<(String, PathBuf)>,
    /// Where CDI files go; `None`: below the directory of the node.
    pub(super) cdi_dir: Option<PathBuf>,
    /// Set as each node can be reached.
    pub(super) registered: Vec<Arc<tokio::sync::SetOnce<()>>>,
}

impl Drivers {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let nodes = self.nodes.iter().zip(&self.registered).enumerate();
        for (number, ((node, root), registered)) in nodes {
            // The agent removes slices of earlier drivers before it registers.
            loop {
                tokio::select! {
                    _ = registered.wait() => break,
                    () = stop.cancelled() => break,
                    Some(joined) = tasks.join_next() => joined??,
                }
            }
            if stop.is_cancelled() {
                break;
            }
            let Some((models, index)) = self.fleet.of(number) else {
                continue;
            };
            for model in models {
                for driver in model.drivers() {
                    let what = Modelled::new(model, driver, node, index)?;
                    let (client, stop) = (self.client.clone(), stop.clone());
                    let (node, root): (String, PathBuf) = (node.clone(), root.clone());
                    let cdi = self.cdi_dir.clone().unwrap_or_else(|| root.join("cdi"));
                    tasks.spawn(async move { what.run(client, &node, &root, &cdi, stop).await });
                }
            }
        }
        while let Some(joined) = tasks.join_next().await {
            joined??;
        }
        stop.cancelled().await;
        Ok(())
    }
}

/// How many nodes have hardware.
pub(super) fn equipped(fleet: &Fleet, nodes: usize) -> usize {
    (0..nodes)
        .filter(|number| fleet.of(*number).is_some())
        .count()
}
