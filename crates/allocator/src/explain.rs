//! Explanations of an attempt: why claims fit a node or do not.

use std::fmt::Write as _;

use serde::Serialize;

use crate::allocator::Allocator;
use crate::attempt::{Attempt, Scratch, pools_of};
use crate::claims::{Alternative, Claims, ConstraintKind, Mode};
use crate::cluster::Cluster;
use crate::node::Node;
use crate::observer::{Observer, Place, Proof};
use crate::outcome::{Limits, Outcome, Policy};
use crate::pool::ViewState;
use crate::selector::SelectorCache;

mod filter_counts;
mod mistakes;
mod nearest_miss;
mod nearness;

pub use filter_counts::{InUse, NearMiss, Stage, StageKind};
pub use nearness::Nearness;

/// Why claims can or cannot be allocated on a node: for each request the number of devices that each check leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Name of the node.
    pub node: String,
    /// Whether the claims can be allocated on the node.
    pub fits: bool,
    /// The explanation in one line, for events and command lines.
    pub line: String,
    /// Every request of every claim; of a list, every alternative.
    pub requests: Vec<RequestExplanation>,
    /// Pools that cannot be used on this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unusable_pools: Vec<UnusablePool>,
}

/// The explanation of a request: how many devices pass each check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestExplanation {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// How many devices the request needs; with allocation mode All, how many it selects.
    pub needs: i64,
    /// How many devices remain after each check, in order.
    #[serde(rename = "funnel")]
    pub filter_counts: Vec<Stage>,
    /// Devices that fail only because other claims hold them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<InUse>,
    /// If there are too few devices: the one that comes nearest, and what it lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearMiss>,
}

/// A pool that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnusablePool {
    /// Name of the driver.
    pub driver: String,
    /// Name of the pool.
    pub pool: String,
    /// Why the pool cannot be used: it is incomplete or invalid, in the words of the allocator's error.
    pub reason: String,
}

impl RequestExplanation {
    /// The number of devices that pass every check.
    pub fn left(&self) -> i64 {
        self.filter_counts.last().map_or(0, |stage| stage.left)
    }

    /// Whether too few devices pass every check, even if no other request gets a device.
    fn short(&self) -> bool {
        self.left() < self.needs.max(1)
    }
}

/// Records the first proof that the claims cannot be allocated.
#[derive(Debug, Default)]
struct Trace {
    proof: Option<Proof>,
}

impl Observer for Trace {
    fn proven(&mut self, proof: Proof) {
        self.proof.get_or_insert(proof);
    }
}

impl Allocator {
    /// Like [`Allocator::allocate`], with the reasons. Much slower: it checks every device for every request.
    pub fn explain(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        claims: &Claims,
        limits: &Limits<'_>,
    ) -> (Outcome, Explanation) {
        let mut trace = Trace::default();
        let outcome = self.observed(cluster, node, claims, limits, &mut trace);
        let mut explanation = Explanation {
            node: node.name().to_string(),
            fits: matches!(outcome, Outcome::Allocated(_)),
            line: String::new(),
            requests: Vec::new(),
            unusable_pools: Vec::new(),
        };
        let mut scratch = Scratch::default();
        let mut observer = ();
        if let Ok(parts) = pools_of(cluster, node) {
            let policy = Policy::FirstFit;
            let mut attempt = Attempt::new(
                cluster,
                node,
                claims,
                policy,
                parts,
                &mut scratch,
                &mut observer,
            );
            explanation.unusable_pools = unusable(&attempt);
            let cache = SelectorCache::new();
            for id in 0..claims.alternatives.len() as u32 {
                explanation
                    .requests
                    .push(filter_counts::explain(&mut attempt, id, &cache));
            }
        }
        explanation.line = line(claims, &outcome, &explanation, trace.proof);
        (outcome, explanation)
    }
}

/// The pools of the node that cannot be used.
fn unusable<O>(attempt: &Attempt<'_, O>) -> Vec<UnusablePool> {
    let pools = attempt.parts.iter().filter_map(|part| {
        let reason = match &part.view.state {
            ViewState::Usable => return None,
            ViewState::Incomplete => match part.pool.info.seen_and_expected() {
                (seen, expected) if seen < expected => format!(
                    "some of its slices are not published yet ({seen} of {expected} are there)"
                ),
                _ => "some of its slices are not published yet".to_owned(),
            },
            ViewState::Invalid(reason) => reason.clone(),
        };
        Some(UnusablePool {
            driver: part.pool.info.driver.to_string(),
            pool: part.pool.info.name.to_string(),
            reason,
        })
    });
    pools.collect()
}

/// The line of an [`Explanation`].
fn line(
    claims: &Claims,
    outcome: &Outcome,
    explanation: &Explanation,
    proof: Option<Proof>,
) -> String {
    let mut text = match outcome {
        Outcome::Allocated(found) => {
            let devices = found
                .devices(claims)
                .map(|d| format!("{}={}/{}", d.request, d.pool, d.device));
            return format!("fits: {}", devices.collect::<Vec<_>>().join(", "));
        }
        Outcome::Interrupted => return "stopped before the answer was known".into(),
        Outcome::GaveUp { steps } => {
            return format!("gave up after {steps} steps, the answer is not known");
        }
        Outcome::Failed(error) if error.kind == crate::ErrorKind::Fatal => {
            return error.text.clone() + suggestion(&error.text, &explanation.requests);
        }
        Outcome::Failed(error) => format!("{error}; "),
        Outcome::DoesNotFit => String::new(),
    };
    let list = unsatisfiable(claims, explanation);
    if list.is_empty() {
        text += &joint_reason(claims, proof);
    }
    for (index, request) in list.iter().enumerate() {
        let separator = if index > 0 { "; or " } else { "" };
        let _ = write!(text, "{separator}{}", filter_counts::sentence(request));
    }
    for pool in &explanation.unusable_pools {
        let _ = write!(
            text,
            "; pool {}/{} cannot be used: {}",
            pool.driver, pool.pool, pool.reason
        );
    }
    text
}

/// The likely correction of a selector that failed with this error, as found on the nearest device; empty without one.
fn suggestion<'a>(error: &str, requests: &'a [RequestExplanation]) -> &'a str {
    let reasons = requests.iter().filter_map(|r| r.nearest.as_ref());
    let mut hints = reasons.filter_map(|near| {
        let end = near.reason.find("; ")?;
        let (failed, hint) = near.reason.split_at(end);
        error.ends_with(failed).then_some(hint)
    });
    hints.next().unwrap_or_default()
}

/// The alternatives of the first request that cannot be satisfied even alone; empty if there is no
/// such request.
fn unsatisfiable<'a>(claims: &Claims, explanation: &'a Explanation) -> &'a [RequestExplanation] {
    let requests = claims.claims.iter().flat_map(|c| &c.requests);
    let mut ranges = requests.map(|r| r.alternatives.0 as usize..r.alternatives.1 as usize);
    ranges
        .find_map(|range| {
            let list = explanation.requests.get(range)?;
            list.iter().all(RequestExplanation::short).then_some(list)
        })
        .unwrap_or_default()
}

/// Why requests that could each be satisfied alone cannot be satisfied together.
fn joint_reason(claims: &Claims, proof: Option<Proof>) -> String {
    match proof {
        Some(Proof::Constraint { claim, constraint }) => {
            let claim = &claims.claims[claim as usize];
            let constraint = &claim.constraints[constraint as usize];
            let what = match constraint.kind {
                ConstraintKind::Match => "enough devices with the same",
                ConstraintKind::Distinct => "enough devices with different",
            };
            format!(
                "claim {}: there are not {what} {}",
                claim.shown, constraint.attribute
            )
        }
        Some(Proof::Counters) => "the shared counters do not allow as many devices".into(),
        Some(Proof::Devices) => "there are not enough devices for all requests together".into(),
        Some(Proof::Budget(id)) => {
            let alternative = &claims.alternatives[id as usize];
            let (claim, request) = shown_request(claims, alternative);
            format!(
                "claim {claim}, request {request}: a limit on the devices of class {} does not allow as many",
                alternative.class.name
            )
        }
        Some(Proof::Request(_)) | None => {
            "no choice of devices suits all requests and constraints together".into()
        }
    }
}

/// The names of an alternative's claim and request, as messages show them.
fn shown_request(claims: &Claims, alternative: &Alternative) -> (String, String) {
    let claim = &claims.claims[alternative.claim as usize];
    (claim.shown.to_string(), alternative.result_name.to_string())
}

/// How many devices an alternative needs, if that does not depend on the node.
fn fixed_count(alternative: &Alternative) -> Option<i64> {
    match alternative.mode {
        Mode::Exact(count) => Some(count),
        _ => None,
    }
}

/// `pool/device`.
fn shown_device(place: &Place<'_>) -> String {
    format!("{}/{}", place.pool.info.name, place.device.name)
}
