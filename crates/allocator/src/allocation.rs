//! The result of an allocation and its form in the API.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use smol_str::SmolStr;

use crate::claims::{Alternative, Claim, Claims};
use crate::device::Device;
use crate::pool::PoolInfo;

/// Devices for all claims of an attempt.
///
/// Cheap to keep: it refers to the cluster's data. [`Allocation::results`] converts it to the form written to the
/// claims.
#[derive(Debug, Clone)]
pub struct Allocation {
    pub(crate) node: SmolStr,
    pub(crate) binding_conditions: bool,
    pub(crate) picks: Vec<Picked>,
}

#[derive(Debug, Clone)]
pub(crate) struct Picked {
    pub(crate) claim: u32,
    pub(crate) alternative: u32,
    pub(crate) pool: Arc<PoolInfo>,
    pub(crate) slot: u32,
    pub(crate) shared: bool,
}

/// A device of an [`Allocation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocatedDevice<'a> {
    /// Index of the claim.
    pub claim: usize,
    /// `request` or `request/subrequest`.
    pub request: &'a str,
    /// For a request with a list, which of the alternatives was taken.
    pub alternative: Option<usize>,
    /// Name of the driver.
    pub driver: &'a str,
    /// Name of the pool.
    pub pool: &'a str,
    /// Name of the device.
    pub device: &'a str,
    /// The device serves others as well.
    pub shared: bool,
}

/// Why an allocation has no form in the API; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms"
)]
pub struct ResultsError {
    /// Name of the claim.
    pub claim: SmolStr,
    /// The number of terms in the node selector of a slice; the API allows one.
    pub terms: usize,
}

impl Picked {
    fn device(&self) -> &Device {
        self.pool.device(self.slot)
    }

    /// Scope of the device: whether it is on one node by name, and its node selector.
    fn scope(&self) -> (bool, Option<&core::NodeSelector>) {
        let (slice, device) = (self.pool.slice(self.slot), self.device());
        match slice.per_device {
            true => (device.has_node_name, device.scope.selector()),
            false => (slice.has_node_name, slice.selector()),
        }
    }
}

impl Allocation {
    /// The node that the devices are for.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The devices, in the order of claims and requests. `claims` must be the allocated ones.
    pub fn devices<'a>(&'a self, claims: &'a Claims) -> impl Iterator<Item = AllocatedDevice<'a>> {
        self.picks.iter().map(|pick| {
            let alternative = &claims.alternatives[pick.alternative as usize];
            let request =
                &claims.claims[pick.claim as usize].requests[alternative.request as usize];
            AllocatedDevice {
                claim: pick.claim as usize,
                request: &alternative.result_name,
                alternative: request
                    .is_list
                    .then(|| (pick.alternative - request.alternatives.0) as usize),
                driver: &pick.pool.driver,
                pool: &pick.pool.name,
                device: &pick.device().name,
                shared: pick.shared,
            }
        })
    }

    /// Checks that [`Allocation::results`] will succeed, without building the results in the usual case.
    ///
    /// # Errors
    /// As in [`Allocation::results`].
    pub fn check(&self, claims: &Claims) -> Result<(), ResultsError> {
        let has_terms = |pick: &Picked| {
            let scope = pick.scope().1;
            scope.is_some_and(|s| s.node_selector_terms.len() > 1)
        };
        match self.picks.iter().any(has_terms) {
            true => self.results(claims, &mut String::new).map(drop),
            false => Ok(()),
        }
    }

    /// One result per claim, in the form of the API, without `allocationTimestamp`. `share_id` returns a new UUID for each
    /// share of a device.
    ///
    /// # Errors
    /// A slice has a node selector that validation would reject.
    pub fn results(
        &self,
        claims: &Claims,
        share_id: &mut dyn FnMut() -> String,
    ) -> Result<Vec<api::AllocationResult>, ResultsError> {
        let mut rest = self.picks.as_slice();
        let mut results = Vec::with_capacity(claims.claims.len());
        for (index, claim) in claims.claims.iter().enumerate() {
            let (own, others) = rest.split_at(
                rest.iter()
                    .take_while(|p| p.claim as usize == index)
                    .count(),
            );
            rest = others;
            let node_selector = self.node_selector(claim, own)?;
            let config = config(claims, claim, own);
            results.push(api::AllocationResult {
                devices: Some(api::DeviceAllocationResult {
                    results: Some(
                        own.iter()
                            .map(|pick| self.result(claims, pick, share_id))
                            .collect(),
                    ),
                    config: (!config.is_empty()).then_some(config),
                }),
                node_selector,
                allocation_timestamp: None,
            });
        }
        Ok(results)
    }

    fn result(
        &self,
        claims: &Claims,
        pick: &Picked,
        share_id: &mut dyn FnMut() -> String,
    ) -> api::DeviceRequestAllocationResult {
        let alternative = &claims.alternatives[pick.alternative as usize];
        let device = pick.device();
        let conditions = |list: &Option<Box<[String]>>| {
            list.as_ref()
                .filter(|l| self.binding_conditions && !l.is_empty())
                .map(|l| l.to_vec())
        };
        api::DeviceRequestAllocationResult {
            request: alternative.result_name.to_string(),
            driver: pick.pool.driver.to_string(),
            pool: pick.pool.name.to_string(),
            device: device.name.to_string(),
            admin_access: alternative.admin.then_some(true),
            tolerations: alternative.tolerations.clone(),
            binding_conditions: conditions(&device.binding_conditions),
            binding_failure_conditions: conditions(&device.binding_failure_conditions),
            share_id: pick.shared.then(share_id),
            consumed_capacity: (pick.shared && !device.capacity.is_empty()).then(|| {
                let consumed = device.capacity.iter().map(|capacity| {
                    let consumed = capacity.consumed(alternative.requested(&capacity.name));
                    (capacity.name.to_string(), ApiQuantity(consumed.text()))
                });
                consumed.collect()
            }),
        }
    }

    /// Nodes for pods that use these devices of a claim; `None` means all nodes.
    fn node_selector(
        &self,
        claim: &Claim,
        picks: &[Picked],
    ) -> Result<Option<core::NodeSelector>, ResultsError> {
        let mut term = core::NodeSelectorTerm::default();
        for pick in picks {
            let (has_node_name, scope) = pick.scope();
            if has_node_name || pick.device().binds_to_node {
                term = core::NodeSelectorTerm {
                    match_fields: Some(vec![core::NodeSelectorRequirement {
                        key: "metadata.name".into(),
                        operator: "In".into(),
                        values: Some(vec![self.node.to_string()]),
                    }]),
                    match_expressions: None,
                };
                break;
            }
            match scope.map_or(&[][..], |s| s.node_selector_terms.as_slice()) {
                [] => {}
                [one] => {
                    add_requirements(&one.match_fields, &mut term.match_fields);
                    add_requirements(&one.match_expressions, &mut term.match_expressions);
                }
                terms => {
                    return Err(ResultsError {
                        claim: claim.name.clone(),
                        terms: terms.len(),
                    });
                }
            }
        }
        let limited = term.match_fields.is_some() || term.match_expressions.is_some();
        Ok(limited.then(|| core::NodeSelector {
            node_selector_terms: vec![term],
        }))
    }
}

fn add_requirements(
    from: &Option<Vec<core::NodeSelectorRequirement>>,
    to: &mut Option<Vec<core::NodeSelectorRequirement>>,
) {
    let values = |r: &core::NodeSelectorRequirement| {
        let mut values = r.values.clone().unwrap_or_default();
        values.sort();
        values.dedup();
        values
    };
    for requirement in from.iter().flatten() {
        let known = to.iter().flatten().any(|r| {
            r.key == requirement.key
                && r.operator == requirement.operator
                && values(r) == values(requirement)
        });
        if !known {
            to.get_or_insert_default().push(requirement.clone());
        }
    }
}

/// The configuration for the drivers: of each class once, then of the claim.
fn config(
    claims: &Claims,
    claim: &Claim,
    picks: &[Picked],
) -> Vec<api::DeviceAllocationConfiguration> {
    let mut config: Vec<api::DeviceAllocationConfiguration> = Vec::new();
    if claim.config.is_empty() && !claims.any_class_config {
        return config;
    }
    let mut classes: Vec<(SmolStr, std::ops::Range<usize>)> = Vec::new();
    let chosen: Vec<&Alternative> = (0..claim.requests.len())
        .map(|r| chosen(claims, claim, r, picks))
        .collect();
    for alternative in &chosen {
        let name = alternative.result_name.to_string();
        if let Some((_, range)) = classes
            .iter()
            .find(|(class, _)| *class == alternative.class.name)
        {
            for entry in &mut config[range.clone()] {
                entry.requests.get_or_insert_default().push(name.clone());
            }
            continue;
        }
        let start = config.len();
        config.extend(alternative.class.config.iter().map(|entry| {
            api::DeviceAllocationConfiguration {
                source: "FromClass".into(),
                requests: Some(vec![name.clone()]),
                opaque: entry.opaque.clone(),
            }
        }));
        classes.push((alternative.class.name.clone(), start..config.len()));
    }
    for entry in &claim.config {
        let requests = entry.requests.as_deref().unwrap_or_default();
        let made = api::DeviceAllocationConfiguration {
            source: "FromClaim".into(),
            requests: entry.requests.clone().filter(|r| !r.is_empty()),
            opaque: entry.opaque.clone(),
        };
        if requests.is_empty() {
            config.push(made);
            continue;
        }
        // Upstream adds the entry once for each request that it is for.
        for (request, alternative) in claim.requests.iter().zip(&chosen) {
            if requests
                .iter()
                .any(|r| *r == request.name || *r == alternative.result_name)
            {
                config.push(made.clone());
            }
        }
    }
    config
}

/// The alternative that was chosen for a request. One that needs no devices leaves no trace; then it is the first such.
fn chosen<'a>(
    claims: &'a Claims,
    claim: &Claim,
    request: usize,
    picks: &[Picked],
) -> &'a Alternative {
    let range = claim.requests[request].alternatives;
    let picked = picks
        .iter()
        .map(|p| p.alternative)
        .find(|a| (range.0..range.1).contains(a));
    &claims.alternatives[picked.unwrap_or(range.0) as usize]
}
