//! Preparation of ResourceClaims for the search.

use super::*;

pub(super) struct Builder<'a, C: ?Sized> {
    pub(super) features: &'a Features,
    pub(super) selectors: &'a SelectorCache,
    pub(super) classes: &'a C,
    pub(super) known: Vec<Arc<Class>>,
}

/// The fields that requests and subrequests have in common.
struct RequestFields<'a> {
    name: &'a str,
    class: &'a str,
    mode: &'a str,
    count: i64,
    admin: Option<bool>,
    selectors: &'a [api::DeviceSelector],
    tolerations: Option<&'a Vec<api::DeviceToleration>>,
    capacity: Option<&'a api::CapacityRequirements>,
}

impl<C: Classes + ?Sized> Builder<'_, C> {
    pub(super) fn claim(&mut self, prepared: &mut Claims, claim: &api::ResourceClaim) {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let shown = match claim.metadata.namespace.as_deref().unwrap_or_default() {
            "" => SmolStr::new(name),
            namespace => format_smolstr!("{namespace}/{name}"),
        };
        let devices = claim.spec.devices.clone().unwrap_or_default();
        let source_constraints = devices.constraints.unwrap_or_default();
        let (constraints, constraint_error) = constraints(&shown, &source_constraints);
        let mut made = Claim {
            shown,
            name: SmolStr::new(name),
            requests: Vec::new(),
            constraints,
            constraint_error,
            config: devices.config.unwrap_or_default(),
        };
        for request in devices.requests.iter().flatten() {
            let first = prepared.alternatives.len();
            let list = request.first_available.as_deref().unwrap_or_default();
            let error = self.check_request(&made.shown, request, list);
            self.alternatives(&mut prepared.alternatives, &made, request, list);
            for alternative in &mut prepared.alternatives[first..] {
                alternative.claim = prepared.claims.len() as u32;
                alternative.request = made.requests.len() as u32;
                let covers = |constraint: &api::DeviceConstraint| {
                    let names = constraint.requests.as_deref().unwrap_or_default();
                    let named = |n: &String| *n == request.name || *n == alternative.result_name;
                    names.is_empty() || names.iter().any(named)
                };
                // Those behind one that is not supported are not built.
                let built = source_constraints.iter().take(made.constraints.len());
                let covering = (0..)
                    .zip(built)
                    .filter(|(_, constraint)| covers(constraint));
                alternative.constraints = covering.map(|(index, _)| index).collect();
            }
            made.requests.push(Request {
                name: SmolStr::new(&request.name),
                is_list: !list.is_empty(),
                alternatives: (first as u32, prepared.alternatives.len() as u32),
                error,
            });
        }
        prepared.claims.push(made);
    }

    /// Adds the alternatives of a request: those of its list, or the one of `exactly`.
    fn alternatives(
        &mut self,
        alternatives: &mut Vec<Alternative>,
        claim: &Claim,
        request: &api::DeviceRequest,
        list: &[api::DeviceSubRequest],
    ) {
        if list.is_empty() {
            let default = api::ExactDeviceRequest::default();
            let exactly = request.exactly.as_ref().unwrap_or(&default);
            let wanted = RequestFields {
                name: &request.name,
                class: &exactly.device_class_name,
                mode: exactly.allocation_mode.as_deref().unwrap_or_default(),
                count: exactly.count.unwrap_or_default(),
                admin: exactly.admin_access,
                selectors: exactly.selectors.as_deref().unwrap_or_default(),
                tolerations: exactly.tolerations.as_ref(),
                capacity: exactly.capacity.as_ref(),
            };
            let result_name = SmolStr::new(&request.name);
            alternatives.push(self.alternative(claim, result_name, &wanted));
        }
        for sub in list {
            let wanted = RequestFields {
                name: &sub.name,
                class: &sub.device_class_name,
                mode: sub.allocation_mode.as_deref().unwrap_or_default(),
                count: sub.count.unwrap_or_default(),
                admin: None,
                selectors: sub.selectors.as_deref().unwrap_or_default(),
                tolerations: sub.tolerations.as_ref(),
                capacity: sub.capacity.as_ref(),
            };
            let result_name = format_smolstr!("{}/{}", request.name, sub.name);
            alternatives.push(self.alternative(claim, result_name, &wanted));
        }
    }

    fn check_request(
        &self,
        claim: &str,
        request: &api::DeviceRequest,
        list: &[api::DeviceSubRequest],
    ) -> Option<String> {
        if !self.features.prioritized_list && !list.is_empty() {
            return Some(format!(
                "claim {claim}, request {}: has subrequests, but the DRAPrioritizedList feature is disabled",
                request.name
            ));
        }
        if self.features.consumable_capacity {
            return None;
        }
        let what = if request
            .exactly
            .as_ref()
            .is_some_and(|e| e.capacity.is_some())
        {
            format!("request {}", request.name)
        } else {
            format!(
                "subrequest {}",
                list.iter().find(|s| s.capacity.is_some())?.name
            )
        };
        Some(format!(
            "claim {claim}, {what}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
        ))
    }

    fn alternative(
        &mut self,
        claim: &Claim,
        result_name: SmolStr,
        wanted: &RequestFields<'_>,
    ) -> Alternative {
        let mode = match wanted.mode {
            "ExactCount" => Mode::Exact(wanted.count),
            "All" => Mode::All,
            _ => Mode::Unsupported,
        };
        let class = self.class(wanted.class);
        let error = self.check_alternative(wanted, mode, class.as_ref());
        Alternative {
            claim: 0,
            request: 0,
            name: SmolStr::new(wanted.name),
            result_name,
            mode,
            admin: wanted.admin == Some(true),
            class: class.unwrap_or_default(),
            selectors: self.compile(wanted.selectors),
            tolerations: wanted.tolerations.cloned(),
            capacity: wanted
                .capacity
                .and_then(|c| c.requests.as_ref())
                .map_or_else(Vec::new, |r| {
                    r.iter()
                        .map(|(n, q)| (SmolStr::new(n), Quantity::new(q)))
                        .collect()
                }),
            budget: None,
            constraints: Vec::new(),
            error: error.map(|e| format!("claim {}, request {}{e}", claim.shown, wanted.name)),
        }
    }

    fn check_alternative(
        &self,
        wanted: &RequestFields<'_>,
        mode: Mode,
        class: Option<&Arc<Class>>,
    ) -> Option<String> {
        if let Some(index) = wanted.selectors.iter().position(|s| s.cel.is_none()) {
            return Some(format!(
                ", selector #{index}: CEL expression empty (unsupported selector type?)"
            ));
        }
        if !self.features.admin_access && wanted.admin.is_some() {
            return Some(": admin access is requested, but the feature is disabled".into());
        }
        if wanted.class.is_empty() {
            return Some(": missing device class name (unsupported request type?)".into());
        }
        if class.is_none() {
            return Some(format!(
                ": could not retrieve device class {}: {}",
                wanted.class,
                self.classes.not_found(wanted.class)
            ));
        }
        (mode == Mode::Unsupported).then(|| format!(": unsupported count mode {}", wanted.mode))
    }

    fn class(&mut self, name: &str) -> Option<Arc<Class>> {
        if let Some(known) = self.known.iter().find(|c| c.name == name) {
            return Some(Arc::clone(known));
        }
        let class = self.classes.class(name)?;
        let made = Arc::new(Class {
            name: SmolStr::new(name),
            selectors: self.compile(class.spec.selectors.as_deref().unwrap_or_default()),
            config: class.spec.config.clone().unwrap_or_default(),
        });
        self.known.push(Arc::clone(&made));
        Some(made)
    }

    fn compile(&self, selectors: &[api::DeviceSelector]) -> Vec<Arc<Selector>> {
        let expressions = selectors
            .iter()
            .map(|s| s.cel.as_ref().map_or("", |c| c.expression.as_str()));
        expressions
            .map(|e| self.selectors.compile(self.features, e))
            .collect()
    }
}

/// The constraints of a claim up to the first that is not supported, and the error of that one.
fn constraints(claim: &str, source: &[api::DeviceConstraint]) -> (Vec<Constraint>, Option<String>) {
    let mut constraints = Vec::new();
    for (index, constraint) in source.iter().enumerate() {
        let (kind, attribute) = match (&constraint.match_attribute, &constraint.distinct_attribute)
        {
            (Some(attribute), _) => (ConstraintKind::Match, attribute),
            (_, Some(attribute)) => (ConstraintKind::Distinct, attribute),
            _ => {
                let error = format!(
                    "claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)"
                );
                return (constraints, Some(error));
            }
        };
        constraints.push(Constraint {
            kind,
            attribute: SmolStr::new(attribute),
        });
    }
    (constraints, None)
}
