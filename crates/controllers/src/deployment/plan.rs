//! How many replicas each replica set of a deployment gets. Numbers in, numbers out.

use k8s_openapi::api::apps::v1::DeploymentSpec;

use crate::controller::meta::scaled;

#[cfg(test)]
mod tests;

/// The inputs of the plan about a replica set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// `spec.replicas`.
    pub spec: i32,
    /// `status.replicas`.
    pub status: i32,
    /// `status.availableReplicas`.
    pub available: i32,
    /// Annotation `max-replicas`: desired plus surge when it was last scaled.
    pub max: Option<i32>,
    /// Annotation `desired-replicas`.
    pub desired: Option<i32>,
}

/// The limits of a rolling update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub replicas: i32,
    pub surge: i32,
    pub unavailable: i32,
}

impl Limits {
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = spec.replicas.unwrap_or(1);
        let rolling = spec
            .strategy
            .as_ref()
            .and_then(|s| s.rolling_update.as_ref());
        let recreate = is_recreate(spec);
        let surge = scaled(
            rolling.and_then(|r| r.max_surge.as_ref()),
            replicas,
            true,
            0,
        );
        let mut unavailable = scaled(
            rolling.and_then(|r| r.max_unavailable.as_ref()),
            replicas,
            false,
            0,
        );
        if surge == 0 && unavailable == 0 {
            // Both may round to zero; progress needs one of them.
            unavailable = 1;
        }
        Self {
            replicas,
            surge: if recreate { 0 } else { surge },
            unavailable: if recreate {
                0
            } else {
                unavailable.min(replicas)
            },
        }
    }

    /// The largest number of replicas at a time.
    pub(super) fn most(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }
}

/// The replicas of several sets together.
fn total(sets: &[Size]) -> i64 {
    sets.iter().map(|set| i64::from(set.spec)).sum()
}

/// As a number of replicas.
fn saturated(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

pub(super) fn is_recreate(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().and_then(|s| s.type_.as_deref()) == Some("Recreate")
}

/// The size of the new replica set in the next step of a rolling update.
pub(super) fn grow_new(limits: Limits, new: &Size, old: &[Size]) -> i32 {
    if new.spec >= limits.replicas {
        return limits.replicas;
    }
    let room = i64::from(limits.most()) - total(old) - i64::from(new.spec);
    let room = room.clamp(0, i64::from(limits.replicas - new.spec));
    new.spec + saturated(room)
}

/// The sizes of the old replica sets (oldest first) in the next step of a rolling update: first
/// unavailable replicas are removed, then as many as availability permits.
pub(super) fn shrink_old(limits: Limits, new: &Size, old: &[Size]) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|s| s.spec).collect();
    let minimum = i64::from(limits.replicas - limits.unavailable);
    let budget = total(old) - minimum + i64::from(new.available);
    if budget <= 0 {
        return sizes;
    }
    let mut budget = saturated(budget);
    for (size, set) in sizes.iter_mut().zip(old) {
        let unhealthy = (*size - set.available).clamp(0, budget);
        *size -= unhealthy;
        budget -= unhealthy;
    }
    let all = std::iter::once(new).chain(old);
    let available: i64 = all.map(|s| i64::from(s.available)).sum();
    let mut spare = saturated((available - minimum).max(0));
    for size in &mut sizes {
        let down = (*size).min(spare);
        *size -= down;
        spare -= down;
    }
    sizes
}

/// Sizes after the deployment was scaled in the middle of a rollout, or while paused. `sets` are
/// all replica sets, oldest first, the new one (if any) at `new`.
pub(super) fn scale(limits: Limits, sets: &[Size], new: Option<usize>, rolling: bool) -> Vec<i32> {
    let mut sizes: Vec<i32> = sets.iter().map(|s| s.spec).collect();
    let active: Vec<usize> = (0..sets.len()).filter(|i| sets[*i].spec > 0).collect();
    let single = match active.as_slice() {
        [] => new.or_else(|| sets.len().checked_sub(1)),
        [one] => Some(*one),
        _ => None,
    };
    if let Some(single) = single {
        sizes[single] = limits.replicas;
        return sizes;
    }
    if let Some(new) = new
        && sets[new].spec == limits.replicas
        && sets[new].desired == Some(limits.replicas)
        && sets[new].available == limits.replicas
    {
        for (i, size) in sizes.iter_mut().enumerate() {
            if i != new {
                *size = 0;
            }
        }
        return sizes;
    }
    if !rolling {
        return sizes;
    }
    let total: i64 = active.iter().map(|i| i64::from(sets[*i].spec)).sum();
    let allowed = if limits.replicas > 0 {
        limits.most()
    } else {
        0
    };
    let change = saturated(i64::from(allowed) - total);
    let mut order = active;
    // The biggest first; of equal ones the newest when growing, the oldest when shrinking.
    order.sort_by(|a, b| {
        let age = if change > 0 { b.cmp(a) } else { a.cmp(b) };
        sets[*b].spec.cmp(&sets[*a].spec).then(age)
    });
    let mut done = 0;
    for i in &order {
        let left = change - done;
        if left == 0 {
            break;
        }
        let share = fraction(limits, &sets[*i], total);
        let share = if change > 0 {
            share.clamp(0, left.max(0))
        } else {
            share.clamp(left.min(0), 0)
        };
        sizes[*i] = sizes[*i].saturating_add(share);
        done += share;
    }
    if let Some(first) = order.first() {
        sizes[*first] = sizes[*first].saturating_add(change - done).max(0);
    }
    sizes
}

fn fraction(limits: Limits, set: &Size, total: i64) -> i32 {
    if limits.replicas == 0 {
        return -set.spec;
    }
    let before = set.max.filter(|m| *m > 0).map_or(total, i64::from).max(1);
    let wanted = f64::from(set.spec) * f64::from(limits.most()) / before as f64;
    // Sizes are integers within what f64 holds exactly; larger ones become the largest of all.
    (wanted.round() as i32).saturating_sub(set.spec)
}

/// Whether the deployment was scaled since its replica sets were: their annotation differs.
pub(super) fn was_scaled(replicas: i32, sets: &[Size]) -> bool {
    sets.iter()
        .filter(|s| s.spec > 0)
        .any(|s| s.desired.is_some_and(|d| d != replicas))
}
