//! Claims, prepared once for allocation on many nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1 as api;
use smol_str::{SmolStr, format_smolstr};

use crate::capacity::Quantity;
use crate::features::Features;
use crate::fingerprint::{self, Wide};
use crate::selector::{Selector, SelectorCache};

mod budget;
mod build;
mod shapes;

pub(crate) use budget::Budget;
pub use budget::Excess;
use build::Builder;
pub use shapes::ClaimShapes;
pub(crate) use shapes::LIMIT as SHAPES;

/// Most devices that one claim can get.
pub const MAX_RESULTS: i64 = 32;

/// The source of device classes.
pub trait Classes {
    /// The class with this name.
    fn class(&self, name: &str) -> Option<&api::DeviceClass>;

    /// The error about a class that does not exist; the default is that of a lister of client-go.
    fn not_found(&self, name: &str) -> String {
        format!("deviceclass.resource.k8s.io {name:?} not found")
    }
}

impl Classes for BTreeMap<String, api::DeviceClass> {
    fn class(&self, name: &str) -> Option<&api::DeviceClass> {
        self.get(name)
    }
}

impl Classes for [api::DeviceClass] {
    fn class(&self, name: &str) -> Option<&api::DeviceClass> {
        self.iter()
            .find(|c| c.metadata.name.as_deref() == Some(name))
    }
}

impl Classes for Vec<api::DeviceClass> {
    fn class(&self, name: &str) -> Option<&api::DeviceClass> {
        self.as_slice().class(name)
    }
}

/// The claims of one pod (or of several placed as one), checked and compiled.
///
/// Preparing never fails: an invalid claim causes an error when it is allocated, in the same order in which Kubernetes
/// finds it.
#[derive(Debug, Clone)]
pub struct Claims {
    /// Equal only for claims with equal requests, during the life of the process; see [`ClaimShapes`].
    pub(crate) shape: u64,
    /// The attributes that selectors and constraints read, sorted; `None` = any.
    pub(crate) attributes: Option<Box<[Wide]>>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) alternatives: Vec<Alternative>,
    /// The limits that some choice of alternatives would exceed.
    pub(crate) budgets: Vec<Budget>,
    /// Some request has allocation mode All, so that checking needs a node.
    pub(crate) any_all: bool,
    /// Some class has configuration for its devices.
    pub(crate) any_class_config: bool,
    /// The first error that does not depend on nodes; only when `any_all` is not set.
    pub(crate) error: Option<String>,
}

/// A prepared claim.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// `namespace/name`, as error texts show it.
    pub(crate) shown: SmolStr,
    pub(crate) name: SmolStr,
    pub(crate) requests: Vec<Request>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) constraint_error: Option<String>,
    pub(crate) config: Vec<api::DeviceClaimConfiguration>,
}

impl Claim {
    /// Its namespace; empty if it is unknown.
    pub(crate) fn namespace(&self) -> &str {
        let parts = self.shown.rsplit_once('/');
        parts.map_or("", |(namespace, _)| namespace)
    }
}

/// One request of a claim: exactly one alternative, or a list of which the first that works is taken.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) name: SmolStr,
    pub(crate) is_list: bool,
    /// Index of the first alternative and of the one behind the last.
    pub(crate) alternatives: (u32, u32),
    pub(crate) error: Option<String>,
}

/// The allocation mode: how many devices an alternative requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact(i64),
    All,
    Unsupported,
}

/// A request or subrequest.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    pub(crate) claim: u32,
    pub(crate) request: u32,
    pub(crate) name: SmolStr,
    /// `request` or `request/subrequest`, as results show it.
    pub(crate) result_name: SmolStr,
    pub(crate) mode: Mode,
    pub(crate) admin: bool,
    pub(crate) class: Arc<Class>,
    pub(crate) selectors: Vec<Arc<Selector>>,
    pub(crate) tolerations: Option<Vec<api::DeviceToleration>>,
    pub(crate) capacity: Vec<(SmolStr, Quantity)>,
    /// Index of the limit on the devices of its class.
    pub(crate) budget: Option<u32>,
    /// The constraints of the claim that cover it.
    pub(crate) constraints: Vec<u32>,
    pub(crate) error: Option<String>,
}

/// A device class.
#[derive(Debug, Clone, Default)]
pub(crate) struct Class {
    pub(crate) name: SmolStr,
    pub(crate) selectors: Vec<Arc<Selector>>,
    pub(crate) config: Vec<api::DeviceClassConfiguration>,
}

/// A condition on several devices together.
#[derive(Debug, Clone)]
pub(crate) struct Constraint {
    pub(crate) kind: ConstraintKind,
    pub(crate) attribute: SmolStr,
}

/// What the devices have to have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConstraintKind {
    /// `matchAttribute`: all devices have the same value.
    Match,
    /// `distinctAttribute`: no two devices have the same value.
    Distinct,
}

impl Claims {
    /// The number of requests of all claims; a list of alternatives is one.
    pub fn requests(&self) -> usize {
        self.claims.iter().map(|claim| claim.requests.len()).sum()
    }

    /// Prepares claims for allocation in clusters with these features.
    pub fn prepare<'a>(
        features: &Features,
        selectors: &SelectorCache,
        classes: &(impl Classes + ?Sized),
        claims: impl IntoIterator<Item = &'a api::ResourceClaim>,
    ) -> Self {
        let mut prepared = Self {
            shape: crate::next_id::next_id(),
            attributes: None,
            claims: Vec::new(),
            alternatives: Vec::new(),
            budgets: Vec::new(),
            any_all: false,
            any_class_config: false,
            error: None,
        };
        let mut builder = Builder {
            features,
            selectors,
            classes,
            known: Vec::new(),
        };
        for claim in claims {
            builder.claim(&mut prepared, claim);
        }
        prepared.any_all = prepared
            .alternatives
            .iter()
            .any(|a| a.mode == Mode::All && a.error.is_none());
        prepared.any_class_config = prepared
            .alternatives
            .iter()
            .any(|a| !a.class.config.is_empty());
        prepared.attributes = prepared.read_attributes();
        if !prepared.any_all {
            prepared.error = prepared.check(&|_| 0);
        }
        prepared
    }

    fn read_attributes(&self) -> Option<Box<[Wide]>> {
        let mut names = Vec::new();
        for alternative in &self.alternatives {
            for selector in alternative
                .class
                .selectors
                .iter()
                .chain(&alternative.selectors)
            {
                let read = selector.attributes()?;
                names.extend(
                    read.iter()
                        .map(|(domain, id)| fingerprint::name(domain, id)),
                );
            }
        }
        for constraint in self.claims.iter().flat_map(|claim| &claim.constraints) {
            let (domain, id) = constraint.attribute.split_once('/')?;
            names.push(fingerprint::name(domain, id));
        }
        names.sort_unstable();
        names.dedup();
        Some(names.into())
    }

    /// The number of claims.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether there is nothing to allocate.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(crate) fn alternatives_of(&self, request: &Request) -> &[Alternative] {
        &self.alternatives[request.alternatives.0 as usize..request.alternatives.1 as usize]
    }

    /// The first error, given the number of devices that "all" means for an alternative.
    pub(crate) fn check(&self, all: &dyn Fn(usize) -> i64) -> Option<String> {
        for claim in &self.claims {
            if let Some(error) = self.check_claim(claim, all) {
                return Some(error);
            }
        }
        None
    }

    fn check_claim(&self, claim: &Claim, all: &dyn Fn(usize) -> i64) -> Option<String> {
        for request in &claim.requests {
            let alternatives = self
                .alternatives_of(request)
                .iter()
                .map(|a| a.error.as_ref());
            if let Some(error) = std::iter::once(request.error.as_ref())
                .chain(alternatives)
                .flatten()
                .next()
            {
                return Some(error.clone());
            }
        }
        self.check_limits(claim, all)
    }

    /// The checks that follow after all requests of a claim.
    pub(crate) fn check_limits(&self, claim: &Claim, all: &dyn Fn(usize) -> i64) -> Option<String> {
        let minimum = |request: &Request| {
            let range = request.alternatives.0 as usize..request.alternatives.1 as usize;
            let counts = range.map(|index| match self.alternatives[index].mode {
                Mode::Exact(count) => count,
                Mode::All => all(index),
                Mode::Unsupported => 0,
            });
            counts.min().unwrap_or(0)
        };
        let devices = claim
            .requests
            .iter()
            .map(minimum)
            .fold(0, i64::saturating_add);
        if devices > MAX_RESULTS {
            return Some(format!(
                "claim {}: number of requested devices {devices} exceeds the claim limit of {MAX_RESULTS}",
                claim.shown
            ));
        }
        claim.constraint_error.clone()
    }
}
