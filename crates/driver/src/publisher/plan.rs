//! The changes that bring a pool to the wanted state: pure, so that the rules about generations can be tested.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use allot_model::DRAINING;
use k8s_openapi::api::resource::v1::{
    Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, TimestampRound, Unit};

use super::{MOST_COSTLY_DEVICES, Owner, Pool, Scope, Stored};

/// A pool and its owner.
pub(super) struct Target<'a> {
    pub(super) driver: &'a str,
    pub(super) scope: &'a Scope,
    pub(super) pool: &'a str,
}

/// The writes that lead from the published slices to the wanted ones, in the order delete, update, create. Numbers are indices
/// of the wanted slices.
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
        let matched = assign(slices.len(), &mut current);
        plan.delete.extend(current.into_iter().cloned());
        let Some(pool) = wanted else { return plan };

        let spec =
            |index: usize, generation: i64| spec(target, pool, index, generation, matched[index]);
        let unchanged = |index: usize, slice: &ResourceSlice, generation: i64| {
            let spec = spec(index, generation);
            let uid = slice.metadata.uid.as_deref().unwrap_or_default();
            // The stored form of exactly this slice counts as equal.
            let same = |wish: &ResourceSliceSpec| normal(wish) == normal(&slice.spec);
            let stored = stored.get(uid);
            let as_stored = |(sent, got): &(_, _)| normal(sent) == normal(&spec) && same(got);
            labelled(target, slice) && (same(&spec) || stored.is_some_and(as_stored))
        };
        let base = newest.max(pool.generation);
        let created = matched.iter().filter(|slice| slice.is_none()).count();
        let changed = (0..slices.len())
            .filter(|&index| matched[index].is_some_and(|slice| !unchanged(index, slice, base)))
            .count();
        // One update replaces one slice atomically; more changes need a new generation to be seen as one.
        let keep = created == 0 && changed <= 1;
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
                    if !labelled(target, slice) {
                        let labels = updated.metadata.labels.get_or_insert_default();
                        labels.retain(|key, _| !target.scope.labels.contains_key(key));
                        labels.extend(labels_of(target));
                    }
                    plan.update.push((index, updated));
                }
                None => {
                    let metadata = metadata(target, index, slices.len());
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

/// Whether a slice has the labels, and none that it must not have: an earlier run of the driver may have left one.
fn labelled(target: &Target<'_>, slice: &ResourceSlice) -> bool {
    let there = slice.metadata.labels.as_ref();
    let mut wanted = target.scope.labels.iter();
    wanted.all(|(key, value)| there.and_then(|there| there.get(key)) == value.as_ref())
}

fn labels_of(target: &Target<'_>) -> impl Iterator<Item = (String, String)> {
    let labels = target.scope.labels.iter();
    labels.filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
}

/// Chooses an existing slice for every wanted one: the one whose name has this index. If there is only one, its name
/// need not match. Used slices are removed from `existing`.
fn assign<'a>(
    wanted: usize,
    existing: &mut Vec<&'a ResourceSlice>,
) -> Vec<Option<&'a ResourceSlice>> {
    let mut result = vec![None; wanted];
    existing.retain(|slice| {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let place = place_of(name, digits(wanted)).and_then(|at| result.get_mut(at));
        match place {
            Some(free @ None) => {
                *free = Some(*slice);
                false
            }
            _ => true,
        }
    });
    if let [free @ None] = &mut result[..]
        && !existing.is_empty()
    {
        *free = Some(existing.remove(0));
    }
    result
}

/// How many digits places have in names, so that slices sort as the driver listed them: the allocator takes devices in
/// this order.
pub(super) fn digits(slices: usize) -> usize {
    const LEAST: usize = 5;
    LEAST.max(format!("{:x}", slices.saturating_sub(1)).len())
}

/// The place that a name begins with.
pub(super) fn place_of(name: &str, digits: usize) -> Option<usize> {
    let (place, _) = name.split_once('-')?;
    let hex = place.len() == digits && place.bytes().all(|b| b.is_ascii_hexdigit());
    usize::from_str_radix(place, 16).ok().filter(|_| hex)
}

/// Slices of a pool are named by their place in it, and by driver and node; the only one by node and driver.
fn metadata(target: &Target<'_>, index: usize, slices: usize) -> ObjectMeta {
    let driver = target.driver;
    let place = format!("{index:0width$x}", width = digits(slices));
    let prefix = match &target.scope.node {
        Some(node) if slices == 1 => format!("{}-{driver}-", node.name),
        Some(node) => format!("{place}-{driver}-{}-", node.name),
        None if slices == 1 => format!("{driver}-"),
        None => format!("{place}-{driver}-"),
    };
    let owner = |node: &Owner| OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.name.clone(),
        uid: node.uid.clone().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let owners = target.scope.node.as_ref().map(|node| vec![owner(node)]);
    ObjectMeta {
        generate_name: Some(prefix),
        owner_references: owners,
        labels: Some(labels_of(target).collect())
            .filter(|labels: &BTreeMap<_, _>| !labels.is_empty()),
        ..ObjectMeta::default()
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
    let node_name = target.scope.node_name().map(str::to_owned);
    let devices = &slice.devices;
    let mut spec = ResourceSliceSpec {
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
        devices: (!devices.is_empty()).then(|| devices.clone()),
        shared_counters: (!slice.shared_counters.is_empty()).then(|| slice.shared_counters.clone()),
    };
    keep_drained(&mut spec, existing);
    keep_times(&mut spec, existing);
    spec
}

/// Keeps the taints of `allot drain-driver`, which the driver must not remove. A slice that has become too large for
/// taints loses them.
fn keep_drained(spec: &mut ResourceSliceSpec, existing: Option<&ResourceSlice>) {
    let drained = |device: &Device| {
        let mut taints = device.taints.iter().flatten();
        taints.find(|taint| taint.key == DRAINING).cloned()
    };
    let before = existing.and_then(|slice| slice.spec.devices.as_deref());
    let before: BTreeMap<&str, DeviceTaint> = before
        .unwrap_or_default()
        .iter()
        .filter_map(|device| Some((device.name.as_str(), drained(device)?)))
        .collect();
    let devices = spec.devices.as_deref_mut().unwrap_or_default();
    if before.is_empty() || devices.len() > MOST_COSTLY_DEVICES {
        return;
    }
    for device in devices.iter_mut().filter(|it| drained(it).is_none()) {
        if let Some(taint) = before.get(device.name.as_str()) {
            device
                .taints
                .get_or_insert_with(Vec::new)
                .push(taint.clone());
        }
    }
}

/// Sets the stored times of taints: without a time they would look new with every update, and the server keeps whole
/// seconds only.
pub(super) fn keep_times(spec: &mut ResourceSliceSpec, existing: Option<&ResourceSlice>) {
    let before = existing.and_then(|slice| slice.spec.devices.as_deref());
    for device in spec.devices.iter_mut().flatten() {
        let before = before
            .unwrap_or_default()
            .iter()
            .find(|before| before.name == device.name)
            .and_then(|before| before.taints.as_deref())
            .unwrap_or_default();
        for taint in device.taints.iter_mut().flatten() {
            let same = |other: &&DeviceTaint| {
                (&other.key, &other.value, &other.effect)
                    == (&taint.key, &taint.value, &taint.effect)
            };
            let known = before.iter().find(same);
            let known = known.and_then(|found| found.time_added.as_ref());
            let close = |own: &Time, known: &Time| {
                let apart = own.0.duration_since(known.0).abs();
                apart <= SignedDuration::from_secs(1)
            };
            match (&mut taint.time_added, known) {
                (own @ None, known) => *own = known.cloned(),
                (Some(own), Some(known)) if close(own, known) => *own = known.clone(),
                (Some(own), _) => {
                    let whole = TimestampRound::new().smallest(Unit::Second);
                    own.0 = own.0.round(whole).unwrap_or(own.0);
                }
            }
        }
    }
}

/// Records the stored form of a slice, so that dropped fields are reported once and not written endlessly. The server
/// sets times of taints, and the next plan has them.
pub(super) fn remember(stored: &mut Stored, sent: &ResourceSlice, got: &ResourceSlice) {
    if let Some(uid) = got.metadata.uid.clone() {
        let mut spec = sent.spec.clone();
        keep_times(&mut spec, Some(got));
        stored.insert(uid, (spec, got.spec.clone()));
    }
}

/// Brings a spec into a form in which equal means the same: quantities in their canonical text, empty lists absent.
fn normal(spec: &ResourceSliceSpec) -> serde_json::Value {
    let mut spec = spec.clone();
    for device in spec.devices.iter_mut().flatten() {
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

/// Names of the features whose fields are missing in the stored slice; `None` when nothing is missing.
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
    if !names.is_empty() {
        return Some(names.join(" "));
    }
    // Times of taints are the server's to fill in.
    let content = |spec: &ResourceSliceSpec| {
        let mut spec = spec.clone();
        let devices = spec.devices.iter_mut().flatten();
        let taints = devices.flat_map(|d| d.taints.iter_mut().flatten());
        taints.for_each(|taint| taint.time_added = None);
        normal(&spec)
    };
    (content(sent) != content(got)).then(|| "unknown".to_owned())
}
