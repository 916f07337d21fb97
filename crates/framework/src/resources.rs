//! Amounts of node resources: allocatable amounts and requests.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

pub mod node_allocatable;

/// CPU assumed for a container without a request when nodes are scored, in milli-CPU.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory assumed for a container without a request when nodes are scored, in bytes.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// A resource list as the API gives it.
pub type ResourceList = BTreeMap<String, ApiQuantity>;

/// Amounts per resource: CPU in thousandths, everything else in whole units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// CPU in thousandths.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral: i64,
    /// Everything else (extended resources, huge pages), sorted by name, without zeros.
    pub scalars: Vec<(Arc<str>, i64)>,
}

/// Reads an API quantity; a text that is not a quantity counts as zero, since the API server validated it.
fn quantity(q: &ApiQuantity) -> Option<Quantity> {
    Quantity::from_str(&q.0).ok()
}

/// Whole units of a quantity, rounded up.
pub fn whole(q: &ApiQuantity) -> i64 {
    quantity(q).map_or(0, |q| q.value())
}

/// Thousandths of a quantity, rounded up.
pub fn milli(q: &ApiQuantity) -> i64 {
    quantity(q).map_or(0, |q| q.milli_value())
}

impl Resources {
    /// Reads a resource list; `pods` is not part of it.
    pub fn from_list(list: Option<&ResourceList>) -> Self {
        let mut out = Self::default();
        for (name, q) in list.into_iter().flatten() {
            match name.as_str() {
                "cpu" => out.milli_cpu = milli(q),
                "memory" => out.memory = whole(q),
                "ephemeral-storage" => out.ephemeral = whole(q),
                "pods" => {}
                _ => out.set_scalar(name, whole(q)),
            }
        }
        out
    }

    /// Amount of a resource other than CPU, memory and ephemeral storage.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars
            .binary_search_by(|(n, _)| n.as_ref().cmp(name))
            .map_or(0, |i| self.scalars[i].1)
    }

    /// Amount of any resource, CPU in thousandths.
    pub fn amount(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            _ => self.scalar(name),
        }
    }

    /// Sets the amount of a scalar resource.
    pub fn set_scalar(&mut self, name: &str, amount: i64) {
        match self.scalars.binary_search_by(|(n, _)| n.as_ref().cmp(name)) {
            Ok(i) => self.scalars[i].1 = amount,
            Err(_) if amount == 0 => {}
            Err(i) => self.scalars.insert(i, (Arc::from(name), amount)),
        }
    }

    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        self.merge(other, |a, b| a.saturating_add(b));
    }

    /// Subtracts another amount.
    pub fn sub(&mut self, other: &Self) {
        self.merge(other, |a, b| a.saturating_sub(b));
    }

    /// Raises every amount to at least the other's.
    pub fn max(&mut self, other: &Self) {
        self.merge(other, i64::max);
    }

    fn merge(&mut self, other: &Self, f: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = f(self.milli_cpu, other.milli_cpu);
        self.memory = f(self.memory, other.memory);
        self.ephemeral = f(self.ephemeral, other.ephemeral);
        for (name, amount) in &other.scalars {
            match self.scalars.binary_search_by(|(n, _)| n.cmp(name)) {
                Ok(i) => self.scalars[i].1 = f(self.scalars[i].1, *amount),
                Err(i) => self.scalars.insert(i, (name.clone(), f(0, *amount))),
            }
        }
    }

    /// Whether it exceeds `other` in a resource of `wanted`.
    pub fn has_more_of(&self, wanted: &Self, other: &Self) -> bool {
        let fixed = |r: &Self| [r.milli_cpu, r.memory, r.ephemeral];
        let three = fixed(self).into_iter().zip(fixed(other)).zip(fixed(wanted));
        let scalars = wanted.scalars.iter();
        three
            .chain(scalars.map(|(n, w)| ((self.scalar(n), other.scalar(n)), *w)))
            .any(|((own, other), wanted)| wanted > 0 && own > other)
    }

    /// Whether nothing is requested: all amounts, also of scalar resources, are zero.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory == 0
            && self.ephemeral == 0
            && self.scalars.iter().all(|(_, a)| *a == 0)
    }
}

/// The requests of a pod: the sum of its containers or the largest step of its initialisation, whichever is more, then
/// pod-level resources, then overhead. For a bound pod (`running`) it is what the node still reserves for it during a
/// resize. Rule: upstream's `PodRequests`.
pub fn pod_requests(pod: &Pod, running: bool) -> Resources {
    Sum::of(pod, running, &[]).resources()
}

/// Like [`pod_requests`], with the defaults for containers that request no CPU or memory; used for scoring only.
pub fn pod_requests_nonzero(pod: &Pod, running: bool) -> (i64, i64) {
    let mut defaults = vec![
        ("cpu", i128::from(DEFAULT_MILLI_CPU) * (NANO / 1000)),
        ("memory", i128::from(DEFAULT_MEMORY) * NANO),
    ];
    // With pod-level requests, defaults apply only to resources without any request.
    if pod_level(pod).next().is_some() {
        let known = Sum::of(pod, running, &[]);
        defaults.retain(|(name, _)| !known.0.contains_key(name));
    }
    let total = Sum::of(pod, running, &defaults).resources();
    (total.milli_cpu, total.memory)
}

/// The pod-level requests.
fn pod_level(pod: &Pod) -> impl Iterator<Item = (&str, &ApiQuantity)> {
    let resources = pod.spec.as_ref().and_then(|s| s.resources.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let supported = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let named = requests.into_iter().flatten();
    named
        .map(|(name, q)| (name.as_str(), q))
        .filter(move |(name, _)| supported(name))
}

const NANO: i128 = 1_000_000_000;

/// Amounts in billionths, the finest unit of quantities: they are rounded only once, in the sum.
#[derive(Debug, Clone, Default)]
struct Sum<'a>(BTreeMap<&'a str, i128>);

impl<'a> Sum<'a> {
    fn list(list: Option<&'a ResourceList>) -> Self {
        let read = |q: &ApiQuantity| quantity(q).map_or(0, |q| q.nanos());
        let amounts = list.into_iter().flatten();
        Self(amounts.map(|(n, q)| (n.as_str(), read(q))).collect())
    }

    fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let largest = self.0.entry(name).or_insert(*amount);
            *largest = (*largest).max(*amount);
        }
    }

    fn resources(&self) -> Resources {
        let ceil = |amount: i128, unit: i128| {
            let up = amount.div_euclid(unit) + i128::from(amount.rem_euclid(unit) != 0);
            i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
        };
        let mut out = Resources::default();
        for (name, amount) in &self.0 {
            match *name {
                "cpu" => out.milli_cpu = ceil(*amount, NANO / 1000),
                "memory" => out.memory = ceil(*amount, NANO),
                "ephemeral-storage" => out.ephemeral = ceil(*amount, NANO),
                "pods" => {}
                _ => out.set_scalar(name, ceil(*amount, NANO)),
            }
        }
        out
    }

    /// The amount that a node reserves: the maximum of requested, allocated and actual resources; without the request
    /// if the resize is infeasible.
    fn held(
        pod: &Pod,
        wanted: Self,
        actual: &'a ResourceRequirements,
        allocated: Option<&'a ResourceList>,
    ) -> Self {
        let mut held = Self::list(actual.requests.as_ref());
        held.max(&Self::list(allocated));
        if !is_resize_infeasible(pod) {
            held.max(&wanted);
        }
        held
    }

    fn of(pod: &'a Pod, running: bool, defaults: &[(&'a str, i128)]) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let status = pod.status.as_ref().filter(|_| running);
        let container = |container: &'a Container, resizable: bool| {
            let requirements = container.resources.as_ref();
            let mut own = Self::list(requirements.and_then(|r| r.requests.as_ref()));
            let statuses = status.into_iter().flat_map(|s| {
                let lists = [&s.container_statuses, &s.init_container_statuses];
                lists.into_iter().flatten().flatten()
            });
            let mut status = statuses.filter(|s| resizable && s.name == container.name);
            if let Some(status) = status.next_back()
                && let Some(actual) = &status.resources
            {
                own = Self::held(pod, own, actual, status.allocated_resources.as_ref());
            }
            for (name, amount) in defaults {
                own.0.entry(name).or_insert(*amount);
            }
            own
        };
        let mut total = Self::default();
        for c in &spec.containers {
            total.add(&container(c, true));
        }
        // Sidecars run beside everything that starts after them; other init containers run alone, beside the sidecars
        // before them.
        let mut sidecars = Self::default();
        let mut largest = Self::default();
        for c in spec.init_containers.iter().flatten() {
            let sidecar = is_sidecar(c);
            let mut step = container(c, sidecar);
            if sidecar {
                total.add(&step);
                sidecars.add(&step);
                step = sidecars.clone();
            } else {
                step.add(&sidecars);
            }
            largest.max(&step);
        }
        total.max(&largest);
        let mut whole = Self::default();
        for (name, q) in pod_level(pod) {
            whole.0.insert(name, quantity(q).map_or(0, |q| q.nanos()));
        }
        if let Some(status) = status
            && let Some(actual) = &status.resources
        {
            // Only of requested resources; empty if no pod-level allocation is reported.
            let names: Vec<&str> = whole.0.keys().copied().collect();
            let held = Self::held(pod, whole, actual, status.allocated_resources.as_ref());
            let amount = |name| held.0.get(name).copied().unwrap_or(0);
            whole = Self(names.into_iter().map(|n| (n, amount(n))).collect());
        }
        total.0.extend(whole.0);
        total.add(&Self::list(spec.overhead.as_ref()));
        total
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The node can never fulfil the newest resize.
fn is_resize_infeasible(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut pending = conditions.filter(|c| c.type_ == "PodResizePending");
    pending
        .next()
        .is_some_and(|c| c.reason.as_deref() == Some("Infeasible"))
}

#[cfg(test)]
mod tests;
