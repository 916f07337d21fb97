//! Claims with equal requests.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Alternative, Claim, Claims, Class, Constraint, Request};
use crate::selector::Selector;

/// Limit of remembered shapes.
pub(crate) const LIMIT: usize = 16;

/// The shapes of recently prepared claims: nearly all claims of a cluster come from a few templates.
///
/// An [`Allocator`](crate::Allocator) caches answers by shape: the answer of a node for one claim is valid for all
/// claims that differ only in their names.
#[derive(Debug, Default)]
pub struct ClaimShapes {
    /// Claims of each shape, the most recently used first.
    recent: VecDeque<Claims>,
}

impl ClaimShapes {
    /// Assigns claims the shape of earlier ones with equal requests and classes. All must be prepared for the same
    /// features.
    pub fn recognize(&mut self, claims: &mut Claims) {
        // The texts of errors contain the names of claims.
        if claims.have_errors() {
            return;
        }
        let known = self
            .recent
            .iter()
            .position(|known| known.is_equivalent(claims));
        match known.and_then(|at| self.recent.remove(at)) {
            Some(known) => {
                claims.shape = known.shape;
                self.recent.push_front(known);
            }
            None => {
                self.recent.truncate(LIMIT - 1);
                self.recent.push_front(claims.clone());
            }
        }
    }
}

/// Whether the elements of two lists are equivalent, one by one.
fn all_equivalent<T>(a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

// The patterns below name all fields, so that a new field causes a compile error.

impl Claims {
    fn have_errors(&self) -> bool {
        let of_claim = |claim: &Claim| {
            claim.constraint_error.is_some() || claim.requests.iter().any(|r| r.error.is_some())
        };
        self.error.is_some()
            || self.claims.iter().any(of_claim)
            || self.alternatives.iter().any(|a| a.error.is_some())
    }

    /// Whether the search gives the same answer for both, if they are valid: they differ only in names and configuration.
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self {
            shape: _,
            attributes: _,
            claims,
            alternatives,
            budgets,
            any_all: _,
            any_class_config: _,
            error: _,
        } = self;
        all_equivalent(claims, &other.claims, Claim::is_equivalent)
            && all_equivalent(
                alternatives,
                &other.alternatives,
                Alternative::is_equivalent,
            )
            && all_equivalent(budgets, &other.budgets, |a, b| a.left == b.left)
    }
}

impl Claim {
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self {
            shown: _,
            name: _,
            requests,
            constraints,
            constraint_error: _,
            config: _,
        } = self;
        all_equivalent(requests, &other.requests, Request::is_equivalent)
            && all_equivalent(constraints, &other.constraints, Constraint::is_equivalent)
    }
}

impl Request {
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self {
            name: _,
            is_list,
            alternatives,
            error: _,
        } = self;
        (*is_list, *alternatives) == (other.is_list, other.alternatives)
    }
}

impl Constraint {
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self { kind, attribute } = self;
        (*kind, attribute) == (other.kind, &other.attribute)
    }
}

impl Alternative {
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self {
            claim,
            request,
            name: _,
            result_name: _,
            mode,
            admin,
            class,
            selectors,
            tolerations,
            capacity,
            budget,
            constraints,
            error: _,
        } = self;
        (*claim, *request, *mode, *admin) == (other.claim, other.request, other.mode, other.admin)
            && class.is_equivalent(&other.class)
            && all_equivalent(selectors, &other.selectors, same_selector)
            && *tolerations == other.tolerations
            && *capacity == other.capacity
            && *budget == other.budget
            && *constraints == other.constraints
    }
}

impl Class {
    fn is_equivalent(&self, other: &Self) -> bool {
        let Self {
            name: _,
            selectors,
            config: _,
        } = self;
        all_equivalent(selectors, &other.selectors, same_selector)
    }
}

fn same_selector(a: &Arc<Selector>, b: &Arc<Selector>) -> bool {
    Arc::ptr_eq(a, b) || a.expression == b.expression
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1 as api;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Features, SelectorCache};

    const MODEL: &str = "device.attributes['d'].model == 'a'";

    /// Claims for devices of a class `c` whose selector may be given.
    fn prepare(claims: &[Value], class: &str, selectors: &SelectorCache) -> Claims {
        let class: api::DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": "c"},
            "spec": {"selectors": [{"cel": {"expression": class}}]},
        }))
        .expect("a class");
        let read = |v: &Value| serde_json::from_value(v.clone()).expect("a claim");
        let claims: Vec<api::ResourceClaim> = claims.iter().map(read).collect();
        Claims::prepare(&Features::default(), selectors, &vec![class], &claims)
    }

    fn claim(name: &str, exactly: Value, constraints: Value) -> Value {
        let mut all = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
        for (key, value) in exactly.as_object().expect("fields") {
            all[key] = value.clone();
        }
        let request = json!({"name": "r", "exactly": all});
        json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"devices": {"requests": [request], "constraints": constraints}},
        })
    }

    /// Whether claims are taken for such as were seen before.
    #[track_caller]
    fn check(first: &[Value], class: &str, second: &[Value], other_class: &str, alike: bool) {
        let (mut shapes, selectors) = (ClaimShapes::default(), SelectorCache::new());
        let mut first = prepare(first, class, &selectors);
        shapes.recognize(&mut first);
        let mut second = prepare(second, other_class, &selectors);
        shapes.recognize(&mut second);
        assert_eq!(first.shape == second.shape, alike);
    }

    #[test]
    fn names_make_no_difference_and_everything_else_does() {
        let plain = || claim("a", json!({}), json!([]));
        let same = || claim("b", json!({}), json!([]));
        check(&[plain()], MODEL, &[same()], MODEL, true);
        check(&[plain()], MODEL, &[same()], "true", false);
        check(&[plain()], MODEL, &[plain(), same()], MODEL, false);
        let constraint = json!([{"matchAttribute": "d/model"}]);
        let others = [
            claim("b", json!({"count": 2}), json!([])),
            claim("b", json!({"allocationMode": "All"}), json!([])),
            claim("b", json!({"adminAccess": true}), json!([])),
            claim(
                "b",
                json!({"tolerations": [{"operator": "Exists"}]}),
                json!([]),
            ),
            claim(
                "b",
                json!({"capacity": {"requests": {"m": "1"}}}),
                json!([]),
            ),
            claim(
                "b",
                json!({"selectors": [{"cel": {"expression": MODEL}}]}),
                json!([]),
            ),
            claim("b", json!({}), constraint),
        ];
        for other in others {
            check(&[plain()], MODEL, &[other], MODEL, false);
        }
    }

    #[test]
    fn errors_tell_of_their_own_claim() {
        let of = |name| claim(name, json!({"deviceClassName": "missing"}), json!([]));
        check(&[of("a")], MODEL, &[of("b")], MODEL, false);
    }

    #[test]
    fn as_many_forms_are_known_as_said() {
        let (mut shapes, selectors) = (ClaimShapes::default(), SelectorCache::new());
        let mut ask = |count: usize| {
            let mut claims = prepare(
                &[claim("a", json!({"count": count}), json!([]))],
                MODEL,
                &selectors,
            );
            shapes.recognize(&mut claims);
            claims.shape
        };
        let (first, second) = (ask(1), ask(2));
        assert_eq!(ask(1), first);
        for count in 3..LIMIT + 2 {
            ask(count);
        }
        assert_eq!(ask(1), first, "asked for again, so that another one went");
        assert_ne!(ask(2), second);
    }
}
