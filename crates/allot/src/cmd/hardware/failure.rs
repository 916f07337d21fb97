//! `allot hardware fail` and `restore`.
//!
//! A driver that publishes a device writes its slice again after every change. The failures of its devices are in an
//! annotation of the Node, which drivers of modelled devices heed. No driver publishes the devices of simulated nodes: their
//! failures are in the slices.

use std::io::{Write as _, stdout};

use allot_driver::{HEEDS_INJECTED_FAILURES, InjectedFailure, InjectedFailures};
use allot_node::{HARDWARE, REGISTERED_DRIVERS};
use allot_reflector::everything;
use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use self::slice::{back, changed, place, set_taint, set_unhealthy, unplug};
use crate::cmd::access::Access;
use crate::cmd::{component, count};

mod node;
mod slice;

/// How often a write is retried after a conflict.
const TRIES: usize = 20;

/// Flags of `allot hardware fail`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a flag the device is unhealthy and gets a NoExecute taint, as from a driver that notices
a failure: pods that use it are evicted.

  allot hardware fail node-3 gpu-2
  allot hardware fail node-3 gpu-2 --taint NoSchedule
  allot hardware fail node-3 gpu-2 --unplug
  allot hardware restore node-3")]
pub(super) struct Fail {
    #[command(flatten)]
    target: Target,
    /// Name of the device
    device: String,
    /// Give it a taint
    #[arg(long, value_enum, value_name = "EFFECT")]
    taint: Option<Effect>,
    /// Remove it from its ResourceSlice
    #[arg(long, conflicts_with_all = ["taint", "unhealthy"])]
    unplug: bool,
    /// Show it as unhealthy in the status of pods that use it
    #[arg(long)]
    unhealthy: bool,
    /// Message for the status
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "failed by allot hardware fail"
    )]
    message: String,
}

/// Flags of `allot hardware restore`.
#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    #[command(flatten)]
    target: Target,
    /// Name of the device; every failed device of the node when absent
    device: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Target {
    /// Name of the node
    node: String,
    /// Driver of the device, if several have one of that name
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Effect {
    /// No further pod gets it
    #[value(name = "NoSchedule")]
    NoSchedule,
    /// Pods that use it are evicted as well
    #[value(name = "NoExecute")]
    NoExecute,
    /// For information
    #[value(name = "None")]
    None,
}

impl Effect {
    fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
            Self::None => "None",
        }
    }
}

/// Makes a device fail.
pub(super) fn fail(args: Fail) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let slices = Slices::new(&args.target).await?;
        let usual = args.taint.is_none() && !args.unplug && !args.unhealthy;
        let taint = args.taint.or(usual.then_some(Effect::NoExecute));
        let unhealthy = args.unhealthy || usual;
        let found = slices.find(&args.target, &args.device).await?;
        let node = &args.target.node;
        if found.heeds {
            let wrong = InjectedFailure {
                taint: taint.map(|effect| effect.name().to_owned()),
                unhealthy: unhealthy.then(|| args.message.clone()),
                unplugged: args.unplug,
            };
            let add =
                |all: &mut InjectedFailures| node::add(all, &found.driver, &args.device, &wrong);
            node::note(&slices.nodes, node, add).await?;
        } else {
            let change = |slice: &mut Value| {
                let at = place(slice, &args.device)
                    .with_context(|| format!("device {} is not there any more", args.device))?;
                if args.unplug {
                    return unplug(slice, at);
                }
                if let Some(effect) = taint {
                    set_taint(slice, at, Some(effect.name()));
                }
                if unhealthy {
                    set_unhealthy(slice, &args.device, Some(&args.message))?;
                }
                Ok(true)
            };
            slices.change(&found.slice, change).await?;
        }
        let driver = found.driver;
        let what = match (args.unplug, taint) {
            (true, _) => "unplugged".to_owned(),
            (_, Some(effect)) if unhealthy => {
                format!("unhealthy, with a taint {}", effect.name())
            }
            (_, Some(effect)) => format!("tainted {}", effect.name()),
            _ => "unhealthy".to_owned(),
        };
        writeln!(stdout(), "{} of {driver} on {node} is {what}", args.device)?;
        Ok(())
    })
}

/// Removes failures.
pub(super) fn restore(args: Restore) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let slices = Slices::new(&args.target).await?;
        let (target, device) = (&args.target, args.device.as_deref());
        let mut restored = Vec::new();
        let driver = target.driver.as_deref();
        let remove = |all: &mut InjectedFailures| restored = node::remove(all, driver, device);
        node::change(&slices.nodes, &target.node, remove).await?;
        let published = slices.of_node(target).await?;
        for slice in published.iter().filter(|slice| !heeds(slice)) {
            let mut here = Vec::new();
            slices
                .change(&slice.name_any(), |slice| {
                    here = back(slice, device)?;
                    Ok(!here.is_empty())
                })
                .await?;
            restored.extend(here);
        }
        if let Some(device) = device {
            let node = &target.node;
            ensure!(!restored.is_empty(), "{device} has not failed on {node}");
        }
        writeln!(stdout(), "{} restored", count(restored.len(), "device"))?;
        Ok(())
    })
}

/// A device of a node.
struct Found {
    /// Name of its slice.
    slice: String,
    driver: String,
    /// Its driver heeds failures in the annotation of the Node.
    heeds: bool,
}

fn heeds(slice: &DynamicObject) -> bool {
    slice.labels().contains_key(HEEDS_INJECTED_FAILURES)
}

/// The ResourceSlices of a cluster, as JSON: unknown fields must not be lost.
struct Slices {
    api: Api<DynamicObject>,
    nodes: Api<Node>,
}

impl Slices {
    async fn new(target: &Target) -> anyhow::Result<Self> {
        let client: Client = target.access.client("allot-hardware").await?;
        let kind = ApiResource::erase::<ResourceSlice>(&());
        Ok(Self {
            api: Api::all_with(client.clone(), &kind),
            nodes: Api::all(client),
        })
    }

    async fn of_node(&self, target: &Target) -> anyhow::Result<Vec<DynamicObject>> {
        let mut fields = format!("spec.nodeName={}", target.node);
        if let Some(driver) = &target.driver {
            fields.push_str(&format!(",spec.driver={driver}"));
        }
        let params = ListParams::default().fields(&fields);
        let list = allot_reflector::list(&self.api, &params, everything).await;
        list.context("cannot list ResourceSlices")
    }

    /// The only slice with a device.
    async fn find(&self, target: &Target, device: &str) -> anyhow::Result<Found> {
        let node = &target.node;
        let slices = self.of_node(target).await?;
        let with: Vec<_> = slices
            .iter()
            .filter(|slice| place(&slice.data, device).is_some())
            .collect();
        let driver = |slice: &DynamicObject| {
            slice.data["spec"]["driver"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        match with.as_slice() {
            [slice] => {
                let found = Found {
                    slice: slice.name_any(),
                    driver: driver(slice),
                    heeds: heeds(slice),
                };
                if !found.heeds && !slice.labels().contains_key(HARDWARE) {
                    self.refuse_real(node, &found.driver).await?;
                }
                Ok(found)
            }
            [] if slices.is_empty() => {
                bail!("node {node} has no devices; `allot devices` lists those of all nodes")
            }
            [] => bail!(
                "node {node} has no device {device}; `allot devices --node {node}` lists them"
            ),
            several => {
                let drivers: Vec<_> = several.iter().map(|slice| driver(slice)).collect();
                bail!(
                    "{device} is a device of {}: pass --driver",
                    drivers.join(" and of ")
                )
            }
        }
    }

    /// A driver that is connected would write its slices again.
    async fn refuse_real(&self, node: &str, driver: &str) -> anyhow::Result<()> {
        let node = self.nodes.get_metadata_opt(node).await?;
        let drivers = node.and_then(|node| node.annotations().get(REGISTERED_DRIVERS).cloned());
        let drivers = drivers.unwrap_or_default();
        ensure!(
            !drivers.split(',').any(|known| known == driver),
            "{driver} publishes this device and would undo the change; a DeviceTaintRule can taint it"
        );
        Ok(())
    }

    /// Changes a slice, unless the function reports no change.
    async fn change(
        &self,
        name: &str,
        mut change: impl FnMut(&mut Value) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        for _ in 0..TRIES {
            let slice = self
                .api
                .get(name)
                .await
                .context("cannot read the ResourceSlice")?;
            let mut object = serde_json::to_value(&slice)?;
            let before = object.clone();
            if !change(&mut object)? || object == before {
                return Ok(());
            }
            // Lists are replaced completely, with the version that they come from.
            let patch = json!({
                "metadata": {
                    "resourceVersion": before["metadata"]["resourceVersion"],
                    "labels": changed(&before["metadata"]["labels"], &object["metadata"]["labels"]),
                    "annotations": changed(&before["metadata"]["annotations"], &object["metadata"]["annotations"]),
                },
                "spec": {"devices": object["spec"]["devices"]},
            });
            let params = PatchParams::default();
            match self.api.patch(name, &params, &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                result => return result.map(drop).context("cannot change the ResourceSlice"),
            }
        }
        bail!("the ResourceSlice {name} changes all the time")
    }
}
