//! CPU and memory of the containers of a pod: the desired resources, the allocated ones, and those that a running container
//! has. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::amounts::{self, Amounts};
use allot_apimachinery::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rules::is_sidecar;
use crate::runtime::ReportedResources;

#[cfg(test)]
mod tests;

type List = BTreeMap<String, ApiQuantity>;

/// Quotas below this many thousandths of a processor make no difference to the kernel.
const LEAST_CPU_LIMIT: i64 = 10;
/// As are requests up to this many.
const LEAST_CPU_REQUEST: i64 = 2;

/// The amount of a resource in a list.
pub(super) fn quantity(list: Option<&List>, name: &str) -> Option<Quantity> {
    list?.get(name)?.0.parse().ok()
}

fn milli(list: Option<&List>, name: &str) -> i64 {
    quantity(list, name).map_or(0, |amount| amount.milli_value())
}

fn whole(list: Option<&List>, name: &str) -> i64 {
    quantity(list, name).map_or(0, |amount| amount.value())
}

/// Whether two lists have the same amounts; the notation may differ (`1` and `1000m`).
fn same_list(one: Option<&List>, other: Option<&List>) -> bool {
    let none = List::new();
    let (one, other) = (one.unwrap_or(&none), other.unwrap_or(&none));
    let same = |(name, amount): (&String, &ApiQuantity)| {
        other.get(name).is_some_and(|known| {
            known == amount
                || matches!(
                    (known.0.parse::<Quantity>(), amount.0.parse::<Quantity>()),
                    (Ok(known), Ok(amount)) if known == amount
                )
        })
    };
    one.len() == other.len() && one.iter().all(same)
}

fn same(one: Option<&ResourceRequirements>, other: Option<&ResourceRequirements>) -> bool {
    let list = |get: fn(&ResourceRequirements) -> Option<&List>| {
        same_list(one.and_then(get), other.and_then(get))
    };
    list(|it| it.requests.as_ref()) && list(|it| it.limits.as_ref())
}

/// The containers of a pod that can be resized: all but the ephemeral ones, which have no resources.
pub(super) fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        spec.init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
    })
}

/// The resources that a pod has been allocated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    /// Those of its containers, by name.
    containers: BTreeMap<String, ResourceRequirements>,
    /// Those of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<ResourceRequirements>,
}

impl Allocation {
    /// The desired resources of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let containers = resizable(pod).map(|container| {
            let resources = container.resources.clone();
            (container.name.clone(), resources.unwrap_or_default())
        });
        Self {
            containers: containers.collect(),
            pod: pod.spec.as_ref().and_then(|spec| spec.resources.clone()),
        }
    }

    /// The resources that are allocated to the containers of a pod by its status; the desired ones of containers of which it
    /// has none, and of the pod as a whole.
    pub(crate) fn reported(pod: &Pod, status: &PodStatus) -> Self {
        let mut allocation = Self::of(pod);
        let all = [&status.container_statuses, &status.init_container_statuses];
        for it in all.into_iter().flatten().flatten() {
            let known = allocation.containers.get_mut(&it.name);
            if let (Some(known), Some(actual)) = (known, &it.resources) {
                let requests = it.allocated_resources.as_ref();
                known.requests = requests.or(actual.requests.as_ref()).cloned();
                known.limits.clone_from(&actual.limits);
            }
        }
        allocation
    }

    /// Whether these are the desired resources of a pod.
    pub(crate) fn is_of(&self, pod: &Pod) -> bool {
        let wanted = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        same(self.pod.as_ref(), wanted)
            && resizable(pod).all(|container| {
                let known = self.containers.get(&container.name);
                known.is_none_or(|known| same(Some(known), container.resources.as_ref()))
            })
    }

    /// A pod with these resources in place of the desired ones.
    pub(crate) fn applied_to(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        if self.is_of(pod) {
            return Arc::clone(pod);
        }
        let mut pod = Pod::clone(pod);
        if let Some(spec) = &mut pod.spec {
            spec.resources.clone_from(&self.pod);
            let init = spec.init_containers.iter_mut().flatten();
            for container in init.chain(&mut spec.containers) {
                if let Some(resources) = self.containers.get(&container.name) {
                    container.resources = Some(resources.clone());
                }
            }
        }
        Arc::new(pod)
    }
}

/// The requests and limits of a container: CPU in thousandths, memory in bytes. Zero means that there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Budget {
    pub(crate) cpu_request: i64,
    pub(crate) cpu_limit: i64,
    pub(crate) memory_request: i64,
    pub(crate) memory_limit: i64,
}

impl Budget {
    /// What a container of a pod is to have. One without a limit has that of the pod.
    pub(crate) fn of(pod: &Pod, container: &Container) -> Self {
        let own = container.resources.as_ref();
        let (requests, limits) = (
            own.and_then(|own| own.requests.as_ref()),
            own.and_then(|own| own.limits.as_ref()),
        );
        let of_pod = limits_of_pod(pod);
        let or_of_pod = |own: i64, of_pod: i64| if own == 0 { of_pod } else { own };
        Self {
            cpu_request: milli(requests, "cpu"),
            cpu_limit: or_of_pod(milli(limits, "cpu"), milli(of_pod, "cpu")),
            memory_request: whole(requests, "memory"),
            memory_limit: or_of_pod(whole(limits, "memory"), whole(of_pod, "memory")),
        }
    }

    /// Whether a container has to be restarted to have another budget, by its own policies.
    pub(crate) fn needs_restart(&self, other: &Self, container: &Container) -> bool {
        let cpu = (self.cpu_request, self.cpu_limit) != (other.cpu_request, other.cpu_limit);
        let memory =
            (self.memory_request, self.memory_limit) != (other.memory_request, other.memory_limit);
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| {
            let changes = match policy.resource_name.as_str() {
                "cpu" => cpu,
                "memory" => memory,
                _ => false,
            };
            changes && policy.restart_policy == "RestartContainer"
        })
    }

    /// Whether memory is limited more than by another budget.
    pub(crate) fn has_less_memory(&self, other: &Self) -> bool {
        self.memory_limit != 0
            && (other.memory_limit == 0 || self.memory_limit < other.memory_limit)
    }
}

/// The limits of a pod as a whole.
pub(crate) fn limits_of_pod(pod: &Pod) -> Option<&List> {
    let resources = pod.spec.as_ref()?.resources.as_ref()?;
    resources.limits.as_ref()
}

/// Amounts of the resources that can be resized: processor time in thousandths of a processor, memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
}

impl Sizes {
    /// The greater amount of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }
}

/// What the containers of a pod need at once.
fn of_containers(spec: &PodSpec, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let init = spec.init_containers.iter().flatten();
    amounts::at_once(
        spec.containers.iter().map(&of),
        init.map(|container| (of(container), is_sidecar(container))),
    )
}

/// What a pod takes from its node by its requests. `held` is what containers still have that run with other resources.
pub(crate) fn requests(pod: &Pod, held: &BTreeMap<String, Budget>) -> Sizes {
    let Some(spec) = &pod.spec else {
        return Sizes::default();
    };
    let amounts_of = |list: Option<&List>| -> Amounts {
        let names = ["cpu", "memory"].into_iter();
        let known = names.filter_map(|name| Some((name.to_owned(), quantity(list, name)?)));
        known.collect()
    };
    let of = |container: &Container| {
        let own = container.resources.as_ref();
        let mut own = amounts_of(own.and_then(|own| own.requests.as_ref()));
        if let Some(held) = held.get(&container.name) {
            amounts::raise(&mut own, &held.requests());
        }
        own
    };
    let mut total = of_containers(spec, of);
    let whole = spec.resources.as_ref();
    total.extend(amounts_of(whole.and_then(|it| it.requests.as_ref())));
    amounts::add(&mut total, &amounts_of(spec.overhead.as_ref()));
    Sizes {
        cpu: total.get("cpu").map_or(0, Quantity::milli_value),
        memory: total.get("memory").map_or(0, Quantity::value),
    }
}

/// What a pod needs of a resource at once, by the requests or the limits of its containers; `None` if none of them names it.
pub(super) fn total(
    pod: &Pod,
    name: &str,
    list: fn(&ResourceRequirements) -> Option<&List>,
) -> Option<Quantity> {
    let spec = pod.spec.as_ref()?;
    let amount = |of: Option<&List>| -> Amounts {
        let known = quantity(of, name);
        known.map(|it| (name.to_owned(), it)).into_iter().collect()
    };
    let of = |container: &Container| amount(container.resources.as_ref().and_then(list));
    let mut total = of_containers(spec, of);
    if total.is_empty() {
        return None;
    }
    amounts::add(&mut total, &amount(spec.overhead.as_ref()));
    total.remove(name)
}

impl Budget {
    fn requests(&self) -> Amounts {
        [
            (
                "cpu",
                Quantity::from_milli(self.cpu_request, Format::DecimalSi),
            ),
            (
                "memory",
                Quantity::new(self.memory_request, Format::BinarySi),
            ),
        ]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
    }
}

/// Puts an amount into a list, unless it is there already in another notation.
fn put(list: &mut List, name: &str, amount: &Quantity) {
    if quantity(Some(list), name).as_ref() != Some(amount) {
        list.insert(name.to_owned(), ApiQuantity(amount.to_string()));
    }
}

fn put_cpu(list: &mut List, milli_cpu: i64, least: i64) {
    // If both are at most the smallest amount of the kernel, the allocated one is shown.
    if milli_cpu > 0 && (milli_cpu > least || milli(Some(list), "cpu") > least) {
        let amount = Quantity::from_milli(milli_cpu, Format::DecimalSi);
        put(list, "cpu", &amount);
    }
}

fn put_memory(list: &mut List, bytes: i64) {
    if bytes > 0 {
        put(list, "memory", &Quantity::new(bytes, Format::BinarySi));
    }
}

/// `resources` of a container's status: the allocated resources, and while it runs those that it has, as far as they are
/// known: those that were applied to it, and those that the runtime reports.
pub(super) fn actual(
    container: &Container,
    runs: Option<(Budget, Option<ReportedResources>)>,
) -> Value {
    let mut shown = container.resources.clone().unwrap_or_default();
    if let Some((applied, given)) = runs {
        let told = |told: Option<i64>, applied: i64| match given {
            Some(_) => told.unwrap_or(0),
            None => applied,
        };
        if let Some(limits) = &mut shown.limits {
            let cpu = told(given.and_then(|it| it.cpu_limit), applied.cpu_limit);
            put_cpu(limits, cpu, LEAST_CPU_LIMIT);
            let memory = told(given.and_then(|it| it.memory_limit), applied.memory_limit);
            put_memory(limits, memory);
        }
        if let Some(requests) = &mut shown.requests {
            let cpu = told(given.and_then(|it| it.cpu_request), applied.cpu_request);
            put_cpu(requests, cpu, LEAST_CPU_REQUEST);
            put_memory(requests, applied.memory_request);
        }
    }
    json!(shown)
}

/// `allocatedResources` of a container's status, which are its requests; `None` if it has none.
pub(super) fn allocated(container: &Container) -> Option<Value> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    (!requests.is_empty()).then(|| json!(requests))
}

/// `resources` and `allocatedResources` of the status of a pod that has resources as a whole. Until the
/// cgroup of the pod has what it has been allocated, the resize is in progress.
pub(super) fn of_pod(pod: &Pod) -> Option<(Value, Value)> {
    let whole = pod.spec.as_ref()?.resources.as_ref()?;
    let sizes = requests(pod, &BTreeMap::new());
    let mut requests = whole.requests.clone().unwrap_or_default();
    put_cpu(&mut requests, sizes.cpu, 0);
    put_memory(&mut requests, sizes.memory);
    let limits = whole.limits.clone().unwrap_or_default();
    let actual = json!({"requests": requests, "limits": limits});
    Some((actual, json!(requests)))
}
