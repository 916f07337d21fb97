//! Structured parameters of 1.30: the scheduler allocates instances that the kubelets publish.
//!
//! The rules are exactly those of that release: requests in order, the first instance that fits, no backtracking, only
//! resources of one node. Instances in use follow from all claims, written or in flight; they are counted once per
//! attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_cel::named_resources::{Attribute, CompileError, Instance, Selector, compile};
use allot_framework::pod::{Key, key_of};
use allot_model::GROUP;
use allot_model::classic::objects::{
    ClaimParameters, ClassParameters, DriverRequests, ParametersReference, ResourceClaim,
    ResourceClass, ResourceRequest, ResourceSlice,
};
use allot_reflector::Observed;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

mod problem;

use problem::OfDriver;
pub use problem::{Problem, Used};

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
    selectors: Mutex<FxHashMap<String, Result<Selector, ParametersError>>>,
}

/// Why a claim with structured parameters cannot be allocated on any node.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ParametersError {
    /// The object that claim or class refer to does not exist, or a driver has not generated it yet.
    #[error("{what} {namespace}/{name} not found")]
    Missing {
        /// The kind of the missing parameters, for the message.
        what: String,
        /// Namespace of the referenced object; empty for an object of the cluster.
        namespace: String,
        /// Name of the referenced object.
        name: String,
    },
    /// A selector of the parameters does not compile.
    #[error("selector {expression:?}: {source}")]
    Selector {
        /// The CEL expression.
        expression: String,
        /// The error of the compiler.
        source: CompileError,
    },
}

impl ParametersError {
    fn missing(what: &str, namespace: &str, name: &str) -> Self {
        Self::Missing {
            what: what.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
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
    /// Parameters are missing, or a selector in them does not compile.
    pub fn problem(
        &self,
        claim: &ResourceClaim,
        class: &ResourceClass,
    ) -> Result<Problem, ParametersError> {
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

    fn selector(&self, expression: &str) -> Result<Selector, ParametersError> {
        let mut known = self.selectors.lock();
        if let Some(found) = known.get(expression) {
            return found.clone();
        }
        if known.len() > 1024 {
            known.clear();
        }
        let compiled = compile(expression).map_err(|source| ParametersError::Selector {
            expression: expression.to_owned(),
            source,
        });
        known.insert(expression.to_owned(), compiled.clone());
        compiled
    }

    fn parameters_of_claim(
        &self,
        claim: &ResourceClaim,
        class: &ResourceClass,
    ) -> Result<Arc<ClaimParameters>, ParametersError> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let Some(reference) = &claim.spec.parameters_ref else {
            return Ok(Arc::new(default_parameters(&class.driver_name)));
        };
        let name = &reference.name;
        let missing = |what: &str| ParametersError::missing(what, namespace, name);
        if reference.api_group == GROUP && reference.kind == "ResourceClaimParameters" {
            let found = self.claim_parameters.get(&Key::new(namespace, name));
            return found.cloned().ok_or_else(|| missing("claim parameters"));
        }
        let generated = self.claim_parameters.iter().find(|(key, parameters)| {
            let from = parameters.generated_from.as_ref();
            *key.namespace == *namespace && from.is_some_and(|f| is_from(f, reference))
        });
        let found = generated.map(|(_, parameters)| parameters.clone());
        found.ok_or_else(|| {
            let kind = kind_of(reference);
            missing(&format!("generated claim parameters for {kind}"))
        })
    }

    fn parameters_of_class(
        &self,
        class: &ResourceClass,
    ) -> Result<Option<Arc<ClassParameters>>, ParametersError> {
        let Some(reference) = &class.parameters_ref else {
            return Ok(None);
        };
        let (namespace, name) = (&reference.namespace, &reference.name);
        let missing = |what: &str| ParametersError::missing(what, namespace, name);
        if reference.api_group == GROUP && reference.kind == "ResourceClassParameters" {
            let found = self.class_parameters.get(&Key::new(namespace, name));
            return found
                .cloned()
                .map(Some)
                .ok_or_else(|| missing("class parameters"));
        }
        let generated = self.class_parameters.values().find(|parameters| {
            let from = parameters.generated_from.as_ref();
            from.is_some_and(|f| is_from(f, reference) && f.namespace == reference.namespace)
        });
        generated.cloned().map(Some).ok_or_else(|| {
            let kind = kind_of(reference);
            missing(&format!("generated class parameters for {kind}"))
        })
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
