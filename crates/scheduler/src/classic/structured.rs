//! Structured parameters of 1.30: the scheduler allocates instances that the kubelets publish.
//!
//! The rules are exactly those of that release: requests in order, the first instance that fits, no backtracking, only
//! resources of one node. Instances in use follow from all claims, written or in flight; they are counted once per
//! attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::well_known::LABEL_HOSTNAME;
use allot_cel::named_resources::{Attribute, Instance, Selector, compile};
use allot_model::GROUP;
use allot_model::classic::objects::{
    Allocation, AllocationResult, ClaimParameters, ClassParameters, DriverRequests, InstanceName,
    ParametersReference, ResourceClaim, ResourceClass, ResourceHandle, ResourceRequest,
    ResourceSlice, StructuredHandle,
};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::claims::Claims;
use super::key_of;
use crate::pod::Key;
use allot_reflector::Observed;

/// Instances of one slice.
type Instances = Vec<(String, Instance)>;

/// Structured resources and parameters.
#[derive(Debug, Default)]
pub struct Structured {
    /// By node, driver and name of the slice.
    slices: FxHashMap<String, FxHashMap<String, BTreeMap<String, Instances>>>,
    /// Node and driver of each slice.
    places: FxHashMap<String, (String, String)>,
    claim_parameters: BTreeMap<Key, Arc<ClaimParameters>>,
    class_parameters: BTreeMap<Key, Arc<ClassParameters>>,
    selectors: Mutex<FxHashMap<String, Result<Selector, String>>>,
}

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
struct OfDriver {
    requests: DriverRequests,
    selectors: Vec<Selector>,
    filter: Option<Selector>,
    class_parameters: Value,
}

/// A claim to allocate.
#[derive(Debug)]
pub struct Problem {
    /// The driver of the class.
    pub driver: String,
    shareable: bool,
    drivers: Vec<OfDriver>,
}

impl Structured {
    /// Adds, changes or removes slices.
    pub fn set_slices(&mut self, observed: Observed<ResourceSlice>) {
        match observed {
            Observed::Applied(slice) => self.set_slice(&slice),
            Observed::Deleted(slice) => {
                self.remove_slice(slice.metadata.name.as_deref().unwrap_or_default());
            }
            Observed::Listed { items, .. } => {
                self.slices.clear();
                self.places.clear();
                items.iter().for_each(|slice| self.set_slice(slice));
            }
        }
    }

    fn set_slice(&mut self, slice: &ResourceSlice) {
        let name = slice.metadata.name.clone().unwrap_or_default();
        self.remove_slice(&name);
        // Only resources of a node can be allocated.
        if slice.node_name.is_empty() {
            return;
        }
        let instances = slice.named_resources.iter().flat_map(|n| &n.instances);
        let instances = instances
            .map(|i| {
                let attributes = i.attributes.iter();
                let attributes = attributes.filter_map(|a| Some((a.name.clone(), attribute(a)?)));
                (i.name.clone(), attributes.collect())
            })
            .collect();
        let place = (slice.node_name.clone(), slice.driver_name.clone());
        let of_node = self.slices.entry(place.0.clone()).or_default();
        of_node
            .entry(place.1.clone())
            .or_default()
            .insert(name.clone(), instances);
        self.places.insert(name, place);
    }

    fn remove_slice(&mut self, name: &str) {
        let Some((node, driver)) = self.places.remove(name) else {
            return;
        };
        if let Some(slices) = self.slices.get_mut(&node).and_then(|n| n.get_mut(&driver)) {
            slices.remove(name);
        }
    }

    /// Adds, changes or removes parameters of claims.
    pub fn set_claim_parameters(&mut self, observed: Observed<ClaimParameters>) {
        update(&mut self.claim_parameters, observed, |p| {
            key_of(&p.metadata)
        });
    }

    /// Adds, changes or removes parameters of classes.
    pub fn set_class_parameters(&mut self, observed: Observed<ClassParameters>) {
        update(&mut self.class_parameters, observed, |p| {
            key_of(&p.metadata)
        });
    }

    /// Prepares a claim for being allocated on nodes.
    ///
    /// # Errors
    /// When parameters are missing or cannot be used.
    pub fn problem(&self, claim: &ResourceClaim, class: &ResourceClass) -> Result<Problem, String> {
        let parameters = self.parameters_of_claim(claim, class)?;
        let of_class = self.parameters_of_class(class)?;
        let mut drivers = Vec::new();
        for requests in &parameters.driver_requests {
            let driver = &requests.driver_name;
            let filters = of_class.iter().flat_map(|c| &c.filters);
            let filter = filters
                .filter(|f| f.driver_name == *driver)
                .find_map(|f| f.named_resources.as_ref());
            let vendor = of_class.iter().flat_map(|c| &c.vendor_parameters);
            let vendor = vendor.into_iter().find(|v| v.driver_name == *driver);
            let selectors = requests.requests.iter().map(|request| {
                let model = request.named_resources.as_ref();
                self.selector(model.map_or("", |m| &m.selector))
            });
            drivers.push(OfDriver {
                selectors: selectors.collect::<Result<_, _>>()?,
                filter: filter.map(|f| self.selector(&f.selector)).transpose()?,
                class_parameters: vendor.map_or(Value::Null, |v| v.parameters.clone()),
                requests: requests.clone(),
            });
        }
        Ok(Problem {
            driver: class.driver_name.clone(),
            shareable: parameters.shareable,
            drivers,
        })
    }

    fn selector(&self, expression: &str) -> Result<Selector, String> {
        let mut known = self.selectors.lock();
        if let Some(found) = known.get(expression) {
            return found.clone();
        }
        if known.len() > 1024 {
            known.clear();
        }
        let compiled = compile(expression).map_err(|e| format!("selector {expression:?}: {e}"));
        known.insert(expression.to_owned(), compiled.clone());
        compiled
    }

    fn parameters_of_claim(
        &self,
        claim: &ResourceClaim,
        class: &ResourceClass,
    ) -> Result<Arc<ClaimParameters>, String> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let Some(reference) = &claim.spec.parameters_ref else {
            return Ok(Arc::new(default_parameters(&class.driver_name)));
        };
        let name = &reference.name;
        if reference.api_group == GROUP && reference.kind == "ResourceClaimParameters" {
            let found = self.claim_parameters.get(&Key::new(namespace, name));
            return found
                .cloned()
                .ok_or_else(|| format!("claim parameters {namespace}/{name} not found"));
        }
        let generated = self.claim_parameters.iter().find(|(key, parameters)| {
            let from = parameters.generated_from.as_ref();
            *key.namespace == *namespace && from.is_some_and(|f| is_from(f, reference))
        });
        generated.map(|(_, p)| p.clone()).ok_or_else(|| {
            format!(
                "generated claim parameters for {} {namespace}/{name} not found",
                kind_of(reference)
            )
        })
    }

    fn parameters_of_class(
        &self,
        class: &ResourceClass,
    ) -> Result<Option<Arc<ClassParameters>>, String> {
        let Some(reference) = &class.parameters_ref else {
            return Ok(None);
        };
        let (namespace, name) = (&reference.namespace, &reference.name);
        if reference.api_group == GROUP && reference.kind == "ResourceClassParameters" {
            let found = self.class_parameters.get(&Key::new(namespace, name));
            return found
                .cloned()
                .map(Some)
                .ok_or_else(|| format!("class parameters {namespace}/{name} not found"));
        }
        let generated = self.class_parameters.values().find(|parameters| {
            let from = parameters.generated_from.as_ref();
            from.is_some_and(|f| is_from(f, reference) && f.namespace == reference.namespace)
        });
        generated.cloned().map(Some).ok_or_else(|| {
            format!(
                "generated class parameters for {} {namespace}/{name} not found",
                kind_of(reference)
            )
        })
    }
}

impl Problem {
    /// Finds instances on a node; `None` when there are not enough. Adds the instances to `taken` (driver and name).
    ///
    /// # Errors
    /// When a selector cannot be evaluated.
    pub fn allocate(
        &self,
        node: &str,
        cx: &Structured,
        used: &Used,
        taken: &mut Vec<(String, String)>,
    ) -> Result<Option<Allocation>, String> {
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
                    let matches = |s: &Selector| s.matches(instance).map_err(|e| e.to_string());
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

/// A claim without parameters requests any one resource of its class's driver.
fn default_parameters(driver: &str) -> ClaimParameters {
    ClaimParameters {
        shareable: true,
        driver_requests: vec![DriverRequests {
            driver_name: driver.to_owned(),
            requests: vec![ResourceRequest {
                named_resources: Some(allot_model::classic::objects::Selector {
                    selector: "true".to_owned(),
                }),
                ..ResourceRequest::default()
            }],
            ..DriverRequests::default()
        }],
        ..ClaimParameters::default()
    }
}

/// Whether parameters were generated from the referenced object; its API version is not compared.
fn is_from(from: &ParametersReference, reference: &ParametersReference) -> bool {
    from.api_group == reference.api_group
        && from.kind == reference.kind
        && from.name == reference.name
}

fn kind_of(reference: &ParametersReference) -> String {
    match reference.api_group.as_str() {
        "" => reference.kind.clone(),
        group => format!("{}.{group}", reference.kind),
    }
}

fn attribute(a: &allot_model::classic::objects::Attribute) -> Option<Attribute> {
    if let Some(quantity) = &a.quantity {
        return quantity.0.parse().ok().map(Attribute::Quantity);
    }
    if let Some(version) = &a.version {
        return allot_cel::semver::Version::parse(version)
            .ok()
            .map(Attribute::Version);
    }
    a.bool
        .map(Attribute::Bool)
        .or(a.int.map(Attribute::Int))
        .or_else(|| Some(Attribute::Ints(a.int_slice.as_ref()?.ints.clone())))
        .or_else(|| a.string.clone().map(Attribute::String))
        .or_else(|| Some(Attribute::Strings(a.string_slice.as_ref()?.strings.clone())))
}

fn update<T>(all: &mut BTreeMap<Key, Arc<T>>, observed: Observed<T>, key: impl Fn(&T) -> Key) {
    match observed {
        Observed::Applied(object) => {
            all.insert(key(&object), Arc::new(*object));
        }
        Observed::Deleted(object) => {
            all.remove(&key(&object));
        }
        Observed::Listed { items, .. } => {
            *all = items.into_iter().map(|o| (key(&o), Arc::new(o))).collect();
        }
    }
}
