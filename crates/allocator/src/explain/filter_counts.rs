//! The filter counts of one request: how many devices each check leaves.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{RequestExplanation, fixed_count, mistakes, nearest_miss, shown_device, shown_request};
use crate::attempt::Attempt;
use crate::claims::{Alternative, ConstraintKind};
use crate::observer::{Observer, Place};
use crate::pool::ViewState;
use crate::selector::SelectorCache;

mod describe;
mod sentence;

use describe::{counters_fit, dedicated, describe};
pub(super) use sentence::sentence;

/// A check and the number of remaining devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Which check it is.
    pub kind: StageKind,
    /// What exactly was checked: the selector, the constraint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Devices that passed this and all checks before.
    pub left: i64,
}

impl Stage {
    /// The rest as a text: `4 without a taint`. `show` shortens a long expression.
    pub fn words(&self, show: impl FnOnce(&str) -> String) -> String {
        let left = self.left;
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.kind {
            StageKind::Seen => format!("{left} seen"),
            StageKind::Class => format!("{left} in the class"),
            StageKind::Selector => format!("{left} selected by `{}`", show(detail)),
            StageKind::Node => format!("{left} for this node"),
            StageKind::Taints => format!("{left} without a taint"),
            StageKind::InUse => format!("{left} not in use"),
            StageKind::Capacity => format!("{left} with enough capacity"),
            StageKind::Counters => format!("{left} with enough counters"),
            StageKind::Constraint => format!("{left} together under {detail}"),
        }
    }
}

/// The checks, in the order in which they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StageKind {
    /// Devices in usable pools that the node can reach.
    Seen,
    /// A selector of the class.
    Class,
    /// A selector of the request.
    Selector,
    /// The device itself is for this node.
    Node,
    /// Taints that are not tolerated.
    Taints,
    /// The device is not in use.
    InUse,
    /// Enough capacity remains.
    Capacity,
    /// Enough of the shared counters remains.
    Counters,
    /// This many devices satisfy a constraint.
    Constraint,
}

/// A device that is only rejected because it is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InUse {
    /// `pool/device`.
    pub device: String,
    /// The claims that have it.
    pub by: Vec<String>,
}

/// A device that almost does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NearMiss {
    /// `pool/device`.
    pub device: String,
    /// What it lacks.
    pub reason: String,
}

/// What a device failed at: the index of the stage, how much is wrong, and the words for it.
struct Failed {
    stage: usize,
    wrong: usize,
    reason: String,
}

pub(super) fn explain<O: Observer>(
    attempt: &mut Attempt<'_, O>,
    id: u32,
    cache: &SelectorCache,
) -> RequestExplanation {
    let claims = attempt.claims;
    let alternative = &claims.alternatives[id as usize];
    let mut stages = stages(attempt, alternative);
    let mut passed = Vec::new();
    let mut in_use = Vec::new();
    // Of the devices that fail a check, the one that is nearest to passing it.
    let mut nearest: BTreeMap<usize, (Failed, String)> = BTreeMap::new();
    for part in 0..attempt.parts.len() {
        if attempt.parts[part].view.state != ViewState::Usable {
            continue;
        }
        for index in 0..attempt.parts[part].len() {
            let place = attempt.place(part as u32, index);
            let failed = first_failing(attempt, alternative, &place, &stages);
            let failed = failed.map(|(stage, error)| match error {
                Some(mut reason) => {
                    let driver = &place.pool.info.driver;
                    reason += &mistakes::unknown_key(&reason, driver, place.device);
                    Failed {
                        stage,
                        wrong: 1,
                        reason,
                    }
                }
                None => describe(attempt, alternative, &place, &stages, stage, cache),
            });
            let end = failed.as_ref().map_or(stages.len(), |f| f.stage);
            stages[..end].iter_mut().for_each(|stage| stage.left += 1);
            let Some(failed) = failed else {
                passed.push(place);
                continue;
            };
            if stages[failed.stage].kind == StageKind::InUse {
                in_use.push(InUse {
                    device: shown_device(&place),
                    by: dedicated(&place).map(ToString::to_string).collect(),
                });
            }
            let best = nearest.get(&failed.stage);
            if best.is_none_or(|(best, _)| failed.wrong < best.wrong) {
                nearest.insert(failed.stage, (failed, shown_device(&place)));
            }
        }
    }
    let needs = fixed_count(alternative).unwrap_or_else(|| selected(&stages));
    // Devices that fail a later check would not help, even if they passed it.
    let last = hopeless(&stages, needs).unwrap_or(usize::MAX);
    let mut nearest = nearest.into_iter().rev().find(|(stage, _)| *stage <= last);
    if in_class(&stages) > 0 {
        // Where the class has devices, those outside of it are of another kind: there are not enough.
        nearest = nearest.filter(|(stage, _)| stages[*stage].kind != StageKind::Class);
    }
    constraints(attempt, alternative, &passed, &mut stages);
    let (claim, request) = shown_request(claims, alternative);
    let mut explanation = RequestExplanation {
        claim,
        request,
        needs,
        filter_counts: stages,
        in_use,
        nearest: None,
    };
    if explanation.short() {
        explanation.nearest = nearest.map(|(_, (failed, device))| NearMiss {
            device,
            reason: failed.reason,
        });
    }
    explanation
}

/// The check after which there are too few devices even if none were in use: waiting does not help, only another request or more
/// devices.
fn hopeless(stages: &[Stage], needs: i64) -> Option<usize> {
    let short = stages.iter().position(|stage| stage.left < needs.max(1));
    short.filter(|at| stages[*at].kind <= StageKind::Node)
}

/// How many devices the class selects.
fn in_class(stages: &[Stage]) -> i64 {
    let last = stages.iter().rev().find(|s| s.kind == StageKind::Class);
    last.map_or(0, |s| s.left)
}

/// How many devices class and request select for the node. "All" is all of these, so that later checks must not lose any.
pub(super) fn selected(stages: &[Stage]) -> i64 {
    let last = stages.iter().rev().find(|s| s.kind <= StageKind::Node);
    last.map_or(0, |s| s.left)
}

/// The checks for an alternative, without checks that can never fail.
pub(super) fn stages<O: Observer>(
    attempt: &Attempt<'_, O>,
    alternative: &Alternative,
) -> Vec<Stage> {
    let stage = |kind, detail: Option<&str>| Stage {
        kind,
        detail: detail.map(str::to_owned),
        left: 0,
    };
    let mut list = vec![stage(StageKind::Seen, None)];
    let class = &alternative.class;
    if class.selectors.is_empty() {
        list.push(stage(StageKind::Class, Some(&class.name)));
    }
    list.extend(
        class
            .selectors
            .iter()
            .map(|s| stage(StageKind::Class, Some(&s.expression))),
    );
    list.extend(
        alternative
            .selectors
            .iter()
            .map(|s| stage(StageKind::Selector, Some(&s.expression))),
    );
    let slots = || {
        let parts = attempt.parts.iter();
        parts.flat_map(|p| {
            p.view
                .slots
                .iter()
                .map(|slot| (p.pool.info.slice(*slot), p.pool.info.device(*slot)))
        })
    };
    if slots().any(|(slice, _)| slice.per_device) {
        list.push(stage(StageKind::Node, None));
    }
    if attempt.features.device_taints {
        list.push(stage(StageKind::Taints, None));
    }
    if !alternative.admin {
        list.push(stage(StageKind::InUse, None));
    }
    if attempt.features.consumable_capacity
        && (!alternative.capacity.is_empty() || slots().any(|(_, device)| device.shareable))
    {
        list.push(stage(StageKind::Capacity, None));
    }
    if slots().any(|(_, device)| device.consumes_counters()) {
        list.push(stage(StageKind::Counters, None));
    }
    list
}

/// The first stage that a device does not pass, with the text of the error if the check itself failed.
pub(super) fn first_failing<O: Observer>(
    attempt: &Attempt<'_, O>,
    alternative: &Alternative,
    place: &Place<'_>,
    stages: &[Stage],
) -> Option<(usize, Option<String>)> {
    let device = place.device;
    let (mut class, mut own) = (
        alternative.class.selectors.iter(),
        alternative.selectors.iter(),
    );
    stages.iter().enumerate().find_map(|(stage, described)| {
        let fails = match described.kind {
            StageKind::Class | StageKind::Selector => {
                let list = if described.kind == StageKind::Class {
                    &mut class
                } else {
                    &mut own
                };
                match list.next()?.matches(&device.cel) {
                    Ok(matches) => !matches,
                    Err(error) => return Some((stage, Some(error.to_string()))),
                }
            }
            StageKind::Node => {
                let per_device = place.pool.info.slice(place.slot).per_device;
                match device.scope.matches(attempt.node) {
                    _ if !per_device => false,
                    Ok(matches) => !matches || device.scope.has_several_terms(),
                    Err(error) => return Some((stage, Some(error.to_string()))),
                }
            }
            StageKind::Taints => attempt.blocking_taint(alternative, place).is_some(),
            StageKind::InUse => attempt.in_use(alternative, place),
            StageKind::Capacity => !attempt.capacity_fits(alternative, place),
            StageKind::Counters => !counters_fit(attempt, place),
            StageKind::Seen | StageKind::Constraint => false,
        };
        fails.then_some((stage, None))
    })
}

/// Adds a stage for each constraint: how many of the devices that passed can be used together.
pub(super) fn constraints<O: Observer>(
    attempt: &Attempt<'_, O>,
    alternative: &Alternative,
    passed: &[Place<'_>],
    stages: &mut Vec<Stage>,
) {
    let described = &attempt.claims.claims[alternative.claim as usize].constraints;
    for constraint in alternative
        .constraints
        .iter()
        .map(|c| &described[*c as usize])
    {
        let mut values: Vec<(&crate::device::Value, i64)> = Vec::new();
        for place in passed {
            let attribute = place
                .device
                .attribute(&place.pool.info.driver, &constraint.attribute);
            for value in attribute.and_then(|a| a.values()).unwrap_or_default() {
                match values.iter_mut().find(|(v, _)| *v == value) {
                    Some((_, count)) => *count += 1,
                    None => values.push((value, 1)),
                }
            }
        }
        let (kind, left) = match constraint.kind {
            ConstraintKind::Match => (
                "matchAttribute",
                values.iter().map(|(_, n)| *n).max().unwrap_or(0),
            ),
            ConstraintKind::Distinct => ("distinctAttribute", values.len() as i64),
        };
        let before = stages.last().map_or(0, |s| s.left);
        let mut detail = format!("{kind} {}", constraint.attribute);
        if values.is_empty() && !passed.is_empty() {
            detail += &mistakes::absent_attribute(&constraint.attribute, passed);
        }
        stages.push(Stage {
            kind: StageKind::Constraint,
            detail: Some(detail),
            left: left.min(before),
        });
    }
}
