//! Quotas of namespaces on the devices that are allocated, by class.
//!
//! A ResourceQuota that names `<class>.deviceclass.allot.dev/allocated-devices` in `hard` limits the devices that are
//! allocated to claims of its namespace; for a list of alternatives, those of the chosen one count. The API stores no
//! count: it is computed from the assume cache of claims ([`Claims`](super::claims::Claims)), so that it is right after
//! a restart as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::Quantity;
use allot_model::quota::{allocated_class, allocated_name};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::device_allocator::AllocationRequest;
use crate::pod::{Key, Uid};

/// How messages about a quota that leaves too little begin, as in the API server.
const EXCEEDED: &str = "exceeded";

/// Numbers of devices by class.
pub type ByClass = BTreeMap<String, i64>;

/// Devices that claims have, per claim and in total per namespace.
#[derive(Debug, Default)]
pub(super) struct Tally {
    claims: FxHashMap<Uid, (Arc<str>, ByClass)>,
    totals: FxHashMap<Arc<str>, ByClass>,
}

impl Tally {
    /// Sets the devices that a claim has, by class.
    pub(super) fn set(&mut self, uid: &Uid, held: Option<(Arc<str>, ByClass)>) {
        let before = match held.filter(|(_, counts)| !counts.is_empty()) {
            Some((namespace, counts)) => {
                self.add(&namespace, &counts, 1);
                self.claims.insert(uid.clone(), (namespace, counts))
            }
            None => self.claims.remove(uid),
        };
        if let Some((namespace, counts)) = before {
            self.add(&namespace, &counts, -1);
        }
    }

    fn add(&mut self, namespace: &Arc<str>, counts: &ByClass, sign: i64) {
        let totals = self.totals.entry(namespace.clone()).or_default();
        for (class, count) in counts {
            *totals.entry(class.clone()).or_default() += sign * count;
        }
        totals.retain(|_, count| *count != 0);
        if totals.is_empty() {
            self.totals.remove(namespace);
        }
    }

    /// The devices that a claim has, by class.
    pub(super) fn of(&self, uid: &str) -> Option<&ByClass> {
        self.claims.get(uid).map(|(_, counts)| counts)
    }

    /// How many devices of a class the claims of a namespace have.
    pub(super) fn total(&self, namespace: &str, class: &str) -> i64 {
        let totals = self.totals.get(namespace);
        totals.and_then(|t| t.get(class)).copied().unwrap_or(0)
    }

    fn forget(&mut self, namespace: &str) {
        self.claims.retain(|_, (of, _)| **of != *namespace);
        self.totals.remove(namespace);
    }
}

/// The quotas, and what is in use in namespaces that have some.
#[derive(Debug, Default)]
pub struct Quotas {
    /// By namespace and name of the quota.
    limits: FxHashMap<Arc<str>, BTreeMap<Arc<str>, Limits>>,
    is_listed: bool,
    /// Devices of claims as they are or will be once this scheduler's decisions are written.
    pub(super) used: Tally,
    /// Devices of claims as the watch has shown them.
    pub(super) seen: Tally,
    /// Claims that exceeded a quota when the watch showed their allocation: they give way to those before them.
    pub(super) late: FxHashMap<Uid, Key>,
}

/// The limits of a quota on allocated devices.
#[derive(Debug, Default)]
struct Limits {
    hard: ByClass,
    /// When its spec was written last, in whole seconds.
    changed: Option<Timestamp>,
}

impl Limits {
    fn of(quota: &ResourceQuota) -> Self {
        let entries = quota.metadata.managed_fields.iter().flatten();
        let of_spec = entries.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            entry.subresource.as_deref().unwrap_or_default().is_empty()
                && fields.is_some_and(|fields| fields.0["f:spec"].is_object())
        });
        Self {
            hard: limits_of(quota),
            changed: of_spec
                .filter_map(|entry| Some(entry.time.as_ref()?.0))
                .max(),
        }
    }
}

/// The use of a class in a namespace and the quota that limits it, for the message about what exceeds the quota.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shortage<'a> {
    quota: &'a str,
    class: &'a str,
    used: i64,
    hard: i64,
    changed: Option<Timestamp>,
}

impl Shortage<'_> {
    /// In the form of the API server's message about other quotas, which begins with `exceeded`.
    fn text(&self, verb: &str, requested: i64) -> String {
        let Self {
            quota, used, hard, ..
        } = self;
        let name = allocated_name(self.class);
        format!(
            "{verb} quota: {quota}, requested: {name}={requested}, used: {name}={used}, limited: {name}={hard}"
        )
    }
}

/// The limits of a quota on allocated devices. One with scopes does not take in claims, as elsewhere.
fn limits_of(quota: &ResourceQuota) -> ByClass {
    let Some(spec) = &quota.spec else {
        return ByClass::new();
    };
    let has_scopes = spec.scopes.as_ref().is_some_and(|s| !s.is_empty())
        || spec
            .scope_selector
            .as_ref()
            .is_some_and(|s| s.match_expressions.as_ref().is_some_and(|e| !e.is_empty()));
    if has_scopes {
        return ByClass::new();
    }
    let hard = spec.hard.iter().flatten();
    let limit = |(name, amount): (&String, &ApiQuantity)| {
        let class = allocated_class(name)?;
        // The server takes only whole numbers; a part of a device would be none.
        let amount: Quantity = amount.0.parse().ok()?;
        let whole = amount.milli_value().div_euclid(1000);
        Some((class.to_owned(), whole))
    };
    hard.filter_map(limit).collect()
}

fn namespace_of(quota: &ResourceQuota) -> &str {
    quota.metadata.namespace.as_deref().unwrap_or_default()
}

fn name_of(quota: &ResourceQuota) -> &str {
    quota.metadata.name.as_deref().unwrap_or_default()
}

/// Which namespaces a change of quotas concerns.
#[derive(Debug, Default)]
pub struct Changed {
    /// They had no quota on allocated devices before, so that nothing was counted there.
    pub(super) new: Vec<Arc<str>>,
    /// More may be allocated there now, or less.
    pub namespaces: Vec<Arc<str>>,
    /// Whether the change is the first list of quotas.
    pub(super) first: bool,
}

impl Quotas {
    /// Whether no quota limits allocated devices anywhere.
    pub(super) fn are_unused(&self) -> bool {
        self.limits.is_empty()
    }

    /// Whether any quota limits the allocated devices of a namespace.
    pub(super) fn limits(&self, namespace: &str) -> bool {
        !self.are_unused() && self.limits.contains_key(namespace)
    }

    /// Records a quota, or its deletion.
    pub(super) fn set(&mut self, quota: &ResourceQuota, is_deleted: bool, changed: &mut Changed) {
        let limits = match is_deleted {
            true => Limits::default(),
            false => Limits::of(quota),
        };
        self.set_limits(namespace_of(quota), name_of(quota), limits, changed);
    }

    fn set_limits(&mut self, namespace: &str, name: &str, limits: Limits, changed: &mut Changed) {
        let known = self.limits.get(namespace).and_then(|of| of.get(name));
        if known.map_or(limits.hard.is_empty(), |known| known.hard == limits.hard) {
            return;
        }
        let namespace: Arc<str> = namespace.into();
        changed.namespaces.push(namespace.clone());
        let is_new = !self.limits.contains_key(&namespace);
        let of_namespace = self.limits.entry(namespace.clone()).or_default();
        match limits.hard.is_empty() {
            true => drop(of_namespace.remove(name)),
            false => drop(of_namespace.insert(name.into(), limits)),
        }
        if of_namespace.is_empty() {
            self.limits.remove(&namespace);
            self.used.forget(&namespace);
            self.seen.forget(&namespace);
            self.late.retain(|_, key| key.namespace != namespace);
        } else if is_new {
            changed.new.push(namespace);
        }
    }

    /// Records a list; quotas that it lacks were deleted.
    pub(super) fn set_list(&mut self, quotas: &[ResourceQuota], changed: &mut Changed) {
        let names = quotas.iter().map(|q| (namespace_of(q), name_of(q)));
        let there: FxHashSet<(&str, &str)> = names.collect();
        let known = self.limits.iter();
        let known =
            known.flat_map(|(ns, of)| of.keys().map(move |name| (ns.clone(), name.clone())));
        let gone: Vec<_> = known
            .filter(|(ns, name)| !there.contains(&(&**ns, &**name)))
            .collect();
        for (namespace, name) in gone {
            self.set_limits(&namespace, &name, Limits::default(), changed);
        }
        for quota in quotas {
            self.set(quota, false, changed);
        }
        changed.first = !std::mem::replace(&mut self.is_listed, true);
    }

    /// The quota of a namespace that leaves the fewest devices of a class, if one limits it.
    fn tightest<'a>(
        &'a self,
        tally: &Tally,
        namespace: &str,
        class: &'a str,
    ) -> Option<Shortage<'a>> {
        let quotas = self.limits.get(namespace)?.iter();
        let limited = quotas.filter_map(|(quota, limits)| {
            Some(Shortage {
                quota,
                class,
                used: tally.total(namespace, class),
                hard: *limits.hard.get(class)?,
                changed: limits.changed,
            })
        });
        limited.min_by_key(|shortage| shortage.hard)
    }

    /// How many devices of a class may still be allocated in a namespace; `None` without a limit.
    fn left(&self, namespace: &str, class: &str) -> Option<i64> {
        let shortage = self.tightest(&self.used, namespace, class)?;
        Some(shortage.hard.saturating_sub(shortage.used))
    }

    /// Limits a request of a pod of a namespace to what its quotas leave.
    pub(super) fn limit(&self, namespace: &str, request: &mut AllocationRequest) {
        if self.limits(namespace) {
            request.limit(&|class| self.left(namespace, class));
        }
    }

    /// Which quotas a request exceeds: whatever is chosen of its lists, or with which alternatives of them. If there is no
    /// such alternative, which quotas it may exceed: with several of them, or with as many devices as "all" can be.
    pub(super) fn exceeded(&self, namespace: &str, request: &AllocationRequest) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for excess in request.excesses() {
            let Some(shortage) = self.tightest(&self.used, namespace, excess.class) else {
                continue;
            };
            let text = shortage.text(EXCEEDED, excess.needs);
            texts.push(match excess.alternative {
                None => text,
                Some((_, request)) => format!("{text} by alternative {request}"),
            });
        }
        if texts.is_empty() {
            for (class, most) in request.limited() {
                let shortage = self.tightest(&self.used, namespace, class);
                texts.extend(shortage.map(|shortage| shortage.text("may exceed", most)));
            }
        }
        texts
    }

    /// The quotas that the claims of a namespace exceed by what the watch has shown, in the classes of which a claim has
    /// devices, with their numbers.
    fn all_exceeded(
        &self,
        namespace: &str,
        uid: &str,
    ) -> impl Iterator<Item = (Shortage<'_>, i64)> {
        let held = self.seen.of(uid).into_iter().flatten();
        held.filter_map(move |(class, count)| {
            let shortage = self.tightest(&self.seen, namespace, class)?;
            (shortage.used > shortage.hard).then_some((shortage, *count))
        })
    }

    /// A quota that the claims of a namespace exceed by what the watch has shown, in a class of which a claim has devices.
    pub(super) fn exceeded_by(&self, namespace: &str, uid: &str) -> Option<String> {
        let (shortage, count) = self.all_exceeded(namespace, uid).next()?;
        let used = shortage.used - count;
        Some(Shortage { used, ..shortage }.text(EXCEEDED, count))
    }

    /// Whether all quotas that a claim exceeds were changed after its allocation: it was within them then.
    pub(super) fn were_lowered(&self, namespace: &str, uid: &str, allocated: Timestamp) -> bool {
        self.all_exceeded(namespace, uid)
            .all(|(shortage, _)| shortage.changed.is_some_and(|changed| allocated < changed))
    }
}

/// The larger number of each class.
pub(super) fn at_least(mut counts: ByClass, others: ByClass) -> ByClass {
    for (class, count) in others {
        let own = counts.entry(class).or_default();
        *own = count.max(*own);
    }
    counts
}

#[cfg(test)]
mod tests;
