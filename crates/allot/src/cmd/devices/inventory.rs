//! From slices and claims to devices and who has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr as _;

use allot_apimachinery::quantity::Quantity;
use allot_reflector::{Readable, everything};
use anyhow::Context as _;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::api::resource::v1beta2::DeviceTaintSelector;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Serialize;
use serde_json::Value;

use crate::cmd::manifests::title;

/// What can be done with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A claim can have it
    Free,
    /// A claim has it
    InUse,
    /// Claims have parts of it, and others can have the rest
    Shared,
    /// Others have used up what it is made of
    Blocked,
    /// Only claims that tolerate its taint can have it
    Tainted,
    /// Its pool is not published completely
    Incomplete,
    /// Its pool contradicts itself, so that nobody can have it
    Invalid,
    /// A claim has it, and no slice names it any more
    Gone,
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
        })
    }
}

/// A device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The driver that published it.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// The node that it is on; `*` when it can be reached from all or from several.
    pub node: String,
    /// What can be done with it.
    pub state: State,
    /// Claims that have it.
    pub claims: Vec<Holder>,
    /// Taints that keep claims or pods away, `key=value:effect`.
    pub taints: Vec<String>,
    /// The counter that is used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Capacities.
    pub capacity: BTreeMap<String, String>,
    /// How much of them is consumed, of a device that can be shared.
    pub consumed: BTreeMap<String, String>,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
}

/// A claim that has a device.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Those for which the claim is reserved: names of pods, or `podgroups/name`.
    pub reserved_for: Vec<String>,
    /// The request that got it.
    pub request: String,
    /// Only to look at it: others can have it all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
}

impl Device {
    /// Who has it, or what is wrong with it, in words.
    pub fn why(&self) -> String {
        let mut parts: Vec<String> = self.claims.iter().map(Holder::words).collect();
        for (name, consumed) in &self.consumed {
            let whole = self.capacity.get(name).map_or("?", String::as_str);
            parts.push(format!("{name} {consumed} of {whole}"));
        }
        parts.extend(self.blocked_by.clone());
        parts.extend(self.taints.iter().map(|taint| format!("taint {taint}")));
        parts.join("; ")
    }
}

impl Holder {
    fn words(&self) -> String {
        let admin = if self.admin { "admin " } else { "" };
        match self.reserved_for.as_slice() {
            [] => format!("{admin}{} (no pod)", self.claim),
            pods => format!("{admin}{} ({})", self.claim, pods.join(", ")),
        }
    }
}

/// Driver, pool and device.
type Key = (String, String, String);

/// What claims have of a device.
#[derive(Default)]
struct Use {
    holders: Vec<Holder>,
    consumed: BTreeMap<String, Quantity>,
}

impl Use {
    /// Whether somebody has more than a look at it.
    fn takes(&self) -> bool {
        self.holders.iter().any(|h| !h.admin)
    }

    /// Whether nothing is left of a capacity.
    fn takes_all(&self, device: &api::Device) -> bool {
        let mut capacities = device.capacity.iter().flatten();
        capacities.any(|(name, capacity)| {
            let consumed = self.consumed.get(name);
            consumed.is_some_and(|c| *c >= quantity(&capacity.value))
        })
    }
}

/// All devices, by driver and pool.
///
/// # Errors
/// An object that is not what its kind says; the message names it.
pub fn inventory(objects: &[Value]) -> anyhow::Result<Vec<Device>> {
    let slices: Vec<api::ResourceSlice> = typed(objects, "ResourceSlice")?;
    let claims: Vec<api::ResourceClaim> = typed(objects, "ResourceClaim")?;
    let rules = rules(objects)?;
    let mut uses = uses(&claims);
    let mut pools: BTreeMap<(&str, &str), Vec<&api::ResourceSliceSpec>> = BTreeMap::new();
    let mut sorted: Vec<&api::ResourceSlice> = slices.iter().collect();
    sorted.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for slice in sorted {
        let spec = &slice.spec;
        pools
            .entry((&spec.driver, &spec.pool.name))
            .or_default()
            .push(spec);
    }
    let mut devices = Vec::new();
    for ((driver, pool), mut slices) in pools {
        let newest = slices.iter().map(|s| s.pool.generation).max();
        slices.retain(|s| Some(s.pool.generation) == newest);
        let wanted = slices.first().map_or(0, |s| s.pool.resource_slice_count);
        let published = slices.len() as i64;
        let names = slices
            .iter()
            .flat_map(|s| s.devices.iter().flatten())
            .map(|d| &d.name);
        let mut seen = BTreeSet::new();
        let twice = names.into_iter().any(|name| !seen.insert(name));
        let left = counters_left(driver, pool, &slices, &uses);
        for (slice, device) in slices
            .iter()
            .flat_map(|s| s.devices.iter().flatten().map(move |d| (s, d)))
        {
            let used = uses.remove(&(driver.to_owned(), pool.to_owned(), device.name.clone()));
            let used = used.unwrap_or_default();
            let blocked_by = used_up(device, &left).filter(|_| !used.takes());
            let mut taints: Vec<String> = device.taints.iter().flatten().map(taint).collect();
            let selected = rules
                .iter()
                .filter(|(s, _)| selects(s, driver, pool, &device.name));
            taints.extend(selected.map(|(_, t)| taint(t)));
            taints.retain(|t| !t.ends_with(":None"));
            let shareable = device.allow_multiple_allocations == Some(true);
            let state = match () {
                () if used.takes() && shareable && !used.takes_all(device) => State::Shared,
                () if used.takes() => State::InUse,
                () if twice || published > wanted => State::Invalid,
                () if published < wanted => State::Incomplete,
                () if blocked_by.is_some() => State::Blocked,
                () if !taints.is_empty() => State::Tainted,
                () => State::Free,
            };
            let capacity = device.capacity.iter().flatten();
            let attributes = device.attributes.iter().flatten();
            let consumed = used.consumed.iter().filter(|_| shareable);
            devices.push(Device {
                driver: driver.to_owned(),
                pool: pool.to_owned(),
                device: device.name.clone(),
                node: node(slice, device),
                state,
                claims: used.holders,
                taints,
                blocked_by,
                capacity: capacity
                    .map(|(n, c)| (n.clone(), c.value.0.clone()))
                    .collect(),
                consumed: consumed.map(|(n, q)| (n.clone(), q.to_string())).collect(),
                attributes: attributes.map(|(n, a)| (n.clone(), attribute(a))).collect(),
            });
        }
    }
    let mut gone: Vec<(Key, Use)> = uses.into_iter().collect();
    gone.sort_by(|a, b| a.0.cmp(&b.0));
    devices.extend(
        gone.into_iter()
            .map(|((driver, pool, device), used)| Device {
                driver,
                pool,
                device,
                node: String::new(),
                state: State::Gone,
                claims: used.holders,
                taints: Vec::new(),
                blocked_by: None,
                capacity: BTreeMap::new(),
                consumed: BTreeMap::new(),
                attributes: BTreeMap::new(),
            }),
    );
    Ok(devices)
}

fn typed<K: Readable>(objects: &[Value], kind: &str) -> anyhow::Result<Vec<K>> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let read = |object: &Value| {
        K::read(&object.to_string(), everything)
            .with_context(|| format!("{} can not be read", title(object)))
    };
    of_kind.map(read).collect()
}

/// Selectors and taints of the rules; their versions do not differ.
fn rules(
    objects: &[Value],
) -> anyhow::Result<Vec<(Option<DeviceTaintSelector>, api::DeviceTaint)>> {
    let rules = objects.iter().filter(|o| o["kind"] == "DeviceTaintRule");
    let read = |rule: &Value| {
        let spec = &rule["spec"];
        let selector = serde_json::from_value(spec["deviceSelector"].clone());
        let taint = serde_json::from_value(spec["taint"].clone());
        selector
            .and_then(|selector| Ok((selector, taint?)))
            .with_context(|| format!("{} can not be read", title(rule)))
    };
    rules.map(read).collect()
}

/// A rule without a selector is about no device.
fn selects(selector: &Option<DeviceTaintSelector>, driver: &str, pool: &str, device: &str) -> bool {
    let is = |wanted: &Option<String>, found| wanted.as_deref().is_none_or(|w| w == found);
    selector
        .as_ref()
        .is_some_and(|s| is(&s.driver, driver) && is(&s.pool, pool) && is(&s.device, device))
}

fn taint(taint: &api::DeviceTaint) -> String {
    let value = taint.value.as_deref().unwrap_or_default();
    format!("{}={value}:{}", taint.key, taint.effect)
}

/// What claims have, by device.
fn uses(claims: &[api::ResourceClaim]) -> HashMap<Key, Use> {
    let mut uses: HashMap<Key, Use> = HashMap::new();
    for claim in claims {
        let Some(status) = &claim.status else {
            continue;
        };
        let metadata = &claim.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let consumers = status.reserved_for.iter().flatten();
        let reserved_for: Vec<String> = consumers
            .map(|c| match c.resource.as_str() {
                "pods" => c.name.clone(),
                other => format!("{other}/{}", c.name),
            })
            .collect();
        let devices = status.allocation.as_ref().and_then(|a| a.devices.as_ref());
        for result in devices
            .and_then(|d| d.results.as_ref())
            .into_iter()
            .flatten()
        {
            let key = (
                result.driver.clone(),
                result.pool.clone(),
                result.device.clone(),
            );
            let used = uses.entry(key).or_default();
            used.holders.push(Holder {
                claim: format!("{}/{}", text(&metadata.namespace), text(&metadata.name)),
                reserved_for: reserved_for.clone(),
                request: result.request.clone(),
                admin: result.admin_access == Some(true),
            });
            for (name, amount) in result.consumed_capacity.iter().flatten() {
                let sum = used.consumed.entry(name.clone()).or_default();
                *sum = sum.checked_add(&quantity(amount)).unwrap_or_default();
            }
        }
    }
    uses
}

fn quantity(quantity: &ApiQuantity) -> Quantity {
    Quantity::from_str(&quantity.0).unwrap_or_default()
}

/// Set and name of a counter.
type Counter = (String, String);

/// What is left of the counters of a pool.
fn counters_left(
    driver: &str,
    pool: &str,
    slices: &[&api::ResourceSliceSpec],
    uses: &HashMap<Key, Use>,
) -> BTreeMap<Counter, Quantity> {
    let mut left: BTreeMap<Counter, Quantity> = BTreeMap::new();
    for set in slices
        .iter()
        .flat_map(|s| s.shared_counters.iter().flatten())
    {
        for (name, counter) in &set.counters {
            left.insert((set.name.clone(), name.clone()), quantity(&counter.value));
        }
    }
    for device in slices.iter().flat_map(|s| s.devices.iter().flatten()) {
        let key = (driver.to_owned(), pool.to_owned(), device.name.clone());
        if !uses.get(&key).is_some_and(Use::takes) {
            continue;
        }
        for (counter, amount) in consumption(device) {
            if let Some(left) = left.get_mut(&counter) {
                *left = left.checked_sub(&amount).unwrap_or_default();
            }
        }
    }
    left
}

fn consumption(device: &api::Device) -> impl Iterator<Item = (Counter, Quantity)> {
    let sets = device.consumes_counters.iter().flatten();
    sets.flat_map(|set| {
        let counter = |name: &String| (set.counter_set.clone(), name.clone());
        set.counters
            .iter()
            .map(move |(name, c)| (counter(name), quantity(&c.value)))
    })
}

/// The first counter of which a device would take more than is left.
fn used_up(device: &api::Device, left: &BTreeMap<Counter, Quantity>) -> Option<String> {
    consumption(device).find_map(|(counter, amount)| {
        let rest = left.get(&counter).cloned().unwrap_or_default();
        let (set, name) = counter;
        (rest < amount).then(|| format!("counter {set}/{name}: {rest} left, it takes {amount}"))
    })
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
