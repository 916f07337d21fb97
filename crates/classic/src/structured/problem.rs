//! Allocation of a claim with structured parameters on one node.

use std::collections::BTreeMap;

use allot_apimachinery::well_known::LABEL_HOSTNAME;
use allot_cel::named_resources::{EvalError, Selector};
use allot_model::classic::objects::{
    Allocation, AllocationResult, DriverRequests, InstanceName, ResourceHandle, StructuredHandle,
};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::Structured;
use crate::claims::Claims;

/// Instances in use by node: driver and name.
#[derive(Debug, Default)]
pub struct Used(FxHashMap<String, FxHashSet<(String, String)>>);

impl Used {
    /// What all claims hold, written or being written.
    pub fn of(claims: &Claims) -> Self {
        let mut used = Self::default();
        for claim in claims.iter() {
            if let Some(allocation) = &claim.status.allocation {
                used.add(allocation, &claim.status.driver_name);
            }
        }
        for (driver, allocation) in claims.allocations_in_flight() {
            used.add(allocation, driver);
        }
        used
    }

    fn add(&mut self, allocation: &Allocation, default: &str) {
        for handle in &allocation.resource_handles {
            let Some(data) = &handle.structured_data else {
                continue;
            };
            let driver = match handle.driver_name.as_str() {
                "" => default,
                driver => driver,
            };
            let names = data
                .results
                .iter()
                .filter_map(|r| r.named_resources.as_ref());
            let on_node = self.0.entry(data.node_name.clone()).or_default();
            on_node.extend(names.map(|n| (driver.to_owned(), n.name.clone())));
        }
    }

    fn contains(&self, node: &str, driver: &str, name: &str) -> bool {
        self.0
            .get(node)
            .is_some_and(|used| used.iter().any(|(d, n)| d == driver && n == name))
    }
}

/// The requests of a claim to one driver.
#[derive(Debug)]
pub(super) struct OfDriver {
    pub(super) requests: DriverRequests,
    pub(super) selectors: Vec<Selector>,
    /// The filter of the class.
    pub(super) filter: Option<Selector>,
    pub(super) class_parameters: Value,
}

/// A claim to allocate, with the parameters of claim and class and compiled selectors.
#[derive(Debug)]
pub struct Problem {
    /// The driver of the class.
    pub driver: String,
    pub(super) shareable: bool,
    pub(super) drivers: Vec<OfDriver>,
}

impl Problem {
    /// Finds instances on a node; `None` when there are not enough. Adds the instances to `taken` (driver and name).
    ///
    /// # Errors
    /// A selector cannot be evaluated for an instance.
    pub fn allocate(
        &self,
        node: &str,
        cx: &Structured,
        used: &Used,
        taken: &mut Vec<(String, String)>,
    ) -> Result<Option<Allocation>, EvalError> {
        let mut handles = Vec::new();
        for of_driver in &self.drivers {
            let driver = &of_driver.requests.driver_name;
            let slices = cx.slices.get(node).and_then(|n| n.get(driver));
            let mut results = Vec::new();
            for (request, selector) in of_driver.requests.requests.iter().zip(&of_driver.selectors)
            {
                let mut found = None;
                for (name, instance) in slices.into_iter().flat_map(BTreeMap::values).flatten() {
                    let is_taken = taken.iter().any(|(d, n)| d == driver && n == name);
                    if is_taken || used.contains(node, driver, name) {
                        continue;
                    }
                    let matches = |s: &Selector| s.matches(instance);
                    if of_driver.filter.as_ref().map_or(Ok(true), matches)? && matches(selector)? {
                        found = Some(name);
                        break;
                    }
                }
                let Some(name) = found else { return Ok(None) };
                taken.push((driver.clone(), name.clone()));
                results.push(AllocationResult {
                    vendor_request_parameters: request.vendor_parameters.clone(),
                    named_resources: Some(InstanceName { name: name.clone() }),
                });
            }
            handles.push(ResourceHandle {
                driver_name: driver.clone(),
                data: String::new(),
                structured_data: Some(StructuredHandle {
                    vendor_class_parameters: of_driver.class_parameters.clone(),
                    vendor_claim_parameters: of_driver.requests.vendor_parameters.clone(),
                    node_name: node.to_owned(),
                    results,
                }),
            });
        }
        Ok(Some(Allocation {
            resource_handles: handles,
            available_on_nodes: Some(only(node)),
            shareable: self.shareable,
            ..Allocation::default()
        }))
    }
}

/// The node as the scheduler of 1.30 names it: by its label.
fn only(node: &str) -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![NodeSelectorRequirement {
                key: LABEL_HOSTNAME.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            match_fields: None,
        }],
    }
}
