//! Computes devices and their claims from slices and claims.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use allot_allocator::{Cluster, DeviceState, Features, Holder as Claim, Inventoried, PoolProblem};
use allot_scheduler::taint_rules::DeviceTaintRule;
use k8s_openapi::api::resource::v1 as api;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use super::classes::Classes;
use crate::cmd::manifests::typed;

/// The state of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A claim can have it
    Free,
    /// A claim has it
    InUse,
    /// Claims have parts of it, and others can have the rest
    Shared,
    /// Its shared counters are used up by other devices
    Blocked,
    /// Only claims that tolerate its taint can have it
    Tainted,
    /// Its pool is not published completely
    Incomplete,
    /// Its pool is invalid, so that it cannot be allocated
    Invalid,
    /// A claim has it, and no slice names it any longer
    Gone,
    /// Claims that may have it cannot be seen
    Unknown,
    /// While watching: it is no longer published, or no longer selected
    Removed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Free => "free",
            State::InUse => "in-use",
            State::Shared => "shared",
            State::Blocked => "blocked",
            State::Tainted => "tainted",
            State::Incomplete => "incomplete",
            State::Invalid => "invalid",
            State::Gone => "gone",
            State::Unknown => "unknown",
            State::Removed => "removed",
        })
    }
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The driver that published it.
    pub driver: String,
    /// The pool of the driver that it is in.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// The node that it is on; `*` when it can be reached from all or from several.
    pub node: String,
    /// Its state.
    pub state: State,
    /// Claims that have it.
    pub claims: Vec<Holder>,
    /// Taints that keep claims or pods away, as kubectl shows them: `key=value:effect`, `key:effect`.
    pub taints: Vec<String>,
    /// The counter that is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The error of its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// The slices that are missing in its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The device classes that it is in.
    pub classes: Vec<String>,
    /// Its capacities by name, as published.
    pub capacity: BTreeMap<String, String>,
    /// How much of them is consumed, of a device that can be shared.
    pub consumed: BTreeMap<String, String>,
    /// Its attributes by name, their values as text.
    pub attributes: BTreeMap<String, String>,
    /// It can serve several claims at the same time.
    #[serde(skip)]
    pub shareable: bool,
}

/// A claim that has a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Those for which the claim is reserved: names of pods, or `podgroups/name`.
    pub reserved_for: Vec<String>,
    /// The PodGroup that the claim was made for, whose pods share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_group: Option<String>,
    /// The request that got it.
    pub request: String,
    /// The class that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// With admin access: the device is still available to other claims.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
}

impl Device {
    /// `driver/pool/device`.
    pub fn name(&self) -> String {
        format!("{}/{}/{}", self.driver, self.pool, self.device)
    }

    /// The same as removed: it is no longer in its slice, or no longer selected.
    pub fn removed(&self) -> Self {
        Self {
            state: State::Removed,
            claims: Vec::new(),
            ..self.clone()
        }
    }

    /// The claims that hold it, or the error of its pool, as a text.
    pub fn why(&self) -> String {
        let mut parts: Vec<String> = self.claims.iter().map(Holder::words).collect();
        for (name, consumed) in &self.consumed {
            let whole = self.capacity.get(name).map_or("?", String::as_str);
            parts.push(format!("{name} {consumed} of {whole}"));
        }
        parts.extend(self.blocked_by.clone());
        parts.extend(self.invalid.clone());
        parts.extend(self.incomplete.clone());
        parts.extend(self.taints.iter().map(|taint| format!("taint {taint}")));
        parts.join("; ")
    }
}

impl Holder {
    fn words(&self) -> String {
        let admin = if self.admin { "admin " } else { "" };
        let consumers = match (self.reserved_for.as_slice(), &self.pod_group) {
            ([], Some(group)) => format!("PodGroup {group}, no pod yet"),
            ([], None) => "no pod".to_owned(),
            (pods, _) => {
                let words = |name: &String| match name.strip_prefix("podgroups/") {
                    Some(group) => format!("PodGroup {group}"),
                    None => name.clone(),
                };
                pods.iter().map(words).collect::<Vec<_>>().join(", ")
            }
        };
        format!("{admin}{} ({consumers})", self.claim)
    }
}

/// Driver, pool and device.
type Key = (String, String, String);

/// The allocator's knowledge of slices, taint rules and claims.
///
/// # Errors
/// An object that does not match its kind; the message names it.
pub fn cluster(objects: &[Value], features: Features) -> anyhow::Result<Cluster> {
    let slices: Vec<api::ResourceSlice> = typed(objects, "ResourceSlice")?;
    let claims: Vec<api::ResourceClaim> = typed(objects, "ResourceClaim")?;
    let rules: Vec<DynamicObject> = typed(objects, "DeviceTaintRule")?;
    let mut cluster = Cluster::new(features);
    let rules = rules.iter().filter_map(DeviceTaintRule::read);
    cluster.set_taint_rules(rules.map(|rule| rule.rule).collect());
    slices.iter().for_each(|slice| cluster.apply(slice));
    for claim in &claims {
        let status = claim.status.as_ref();
        if let Some(allocation) = status.and_then(|s| s.allocation.as_ref()) {
            let mut holder = Claim::from(claim);
            // Objects from files may have none.
            holder.uid = holder.to_string().into();
            cluster.claim_allocated(&holder, allocation);
        }
    }
    Ok(cluster)
}

/// All devices, by driver and pool. The allocator determines what is free; the claims determine which of them hold
/// devices. `all_claims`: the objects contain all claims.
///
/// # Errors
/// An object that does not match its kind; the message names it.
pub fn inventory(
    objects: &[Value],
    features: Features,
    all_claims: bool,
) -> anyhow::Result<Vec<Device>> {
    let slices: Vec<api::ResourceSlice> = typed(objects, "ResourceSlice")?;
    let claims: Vec<api::ResourceClaim> = typed(objects, "ResourceClaim")?;
    let cluster = cluster(objects, features)?;
    let classes = Classes::new(objects, features);
    let by_name = |slice: &api::ResourceSlice| slice.metadata.name.clone().unwrap_or_default();
    let by_name: HashMap<String, &api::ResourceSliceSpec> =
        slices.iter().map(|s| (by_name(s), &s.spec)).collect();
    let mut holders = holders(&claims);
    let mut devices = Vec::new();
    for found in cluster.inventory() {
        let Some(slice) = by_name.get(found.slice) else {
            continue;
        };
        let Some(device) = slice.devices.iter().flatten().nth(found.index) else {
            continue;
        };
        let key = (found.driver.into(), found.pool.into(), found.device.into());
        let claims = holders.remove(&key).unwrap_or_default();
        let of = classes.of(found.driver, device);
        let device = described(found, slice, device, claims, all_claims);
        devices.push(Device {
            classes: of,
            ..device
        });
    }
    let mut gone: Vec<(Key, Vec<Holder>)> = holders.into_iter().collect();
    gone.sort_by(|a, b| a.0.cmp(&b.0));
    devices.extend(
        gone.into_iter()
            .map(|((driver, pool, device), claims)| Device {
                driver,
                pool,
                device,
                node: String::new(),
                state: State::Gone,
                claims,
                taints: Vec::new(),
                blocked_by: None,
                invalid: None,
                incomplete: None,
                classes: Vec::new(),
                capacity: BTreeMap::new(),
                consumed: BTreeMap::new(),
                attributes: BTreeMap::new(),
                shareable: false,
            }),
    );
    Ok(devices)
}

fn described(
    found: Inventoried<'_>,
    slice: &api::ResourceSliceSpec,
    device: &api::Device,
    claims: Vec<Holder>,
    all_claims: bool,
) -> Device {
    let state = match (found.state, &found.problem) {
        (DeviceState::Shared, _) => State::Shared,
        (DeviceState::InUse, _) => State::InUse,
        (DeviceState::Unusable, Some(PoolProblem::Invalid(_))) => State::Invalid,
        (DeviceState::Unusable, _) => State::Incomplete,
        (DeviceState::Blocked, _) => State::Blocked,
        (DeviceState::Tainted, _) => State::Tainted,
        (DeviceState::Free, _) if !all_claims => State::Unknown,
        (DeviceState::Free, _) => State::Free,
    };
    let (mut invalid, mut incomplete) = (None, None);
    match found.problem {
        Some(PoolProblem::Invalid(reason)) => invalid = Some(reason),
        Some(PoolProblem::Incomplete {
            generation,
            seen,
            expected,
        }) => {
            let missing = expected - seen;
            incomplete = Some(format!(
                "{missing} of {expected} slices of generation {generation} not published"
            ));
        }
        None => {}
    }
    let capacity = device.capacity.iter().flatten();
    let attributes = device.attributes.iter().flatten();
    let consumed = found.consumed.into_iter();
    Device {
        driver: found.driver.to_owned(),
        pool: found.pool.to_owned(),
        device: found.device.to_owned(),
        node: node(slice, device),
        state,
        claims,
        taints: found.taints,
        blocked_by: found.lacks,
        invalid,
        incomplete,
        classes: Vec::new(),
        capacity: capacity
            .map(|(n, c)| (n.clone(), c.value.0.clone()))
            .collect(),
        consumed: consumed.map(|(n, q)| (n.to_owned(), q)).collect(),
        attributes: attributes.map(|(n, a)| (n.clone(), attribute(a))).collect(),
        shareable: device.allow_multiple_allocations == Some(true),
    }
}

/// The claims that hold each device, including those with admin access.
fn holders(claims: &[api::ResourceClaim]) -> HashMap<Key, Vec<Holder>> {
    let mut holders: HashMap<Key, Vec<Holder>> = HashMap::new();
    for claim in claims {
        let Some(status) = &claim.status else {
            continue;
        };
        let consumers = status.reserved_for.iter().flatten();
        let reserved_for: Vec<String> = consumers
            .map(|c| match c.resource.as_str() {
                "pods" => c.name.clone(),
                other => format!("{other}/{}", c.name),
            })
            .collect();
        let owners = claim.metadata.owner_references.iter().flatten();
        let mut owners = owners.filter(|o| o.controller == Some(true) && o.kind == "PodGroup");
        let pod_group = owners.next().map(|owner| owner.name.clone());
        let devices = status.allocation.as_ref().and_then(|a| a.devices.as_ref());
        let results = devices.and_then(|d| d.results.as_ref());
        for result in results.into_iter().flatten() {
            let (driver, pool) = (result.driver.clone(), result.pool.clone());
            let of_device = holders.entry((driver, pool, result.device.clone()));
            of_device.or_default().push(Holder {
                claim: Claim::from(claim).to_string(),
                reserved_for: reserved_for.clone(),
                pod_group: pod_group.clone(),
                class: class_of(claim, &result.request),
                request: result.request.clone(),
                admin: result.admin_access == Some(true),
            });
        }
    }
    holders
}

/// The class of a request, or of its allocated alternative.
fn class_of(claim: &api::ResourceClaim, request: &str) -> Option<String> {
    let (name, alternative) = match request.split_once('/') {
        Some((name, alternative)) => (name, Some(alternative)),
        None => (request, None),
    };
    let devices = claim.spec.devices.as_ref()?;
    let found = devices.requests.iter().flatten().find(|r| r.name == name)?;
    match alternative {
        None => Some(found.exactly.as_ref()?.device_class_name.clone()),
        Some(wanted) => {
            let mut list = found.first_available.iter().flatten();
            Some(list.find(|a| a.name == wanted)?.device_class_name.clone())
        }
    }
}

fn node(slice: &api::ResourceSliceSpec, device: &api::Device) -> String {
    let name = slice.node_name.as_ref().or(device.node_name.as_ref());
    name.cloned().unwrap_or_else(|| "*".to_owned())
}

fn attribute(attribute: &api::DeviceAttribute) -> String {
    let value = serde_json::to_value(attribute).unwrap_or_default();
    let value = value.as_object().and_then(|o| o.values().next());
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
