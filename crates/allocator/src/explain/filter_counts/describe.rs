//! What a device lacks to pass a check, in words.

use super::{Failed, Stage, StageKind, nearest_miss};
use crate::attempt::Attempt;
use crate::claims::Alternative;
use crate::holder::{Holder, name_holders};
use crate::observer::{Observer, Place};
use crate::selector::SelectorCache;

/// What a device lacks to pass a stage.
pub(super) fn describe<O: Observer>(
    attempt: &Attempt<'_, O>,
    alternative: &Alternative,
    place: &Place<'_>,
    stages: &[Stage],
    stage: usize,
    cache: &SelectorCache,
) -> Failed {
    let (device, driver) = (place.device, &place.pool.info.driver);
    let kind = stages[stage].kind;
    let selector = || {
        let before = stages[..stage].iter().filter(|s| s.kind == kind).count();
        match kind {
            StageKind::Class => alternative.class.selectors.get(before),
            _ => alternative.selectors.get(before),
        }
    };
    let (wrong, reason) = match kind {
        StageKind::Class | StageKind::Selector => match selector() {
            Some(selector) => {
                nearest_miss::describe(&attempt.features, cache, selector, driver, device)
            }
            None => (1, String::new()),
        },
        StageKind::Node if device.scope.has_several_terms() => {
            (1, "its node selector must have exactly one term".to_owned())
        }
        StageKind::Node => (1, "it is for other nodes".to_owned()),
        StageKind::Taints => {
            let taint = attempt.blocking_taint(alternative, place);
            let taint = taint.map_or_else(String::new, |t| t.to_string());
            (1, format!("taint {taint} is not tolerated"))
        }
        StageKind::InUse => {
            let claim = &attempt.claims.claims[alternative.claim as usize];
            let by = name_holders(claim.namespace(), dedicated(place));
            let by = match by.is_empty() {
                true => "in use".to_owned(),
                false => format!("in use by {by}"),
            };
            (1, by)
        }
        StageKind::Capacity => (1, lacking(alternative, place)),
        StageKind::Counters => (1, counters(attempt, place)),
        StageKind::Seen | StageKind::Constraint => (1, String::new()),
    };
    Failed {
        stage,
        wrong,
        reason,
    }
}

/// The claims that have the device for themselves.
pub(super) fn dedicated<'a>(place: &Place<'a>) -> impl Iterator<Item = &'a Holder> {
    let used = place.pool.usage.device(&place.device.name);
    used.into_iter()
        .flat_map(|u| u.dedicated.iter().map(|h| &**h))
}

/// The capacity that is missing.
pub(super) fn lacking(alternative: &Alternative, place: &Place<'_>) -> String {
    let device = place.device;
    let unknown = alternative
        .capacity
        .iter()
        .find(|(name, _)| device.capacity.iter().all(|c| c.name != *name));
    if let Some((name, _)) = unknown {
        return format!("it has no capacity {name}");
    }
    for capacity in &device.capacity {
        let consumed = capacity.consumed(alternative.requested(&capacity.name));
        let (name, value) = (&capacity.name, &capacity.value);
        if capacity.refuses(consumed.amount()) {
            let consumed = consumed.shown(value.format());
            return format!("its policy for {name} does not allow {consumed}");
        }
        let used = place
            .pool
            .usage
            .device(&device.name)
            .map(|u| u.consumed(name))
            .unwrap_or_default();
        if used.plus(consumed.amount()) > value.amount {
            let format = value.format();
            let (left, takes) = (
                value.amount.minus(used).shown(format),
                consumed.shown(format),
            );
            return format!(
                "{name} {left} left of {}, request takes {takes}",
                value.text
            );
        }
    }
    "not enough capacity".into()
}

pub(super) fn counters_fit<O: Observer>(attempt: &Attempt<'_, O>, place: &Place<'_>) -> bool {
    !place.device.consumes_counters()
        || attempt.features.partitionable_devices
            && (attempt.counters_paid(place) || attempt.counters_fit(place))
}

/// The counter that is missing.
pub(super) fn counters<O: Observer>(attempt: &Attempt<'_, O>, place: &Place<'_>) -> String {
    if !attempt.features.partitionable_devices {
        return "it consumes counters, but the DRAPartitionableDevices feature is disabled".into();
    }
    let lacking = (place.pool.info).lacking_counter(place.slot, place.pool.usage.available());
    lacking.unwrap_or_else(|| match place.pool.usage.has_unpublished() {
        true => "a device of its pool is allocated and not published any more, so that what is left of the counters is not known".into(),
        false => "a shared counter of its pool is overdrawn".into(),
    })
}
