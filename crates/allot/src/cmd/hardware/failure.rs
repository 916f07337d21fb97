//! `allot hardware fail` and `restore`.
//!
//! Failures are written into the ResourceSlice of the device: no driver publishes the slices of modelled hardware
//! again. The slice records devices that were unplugged, so that they can be plugged in again.

use std::collections::BTreeMap;
use std::io::{Write as _, stdout};

use allot_node::{HARDWARE, REGISTERED_DRIVERS, UNHEALTHY};
use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::cmd::access::Access;
use crate::cmd::{component, count};

/// Key of the taint on failed devices.
const TAINT: &str = "allot.dev/hardware-failed";
/// Annotation of a slice: the devices that were unplugged, as a JSON list with the place and the object of each.
const UNPLUGGED: &str = "allot.dev/unplugged";
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
        let (name, device) = slices.find(&args.target, &args.device).await?;
        slices
            .change(&name, |slice| {
                let at = place(slice, &args.device)
                    .with_context(|| format!("device {} is not there any more", args.device))?;
                if args.unplug {
                    return unplug(slice, at);
                }
                if let Some(effect) = taint {
                    set_taint(slice, at, Some(effect));
                }
                if args.unhealthy || usual {
                    set_unhealthy(slice, &args.device, Some(&args.message))?;
                }
                Ok(true)
            })
            .await?;
        let driver = device;
        let node = &args.target.node;
        let what = match (args.unplug, taint) {
            (true, _) => "unplugged".to_owned(),
            (_, Some(effect)) if args.unhealthy || usual => {
                format!("unhealthy, with a taint {}", effect.name())
            }
            (_, Some(effect)) => format!("tainted {}", effect.name()),
            _ => "unhealthy".to_owned(),
        };
        writeln!(stdout(), "{} of {driver} on {node} is {what}", args.device)?;
        Ok(())
    })
}

/// Takes failures back.
pub(super) fn restore(args: Restore) -> anyhow::Result<()> {
    component::block_on(async move |_| {
        let slices = Slices::new(&args.target).await?;
        let mut restored = Vec::new();
        for slice in slices.of_node(&args.target).await? {
            let mut here = Vec::new();
            slices
                .change(&slice.name_any(), |slice| {
                    here = back(slice, args.device.as_deref())?;
                    Ok(!here.is_empty())
                })
                .await?;
            restored.extend(here);
        }
        if let Some(device) = &args.device {
            let node = &args.target.node;
            ensure!(!restored.is_empty(), "{device} has not failed on {node}");
        }
        writeln!(stdout(), "{} restored", count(restored.len(), "device"))?;
        Ok(())
    })
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
        let list = self.api.list(&ListParams::default().fields(&fields)).await;
        Ok(list.context("cannot list ResourceSlices")?.items)
    }

    /// The slice with a device, and its driver.
    async fn find(&self, target: &Target, device: &str) -> anyhow::Result<(String, String)> {
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
                let driver = driver(slice);
                if !slice.labels().contains_key(HARDWARE) {
                    self.refuse_real(node, &driver).await?;
                }
                Ok((slice.name_any(), driver))
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

/// The members of a map that differ, as a merge patch.
fn changed(before: &Value, after: &Value) -> Value {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let new = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), value.clone()));
    gone.chain(new).collect::<Map<_, _>>().into()
}

fn place(slice: &Value, device: &str) -> Option<usize> {
    let devices = slice["spec"]["devices"].as_array()?;
    devices.iter().position(|known| known["name"] == device)
}

fn set_taint(slice: &mut Value, at: usize, effect: Option<Effect>) -> bool {
    let device = &mut slice["spec"]["devices"][at];
    let mut taints = device["taints"].as_array().cloned().unwrap_or_default();
    let before = taints.len();
    taints.retain(|taint| taint["key"] != TAINT);
    let had = taints.len() < before;
    if let Some(effect) = effect {
        taints.push(json!({"key": TAINT, "value": "true", "effect": effect.name()}));
    }
    match device.as_object_mut() {
        Some(members) if taints.is_empty() => drop(members.remove("taints")),
        Some(members) => drop(members.insert("taints".into(), taints.into())),
        None => {}
    }
    had
}

/// Reads a JSON value from an annotation.
fn annotation<T: serde::de::DeserializeOwned + Default>(
    slice: &Value,
    name: &str,
) -> anyhow::Result<T> {
    match slice["metadata"]["annotations"][name].as_str() {
        None => Ok(T::default()),
        Some(text) => {
            serde_json::from_str(text).with_context(|| format!("cannot read annotation {name}"))
        }
    }
}

/// Writes an annotation, or a label, or removes it.
fn set(slice: &mut Value, map: &str, name: &str, value: Option<String>) {
    if !slice["metadata"][map].is_object() {
        slice["metadata"][map] = json!({});
    }
    if let Some(members) = slice["metadata"][map].as_object_mut() {
        match value {
            Some(value) => drop(members.insert(name.to_owned(), value.into())),
            None => drop(members.remove(name)),
        }
    }
}

fn set_unhealthy(slice: &mut Value, device: &str, message: Option<&str>) -> anyhow::Result<bool> {
    let mut devices: BTreeMap<String, String> = annotation(slice, UNHEALTHY)?;
    let before = devices.clone();
    match message {
        Some(message) => drop(devices.insert(device.to_owned(), message.to_owned())),
        None => drop(devices.remove(device)),
    }
    let text = match devices.is_empty() {
        true => None,
        false => Some(serde_json::to_string(&devices)?),
    };
    set(
        slice,
        "labels",
        UNHEALTHY,
        text.as_ref().map(|_| "true".to_owned()),
    );
    set(slice, "annotations", UNHEALTHY, text);
    Ok(devices != before)
}

fn unplug(slice: &mut Value, at: usize) -> anyhow::Result<bool> {
    let mut unplugged: Vec<Value> = annotation(slice, UNPLUGGED)?;
    let devices = slice["spec"]["devices"].as_array_mut();
    let device = devices.context("the slice has no devices")?.remove(at);
    unplugged.push(json!({"at": at, "device": device}));
    set(
        slice,
        "annotations",
        UNPLUGGED,
        Some(serde_json::to_string(&unplugged)?),
    );
    Ok(true)
}

/// Reverts the failure of one device or of all, and returns their names.
fn back(slice: &mut Value, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut restored = Vec::new();
    let unplugged: Vec<Value> = annotation(slice, UNPLUGGED)?;
    let (mut left, mut again) = (Vec::new(), Vec::new());
    for entry in unplugged {
        match wanted(entry["device"]["name"].as_str().unwrap_or_default()) {
            true => again.push(entry),
            false => left.push(entry),
        }
    }
    // The one removed last is restored first, so that each finds its position.
    for entry in again.iter().rev() {
        let at = entry["at"].as_u64().unwrap_or(0) as usize;
        if !slice["spec"]["devices"].is_array() {
            slice["spec"]["devices"] = json!([]);
        }
        if let Some(devices) = slice["spec"]["devices"].as_array_mut() {
            devices.insert(at.min(devices.len()), entry["device"].clone());
        }
        restored.push(
            entry["device"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    if !again.is_empty() {
        let text = match left.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&left)?),
        };
        set(slice, "annotations", UNPLUGGED, text);
    }
    let devices = slice["spec"]["devices"].as_array();
    let names: Vec<String> = devices
        .into_iter()
        .flatten()
        .filter_map(|device| device["name"].as_str().map(str::to_owned))
        .collect();
    for (at, name) in names.iter().enumerate().filter(|(_, name)| wanted(name)) {
        let tainted = set_taint(slice, at, None);
        let unhealthy = set_unhealthy(slice, name, None)?;
        if (tainted || unhealthy) && !restored.contains(name) {
            restored.push(name.clone());
        }
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice() -> Value {
        json!({
            "metadata": {"name": "s", "labels": {"a": "b"}},
            "spec": {"devices": [
                {"name": "gpu-0"},
                {"name": "gpu-1", "taints": [{"key": "other", "effect": "NoSchedule"}]},
                {"name": "gpu-2"},
            ]},
        })
    }

    #[test]
    fn what_was_done_is_taken_back() {
        let mut changed = slice();
        set_taint(&mut changed, 1, Some(Effect::NoExecute));
        set_taint(&mut changed, 1, Some(Effect::NoSchedule));
        assert_eq!(
            changed["spec"]["devices"][1]["taints"]
                .as_array()
                .map(Vec::len),
            Some(2)
        );
        set_unhealthy(&mut changed, "gpu-1", Some("hot")).unwrap();
        assert_eq!(
            changed["metadata"]["annotations"][UNHEALTHY],
            "{\"gpu-1\":\"hot\"}"
        );
        unplug(&mut changed, 0).unwrap();
        unplug(&mut changed, 1).unwrap();
        assert_eq!(place(&changed, "gpu-1"), Some(0));
        assert_eq!(changed["spec"]["devices"].as_array().map(Vec::len), Some(1));

        let mut one = changed.clone();
        assert_eq!(back(&mut one, Some("gpu-2")).unwrap(), ["gpu-2"]);
        assert_eq!(place(&one, "gpu-2"), Some(1));
        assert_eq!(back(&mut one, Some("gpu-7")).unwrap(), Vec::<String>::new());

        let restored = back(&mut changed, None).unwrap();
        assert_eq!(restored.len(), 3, "{restored:?}");
        assert_eq!(changed["spec"], slice()["spec"]);
        assert_eq!(changed["metadata"]["labels"], slice()["metadata"]["labels"]);
        assert_eq!(changed["metadata"]["annotations"], json!({}));
    }
}
