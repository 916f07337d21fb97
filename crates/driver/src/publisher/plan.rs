//! What has to change so that a pool is as wanted: pure, so that the rules about generations can be tested.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::resource::v1::{DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{Pool, Scope, Slice, Stored};

/// Which pool of whom.
pub(super) struct Target<'a> {
    pub(super) driver: &'a str,
    pub(super) scope: &'a Scope,
    pub(super) pool: &'a str,
}

/// Writes in the order delete, update, create. Numbers are indices of the wanted slices.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) pool: String,
    pub(super) delete: Vec<ResourceSlice>,
    pub(super) update: Vec<(usize, ResourceSlice)>,
    pub(super) create: Vec<(usize, ResourceSlice)>,
}

impl Plan {
    pub(super) fn new(
        target: &Target<'_>,
        wanted: Option<&Pool>,
        existing: Vec<&ResourceSlice>,
        stored: &Stored,
    ) -> Self {
        let mut plan = Self {
            pool: target.pool.to_owned(),
            ..Self::default()
        };
        let newest = existing
            .iter()
            .map(|slice| slice.spec.pool.generation)
            .max()
            .unwrap_or(0);
        let (mut current, old): (Vec<_>, Vec<_>) = existing
            .into_iter()
            .partition(|slice| slice.spec.pool.generation == newest);
        plan.delete.extend(old.into_iter().cloned());
        let empty = Vec::new();
        let slices = wanted.map_or(&empty, |pool| &pool.slices);
        current.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let matched = assign(slices, &mut current);
        plan.delete.extend(current.into_iter().cloned());
        let Some(pool) = wanted else { return plan };

        let spec =
            |index: usize, generation: i64| spec(target, pool, index, generation, matched[index]);
        let unchanged = |index: usize, slice: &ResourceSlice, generation: i64| {
            let spec = spec(index, generation);
            let uid = slice.metadata.uid.as_deref().unwrap_or_default();
            // What the server made of exactly this wish counts as the wish.
            let same = |wish: &ResourceSliceSpec| normal(wish) == normal(&slice.spec);
            same(&spec)
                || stored
                    .get(uid)
                    .is_some_and(|(sent, got)| normal(sent) == normal(&spec) && same(got))
        };
        let base = newest.max(pool.generation);
        let created = matched.iter().filter(|slice| slice.is_none()).count();
        let changed = (0..slices.len())
            .filter(|&index| matched[index].is_some_and(|slice| !unchanged(index, slice, base)))
            .count();
        // One update replaces one slice at once; anything more needs a new generation to be seen as one change.
        let keep = created == 0 && changed <= 1 && base >= 1;
        let generation = if keep || pool.generation > newest {
            base
        } else {
            base + 1
        };
        for (index, slice) in matched.iter().enumerate() {
            match slice {
                Some(slice) if unchanged(index, slice, generation) => {}
                Some(slice) => {
                    let mut updated = ResourceSlice::clone(slice);
                    updated.spec = spec(index, generation);
                    plan.update.push((index, updated));
                }
                None => {
                    let metadata = metadata(target);
                    plan.create.push((
                        index,
                        ResourceSlice {
                            metadata,
                            spec: spec(index, generation),
                        },
                    ));
                }
            }
        }
        plan
    }
}

/// Chooses an existing slice for every wanted one: first those with the same devices, then any. What is used is
/// taken out of `existing`.
fn assign<'a>(
    wanted: &[Slice],
    existing: &mut Vec<&'a ResourceSlice>,
) -> Vec<Option<&'a ResourceSlice>> {
    let mut result = vec![None; wanted.len()];
    for (slot, slice) in result.iter_mut().zip(wanted) {
        let devices: BTreeSet<&str> = slice
            .devices
            .iter()
            .map(|device| device.name.as_str())
            .collect();
        let counters: BTreeSet<&str> = slice
            .shared_counters
            .iter()
            .map(|set| set.name.as_str())
            .collect();
        let same = existing.iter().position(|slice| {
            let spec = &slice.spec;
            let found: BTreeSet<&str> = spec
                .devices
                .iter()
                .flatten()
                .map(|device| device.name.as_str())
                .collect();
            let sets: BTreeSet<&str> = spec
                .shared_counters
                .iter()
                .flatten()
                .map(|set| set.name.as_str())
                .collect();
            found == devices && sets == counters
        });
        *slot = same.map(|at| existing.remove(at));
    }
    for slot in result.iter_mut().filter(|slot| slot.is_none()) {
        if !existing.is_empty() {
            *slot = Some(existing.remove(0));
        }
    }
    result
}

fn metadata(target: &Target<'_>) -> ObjectMeta {
    match target.scope {
        Scope::Node { name, uid } => ObjectMeta {
            generate_name: Some(format!("{name}-{}-", target.driver)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.clone(),
                uid: uid.clone().unwrap_or_default(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        Scope::Cluster { .. } => ObjectMeta {
            generate_name: Some(format!("{}-", target.driver)),
            ..ObjectMeta::default()
        },
    }
}

fn spec(
    target: &Target<'_>,
    pool: &Pool,
    index: usize,
    generation: i64,
    existing: Option<&ResourceSlice>,
) -> ResourceSliceSpec {
    let slice = &pool.slices[index];
    let node_name = match target.scope {
        Scope::Node { name, .. } => Some(name.clone()),
        Scope::Cluster { .. } => None,
    };
    let mut devices = slice.devices.clone();
    for device in &mut devices {
        let before = existing
            .and_then(|slice| {
                slice
                    .spec
                    .devices
                    .iter()
                    .flatten()
                    .find(|before| before.name == device.name)
            })
            .and_then(|before| before.taints.as_deref())
            .unwrap_or_default();
        for taint in device
            .taints
            .iter_mut()
            .flatten()
            .filter(|taint| taint.time_added.is_none())
        {
            // Otherwise the taint would look new with every update.
            let same = |other: &&DeviceTaint| {
                (&other.key, &other.value, &other.effect)
                    == (&taint.key, &taint.value, &taint.effect)
            };
            taint.time_added = before
                .iter()
                .find(same)
                .and_then(|found| found.time_added.clone());
        }
    }
    ResourceSliceSpec {
        driver: target.driver.to_owned(),
        node_name,
        node_selector: pool.node_selector.clone(),
        all_nodes: pool.all_nodes.then_some(true),
        per_device_node_selection: slice.per_device_node_selection.then_some(true),
        pool: ResourcePool {
            name: target.pool.to_owned(),
            generation,
            resource_slice_count: pool.slices.len() as i64,
        },
        devices: (!devices.is_empty()).then_some(devices),
        shared_counters: (!slice.shared_counters.is_empty()).then(|| slice.shared_counters.clone()),
    }
}

/// Brings a spec into a form in which equal means the same: quantities in their canonical text, empty lists absent,
/// no times of taints (they differ by rounding at most).
fn normal(spec: &ResourceSliceSpec) -> serde_json::Value {
    let mut spec = spec.clone();
    for device in spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = None;
        }
        for capacity in device
            .capacity
            .iter_mut()
            .flatten()
            .map(|(_, capacity)| capacity)
        {
            canonical(&mut capacity.value.0);
        }
        for counters in device.consumes_counters.iter_mut().flatten() {
            counters
                .counters
                .values_mut()
                .for_each(|counter| canonical(&mut counter.value.0));
        }
        if device.attributes.as_ref().is_some_and(BTreeMap::is_empty) {
            device.attributes = None;
        }
        if device.capacity.as_ref().is_some_and(BTreeMap::is_empty) {
            device.capacity = None;
        }
        if device.taints.as_ref().is_some_and(Vec::is_empty) {
            device.taints = None;
        }
    }
    for set in spec.shared_counters.iter_mut().flatten() {
        set.counters
            .values_mut()
            .for_each(|counter| canonical(&mut counter.value.0));
    }
    // Serialising plain data does not fail.
    serde_json::to_value(spec).unwrap_or_default()
}

fn canonical(text: &mut String) {
    if let Ok(quantity) = text.parse::<Quantity>() {
        *text = quantity.to_string();
    }
}

/// Names of the features whose fields are missing in what the server stored; `None` when nothing is missing.
pub(super) fn dropped_features(
    sent: &ResourceSliceSpec,
    got: &ResourceSliceSpec,
) -> Option<String> {
    let of = |spec: &ResourceSliceSpec| {
        let devices = spec.devices.as_deref().unwrap_or_default();
        [
            (
                "DRADeviceTaints",
                devices
                    .iter()
                    .filter(|d| d.taints.iter().flatten().next().is_some())
                    .count(),
            ),
            (
                "DRAPartitionableDevices",
                spec.shared_counters.iter().flatten().count()
                    + usize::from(spec.per_device_node_selection == Some(true))
                    + devices
                        .iter()
                        .flat_map(|d| &d.consumes_counters)
                        .flatten()
                        .count(),
            ),
            (
                "DRADeviceBindingConditions",
                devices
                    .iter()
                    .flat_map(|d| &d.binding_conditions)
                    .flatten()
                    .count()
                    + devices
                        .iter()
                        .filter(|d| d.binds_to_node == Some(true))
                        .count(),
            ),
            (
                "DRAConsumableCapacity",
                devices
                    .iter()
                    .filter(|d| d.allow_multiple_allocations == Some(true))
                    .count()
                    + devices
                        .iter()
                        .flat_map(|d| &d.capacity)
                        .flatten()
                        .filter(|(_, c)| c.request_policy.is_some())
                        .count(),
            ),
        ]
    };
    let names: Vec<&str> = of(sent)
        .into_iter()
        .zip(of(got))
        .filter_map(|((name, sent), (_, got))| (got < sent).then_some(name))
        .collect();
    match (
        names.is_empty(),
        sent.devices.iter().flatten().count() == got.devices.iter().flatten().count(),
    ) {
        (false, _) => Some(names.join(" ")),
        (true, false) => Some("unknown".into()),
        (true, true) => None,
    }
}
