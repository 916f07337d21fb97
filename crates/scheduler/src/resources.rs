//! Amounts of node resources: what a node offers and what pods ask for.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

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

    /// Whether nothing is asked for.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory == 0
            && self.ephemeral == 0
            && self.scalars.iter().all(|(_, a)| *a == 0)
    }
}

fn requests_of(requirements: Option<&ResourceRequirements>) -> Resources {
    Resources::from_list(requirements.and_then(|r| r.requests.as_ref()))
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What a pod asks for as a whole: the sum of its containers or the largest step of its initialisation, whichever is
/// more, then pod-level resources, then overhead. Rule: upstream's `PodRequests`.
pub fn pod_requests(pod: &Pod) -> Resources {
    aggregate(pod, requests_of)
}

/// Like [`pod_requests`], with the defaults for containers that ask for no CPU or memory; used for scoring only.
pub fn pod_requests_nonzero(pod: &Pod) -> (i64, i64) {
    let total = aggregate(pod, |requirements| {
        let requests = requirements.and_then(|r| r.requests.as_ref());
        let mut out = Resources::from_list(requests);
        let asks = |name: &str| requests.is_some_and(|r| r.contains_key(name));
        if !asks("cpu") {
            out.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if !asks("memory") {
            out.memory = DEFAULT_MEMORY;
        }
        out
    });
    (total.milli_cpu, total.memory)
}

fn aggregate(pod: &Pod, of: impl Fn(Option<&ResourceRequirements>) -> Resources) -> Resources {
    let Some(spec) = &pod.spec else {
        return Resources::default();
    };
    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&of(container.resources.as_ref()));
    }
    // Sidecars run beside everything that starts after them; other init containers run alone, beside the sidecars
    // before them.
    let mut sidecars = Resources::default();
    let mut largest = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container.resources.as_ref());
        let mut step = own.clone();
        if is_sidecar(container) {
            total.add(&own);
            sidecars.add(&own);
            step = sidecars.clone();
        } else {
            step.add(&sidecars);
        }
        largest.max(&step);
    }
    total.max(&largest);
    if let Some(list) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let pod_level = Resources::from_list(Some(list));
        if list.contains_key("cpu") {
            total.milli_cpu = pod_level.milli_cpu;
        }
        if list.contains_key("memory") {
            total.memory = pod_level.memory;
        }
        for (name, amount) in pod_level
            .scalars
            .iter()
            .filter(|(n, _)| n.starts_with("hugepages-"))
        {
            total.set_scalar(name, *amount);
        }
    }
    total.add(&Resources::from_list(spec.overhead.as_ref()));
    total
}

#[cfg(test)]
mod tests;
