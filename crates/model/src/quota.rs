//! The usage of objects in a ResourceQuota, and whether another object fits.
//!
//! Used by admission (before an object is stored) and by the quota controller (over all objects), so that both count
//! alike; only devices that are allocated are counted elsewhere ([`allocated_class`]). Rules are upstream's evaluators: pods by their requests and limits, claims by devices per class, services,
//! volume claims, and `count/<resource>.<group>` for everything else.

use std::collections::BTreeMap;

use allot_apimachinery::amounts;
use allot_apimachinery::quantity::Quantity;
use allot_apimachinery::well_known::EXTENDED_RESOURCE_CLAIM_ANNOTATION;
use serde_json::Value;

use crate::limits::ALLOCATION_RESULTS;
use crate::view::View;

pub mod pods;
#[cfg(test)]
mod tests;

pub use pods::{ScopeTerm, changes_scope, in_scopes, matching_scopes, of_containers, requests};

/// Amounts by resource name, as in a quota's `hard` and `used`.
pub type Usage = BTreeMap<String, Quantity>;

/// Suffix of the resource that limits the devices of a class.
pub const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Suffix of the resource that limits the devices of a class that are allocated; see [`allocated_class`].
const ALLOCATED: &str = ".deviceclass.allot.dev/allocated-devices";
/// Prefix of the implicit extended resource of a class.
const IMPLICIT: &str = "requests.deviceclass.resource.kubernetes.io/";

/// Core resources that can be limited by their plain name.
const PLAIN_COUNTS: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// Adds to an amount, like [`amounts::sum`]. If the sum is only the greater amount, it is far above every limit.
fn add(usage: &mut Usage, name: impl Into<String>, amount: Quantity) {
    let entry = usage.entry(name.into()).or_default();
    *entry = amounts::sum(entry, &amount);
}

/// Adds one usage to another.
pub fn merge(total: &mut Usage, more: &Usage) {
    for (name, amount) in more {
        add(total, name.as_str(), amount.clone());
    }
}

/// Other objects that the usage of an object depends on.
#[derive(Clone, Copy)]
pub struct Lookups<'a> {
    /// The extended resource name of a device class.
    pub extended: &'a dyn Fn(&str) -> Option<String>,
    /// A pod in the namespace of the object.
    pub pod: &'a dyn Fn(&str) -> Option<Value>,
    /// The claims for extended resources in the namespace of the object.
    pub first: &'a FirstClaims,
}

/// The amounts by which an object counts in ResourceQuotas, by resource name.
pub fn usage(group: &str, resource: &str, object: &Value, lookups: Lookups<'_>) -> Usage {
    let mut usage = Usage::new();
    let counted = if group.is_empty() {
        format!("count/{resource}")
    } else {
        format!("count/{resource}.{group}")
    };
    add(&mut usage, counted, 1.into());
    match (group, resource) {
        ("", "pods") => pods::usage(object, &mut usage),
        ("", "services") => service(object, &mut usage),
        ("", "persistentvolumeclaims") => volume_claim(object, &mut usage),
        ("resource.k8s.io", "resourceclaims") => claim(object, lookups, &mut usage),
        _ => {}
    }
    if group.is_empty() && PLAIN_COUNTS.contains(&resource) {
        add(&mut usage, resource, 1.into());
    }
    usage
}

fn service(object: &Value, usage: &mut Usage) {
    let spec = object.at("spec");
    let ports = spec.list("ports").len();
    let node_ports = match spec.text("type") {
        "NodePort" => ports,
        "LoadBalancer" => {
            add(usage, "services.loadbalancers", 1.into());
            let allocated = spec
                .opt_bool("allocateLoadBalancerNodePorts")
                .unwrap_or(true);
            if allocated {
                ports
            } else {
                spec.list("ports")
                    .iter()
                    .filter(|p| p.int("nodePort") != 0)
                    .count()
            }
        }
        _ => 0,
    };
    if node_ports > 0 {
        add(
            usage,
            "services.nodeports",
            i64::try_from(node_ports).unwrap_or(i64::MAX).into(),
        );
    }
}

fn volume_claim(object: &Value, usage: &mut Usage) {
    let spec = object.at("spec");
    let class = spec.text("storageClassName");
    let prefix = (!class.is_empty()).then(|| format!("{class}.storageclass.storage.k8s.io"));
    if let Some(prefix) = &prefix {
        add(usage, format!("{prefix}/persistentvolumeclaims"), 1.into());
    }
    if let Ok(storage) = Quantity::from_json(spec.at("resources").at("requests").at("storage"))
        && !storage.is_zero()
    {
        // A quota counts whole bytes.
        let storage = storage.round_up(0);
        if let Some(prefix) = &prefix {
            add(usage, format!("{prefix}/requests.storage"), storage.clone());
        }
        add(usage, "requests.storage", storage);
    }
}

/// Devices of one request or alternative: its class and how many.
fn devices(request: &Value) -> (&str, i64) {
    let count = match request.text("allocationMode") {
        // As many as a claim can have at all.
        "All" => i64::try_from(ALLOCATION_RESULTS).unwrap_or(i64::MAX),
        _ => request.int("count").max(1),
    };
    (request.text("deviceClassName"), count)
}

/// The name of the pod of an extended resource claim.
pub fn special_owner(claim: &Value) -> Option<&str> {
    controller(claim).map(|owner| owner.text("name"))
}

/// The owner of a claim for extended resources.
fn controller(claim: &Value) -> Option<&Value> {
    let metadata = claim.at("metadata");
    if metadata
        .at("annotations")
        .text(EXTENDED_RESOURCE_CLAIM_ANNOTATION)
        != "true"
    {
        return None;
    }
    let mut owners = metadata.list("ownerReferences").iter();
    owners.find(|o| {
        o.opt_bool("controller") == Some(true)
            && o.text("kind") == "Pod"
            && o.text("apiVersion") == "v1"
    })
}

/// The first claim for extended resources of each pod, by creation time and name. What a pod asks for pays for one claim:
/// until the status of the pod names that claim, it is the first one.
#[derive(Debug, Clone, Default)]
pub struct FirstClaims(BTreeMap<String, (String, String)>);

impl FirstClaims {
    /// Adds a claim that is stored, if it is one for extended resources.
    pub fn insert(&mut self, claim: &Value) {
        let Some(owner) = controller(claim) else {
            return;
        };
        let age = age(claim);
        match self.0.get_mut(owner.text("uid")) {
            Some(first) if *first <= age => {}
            Some(first) => *first = age,
            None => {
                self.0.insert(owner.text("uid").to_owned(), age);
            }
        }
    }

    /// Lets the claims precede one that is about to be created, also within a second and whatever its name.
    pub fn precede_new(&mut self) {
        self.0
            .values_mut()
            .for_each(|age| *age = Default::default());
    }

    fn has_earlier(&self, pod_uid: &str, claim: &Value) -> bool {
        self.0.get(pod_uid).is_some_and(|first| *first < age(claim))
    }
}

/// Orders claims as they were created, and by name within a second.
fn age(claim: &Value) -> (String, String) {
    let metadata = claim.at("metadata");
    let text = |name| metadata.text(name).to_owned();
    (text("creationTimestamp"), text("name"))
}

/// The pod's charged usage, for an extended resource claim.
fn charged_already(claim: &Value, lookups: Lookups<'_>) -> Usage {
    let mut charged = Usage::new();
    let owner = controller(claim);
    let pod = owner.and_then(|o| {
        let pod = (lookups.pod)(o.text("name"))?;
        let uid = o.text("uid");
        let of_pod = pod.at("status").at("extendedResourceClaimStatus");
        let other = if of_pod.is_object() {
            of_pod.text("resourceClaimName") != claim.at("metadata").text("name")
        } else {
            lookups.first.has_earlier(uid, claim)
        };
        (pod.at("metadata").text("uid") == uid && !other).then_some(pod)
    });
    if let Some(pod) = pod {
        pods::usage(&pod, &mut charged);
    }
    charged
}

fn claim(object: &Value, lookups: Lookups<'_>, usage: &mut Usage) {
    // A claim can ask for more devices than 64 bits count.
    let mut per_class = Usage::new();
    for request in object.at("spec").at("devices").list("requests") {
        let mut worst: BTreeMap<&str, i64> = BTreeMap::new();
        if request.has("exactly") {
            let (class, count) = devices(request.at("exactly"));
            worst.insert(class, count);
        }
        // One of the alternatives will be allocated: for each class the largest counts.
        for alternative in request.list("firstAvailable") {
            let (class, count) = devices(alternative);
            let entry = worst.entry(class).or_default();
            *entry = count.max(*entry);
        }
        for (class, count) in worst {
            add(&mut per_class, class, count.into());
        }
    }
    // By all names that the devices could have been asked for, less what the pod has asked for.
    let charged = charged_already(object, lookups);
    for (class, count) in per_class {
        add(usage, format!("{class}{DEVICES}"), count.clone());
        let explicit = (lookups.extended)(&class).map(|name| format!("requests.{name}"));
        for name in explicit.into_iter().chain([format!("{IMPLICIT}{class}")]) {
            let rest = match charged.get(&name) {
                Some(charged) => count.checked_sub(charged),
                None => Some(count.clone()),
            };
            if let Some(rest) = rest.filter(|r| *r > Quantity::default()) {
                add(usage, name, rest);
            }
        }
    }
}

/// The class whose allocated devices a name in `hard` limits. Unlike all other names it is nothing to admission, since
/// devices are allocated later: the scheduler does not allocate more, and the quota controller shows what is allocated.
/// Other schedulers and servers ignore it.
pub fn allocated_class(name: &str) -> Option<&str> {
    name.strip_suffix(ALLOCATED)
}

/// The name in `hard` for the allocated devices of a class.
pub fn allocated_name(class: &str) -> String {
    format!("{class}{ALLOCATED}")
}

/// The resources (group and name) whose objects count for a name in `hard`.
pub fn constrained(name: &str) -> Vec<(String, String)> {
    let core = |resource: &str| vec![(String::new(), resource.to_owned())];
    let claims = || ("resource.k8s.io".to_owned(), "resourceclaims".to_owned());
    if let Some(counted) = name.strip_prefix("count/") {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        return vec![(group.to_owned(), resource.to_owned())];
    }
    if name.ends_with(DEVICES) || allocated_class(name).is_some() {
        return vec![claims()];
    }
    if name == "requests.storage" || name.contains(".storageclass.storage.k8s.io/") {
        return core("persistentvolumeclaims");
    }
    if PLAIN_COUNTS.contains(&name) {
        return core(name);
    }
    if name.starts_with("services.") {
        return core("services");
    }
    let mut both = core("pods");
    if name.starts_with("requests.") && name.contains('/') {
        both.push(claims());
    }
    both
}

/// Why a write is refused; the text follows `is forbidden: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded(pub String);

/// Names of `hard` in the form of upstream's messages.
fn listed(amounts: &BTreeMap<&str, String>) -> String {
    amounts
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Whether `delta` (what the write adds) fits into a quota. Returns the new `status.used` if the quota limits any
/// of it, nothing if it does not matter for this quota.
///
/// # Errors
/// The exceeded quota, in upstream's words.
pub fn admit(quota: &Value, delta: &Usage) -> Result<Option<Usage>, Exceeded> {
    let status = quota.at("status");
    // As in upstream, a quota applies once its controller has seen it.
    let Some(hard) = status.at("hard").as_object() else {
        return Ok(None);
    };
    let mut used: Usage = Usage::new();
    for (name, amount) in status.at("used").as_object().into_iter().flatten() {
        used.insert(
            name.clone(),
            Quantity::from_json(amount).unwrap_or_default(),
        );
    }
    let mut touched = false;
    let (mut requested, mut before, mut limited) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (name, limit) in hard {
        let Some(more) = delta.get(name).filter(|d| !d.is_zero()) else {
            continue;
        };
        touched = true;
        let limit = Quantity::from_json(limit).unwrap_or_default();
        let now = used.get(name).cloned().unwrap_or_default();
        let sum = amounts::sum(&now, more);
        // Reducing the usage is always allowed.
        if more.signum() > 0 && sum > limit {
            requested.insert(name.as_str(), more.to_string());
            before.insert(name.as_str(), now.to_string());
            limited.insert(name.as_str(), limit.to_string());
        }
        used.insert(name.clone(), sum);
    }
    if !requested.is_empty() {
        return Err(Exceeded(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota.at("metadata").text("name"),
            listed(&requested),
            listed(&before),
            listed(&limited),
        )));
    }
    Ok(touched.then_some(used))
}

/// Compute resources that the containers of a pod have to state because a quota limits them: `failed quota: …`
/// otherwise.
///
/// # Errors
/// The names that are missing and the containers, in upstream's words.
pub fn must_specify(quota: &Value, pod: &Value) -> Result<(), Exceeded> {
    let mut missing: Vec<String> = limited(quota)
        .filter(|name| pods::must_be_stated(name))
        .filter_map(|name| {
            let silent: Vec<&str> = pods::silent(pod, name).into_iter().collect();
            (!silent.is_empty()).then(|| format!("{name} for: {}", silent.join(",")))
        })
        .collect();
    missing.sort_unstable();
    if missing.is_empty() {
        return Ok(());
    }
    let name = quota.at("metadata").text("name");
    Err(Exceeded(format!(
        "failed quota: {name}: must specify {}",
        missing.join("; ")
    )))
}

fn limited(quota: &Value) -> impl Iterator<Item = &str> {
    let hard = quota.at("status").at("hard").as_object();
    hard.into_iter().flatten().map(|(name, _)| name.as_str())
}

/// The names in a quota's limits that objects of a resource count for, sorted.
pub fn restricted<'a>(quota: &'a Value, group: &str, resource: &str) -> Vec<&'a str> {
    let concerned = |name: &&str| {
        let kinds = constrained(name);
        allocated_class(name).is_none() && kinds.iter().any(|(g, r)| g == group && r == resource)
    };
    let mut names: Vec<&str> = limited(quota).filter(concerned).collect();
    names.sort_unstable();
    names
}

/// A quota that limits the usage of objects of a resource must have that usage in its status.
///
/// # Errors
/// The limits, in upstream's words, if it does not.
pub fn must_be_known(quota: &Value, group: &str, resource: &str) -> Result<(), Exceeded> {
    let names = restricted(quota, group, resource);
    let used = quota.at("status").at("used");
    if names.iter().all(|name| used.has(name)) {
        return Ok(());
    }
    let name = quota.at("metadata").text("name");
    Err(Exceeded(format!(
        "status unknown for quota: {name}, resources: {}",
        names.join(",")
    )))
}
