//! Status of ResourceQuotas: what the objects of a namespace use of them.
//!
//! Admission adds to `used` before an object is stored; this controller recounts from the stored objects, so that
//! deletions free quota and errors do not last. Counting rules: [`allot_model::quota`]. Devices that are allocated are
//! counted here alone, since the scheduler counts for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_apimachinery::quantity::Quantity;
use allot_model::quota::{self, FirstClaims, Lookups, Usage};
use allot_resourceclaim::{allocation, devices_by_class};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Change, Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::inventory::{Inventory, Kind, MetaObject};
use crate::served::Served;

/// Everything is recounted after that time, as in upstream.
const RESYNC: Duration = Duration::from_secs(300);
/// A burst of creations in a namespace is counted once per this time.
const SETTLE: Duration = Duration::from_millis(50);
/// Delay before the amounts that admission added are checked against the stored objects.
const RECOUNT: Duration = Duration::from_secs(1);
/// How long a quota has to be unchanged before its amounts are lowered: admission adds to them before it stores an object,
/// and a count in between would free what is about to be used.
const RESERVED: Duration = Duration::from_millis(100);
const BY_NAMESPACE: &str = "namespace";

type Object = Whole<ResourceQuota>;

struct Quotas {
    client: Client,
    inventory: Inventory,
    quotas: Informer<Object>,
    /// `None` if the API server has no device classes.
    classes: Option<Informer<DeviceClass>>,
    queue: Queue<Key>,
    lower: Mutex<Lower>,
}

/// Versions of quotas whose amounts were counted lower than they are, and since when, by key.
#[derive(Default)]
struct Lower(BTreeMap<Key, (String, Instant)>);

impl Lower {
    /// Whether this version of a quota is known for too short a time for its amounts to be lowered.
    fn may_be_reserved(&mut self, key: &str, version: &str, now: Instant) -> bool {
        match self.0.get(key) {
            Some((known, since)) if known == version => {
                let young = now.saturating_duration_since(*since) < RESERVED;
                if !young {
                    self.0.remove(key);
                }
                young
            }
            _ => {
                self.0.insert(key.to_owned(), (version.to_owned(), now));
                true
            }
        }
    }
}

fn namespace_of(quota: &Object) -> Vec<String> {
    vec![meta::namespace(quota).to_owned()]
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, served: &Served, inventory: &Inventory) -> Task {
    let has_classes = served.has("resource.k8s.io/v1", "deviceclasses");
    let this = Arc::new(Quotas {
        client: context.client.clone(),
        inventory: inventory.clone(),
        quotas: context.informer::<Object>(),
        classes: has_classes.then(|| context.informer::<DeviceClass>()),
        queue: context.queue("resource_quota_controller"),
        lower: Mutex::default(),
    });
    this.quotas.index(BY_NAMESPACE, namespace_of);
    let queue = this.queue.clone();
    this.quotas.on(move |change| {
        let new = change.object();
        let same = change
            .old()
            .is_some_and(|old| old.at("/spec") == new.at("/spec"));
        if change.is_delete() {
            return;
        }
        if !same {
            queue.add(key_of(&**new));
        } else if change
            .old()
            .is_some_and(|old| old.at("/status") != new.at("/status"))
        {
            // Admission has counted a write; whether it was stored is known shortly after. Counting at once could miss
            // the stored object, and remove its count again.
            queue.add_after(key_of(&**new), RECOUNT);
        }
    });
    let weak = Arc::downgrade(&this);
    inventory.on(move |kind, change| {
        if let Some(this) = weak.upgrade() {
            this.changed(kind, change);
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// The limits of a quota by the resource whose objects count for them.
fn by_resource(quota: &Object) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for name in quota
        .spec
        .iter()
        .flat_map(|s| s.hard.iter().flatten())
        .map(|(n, _)| n)
    {
        for resource in quota::constrained(name) {
            found.entry(resource).or_default().insert(name.clone());
        }
    }
    found
}

impl Quotas {
    fn changed(&self, kind: &Kind, change: &Change<MetaObject>) {
        if self.quotas.is_empty() || !kind.namespaced || kind.resource.kind == "ResourceQuota" {
            return;
        }
        let id = (kind.resource.group.clone(), kind.resource.plural.clone());
        // Updates matter only for resources other than object counts.
        let weighed = matches!(
            kind.resource.kind.as_str(),
            "Pod" | "ResourceClaim" | "Service" | "PersistentVolumeClaim"
        );
        if change.old().is_some() && !weighed {
            return;
        }
        for quota in self
            .quotas
            .by_index(BY_NAMESPACE, meta::namespace(&**change.object()))
        {
            if by_resource(&quota).contains_key(&id) {
                let delay = if change.is_delete() {
                    Duration::ZERO
                } else {
                    SETTLE
                };
                self.queue.add_after(key_of(&*quota), delay);
            }
        }
    }

    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(quota) = self.quotas.get(key) else {
            self.lower.lock().0.remove(key);
            return Ok(Next::Done);
        };
        let namespace = meta::namespace(&*quota);
        // The status is read before the objects are, so that a concurrent reservation by admission is a conflict and
        // not lost.
        let api: Api<Object> = Api::namespaced(self.client.clone(), namespace);
        let Some(live) = api::get(&api, meta::name(&*quota)).await? else {
            return Ok(Next::Done);
        };
        let mut used = Usage::new();
        for ((group, resource), names) in by_resource(&live) {
            let more = self
                .count(&live, namespace, &group, &resource, &names)
                .await?;
            quota::merge(&mut used, &more);
        }
        let hard = live.at("/spec/hard");
        let mut new = serde_json::Map::new();
        for (name, _) in hard.as_object().into_iter().flatten() {
            let amount = used.get(name).cloned().unwrap_or_default();
            new.insert(name.clone(), json!(amount.to_string()));
        }
        let same = live.at("/status/hard") == hard && same_amounts(live.at("/status/used"), &new);
        if !same && is_lower(live.at("/status/used"), &new) {
            let version = live
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default();
            if self
                .lower
                .lock()
                .may_be_reserved(key, version, Instant::now())
            {
                return Ok(Next::After(RESERVED));
            }
        }
        if !same {
            // Names that are not limited any longer are removed.
            for (name, _) in live.at("/status/used").as_object().into_iter().flatten() {
                new.entry(name.clone()).or_insert(Value::Null);
            }
            let mut limits = hard.clone();
            for (name, _) in live.at("/status/hard").as_object().into_iter().flatten() {
                if hard.get(name).is_none() {
                    limits[name.as_str()] = Value::Null;
                }
            }
            let body = json!({
                "metadata": api::unchanged(&live),
                "status": {"hard": limits, "used": new},
            });
            match api::patch(&api, meta::name(&*quota), Part::Status, &body).await {
                Ok(updated) => self.quotas.assume(updated),
                Err(error) if error.is_not_found() => return Ok(Next::Done),
                Err(error) => return Err(error),
            }
        }
        Ok(Next::After(RESYNC))
    }

    /// What all objects of a resource count for under the given names.
    async fn count(
        &self,
        quota: &Object,
        namespace: &str,
        group: &str,
        resource: &str,
        names: &BTreeSet<String>,
    ) -> Result<Usage, Error> {
        let mut total = Usage::new();
        let kinds = self.inventory.kinds();
        let Some(kind) = kinds
            .iter()
            .find(|k| k.resource.group == group && k.resource.plural == resource)
        else {
            return Ok(total);
        };
        let plain = format!("count/{}", kind.group_resource());
        if names.iter().all(|n| *n == plain)
            && quota.at("/spec/scopes").is_null()
            && quota.at("/spec/scopeSelector").is_null()
        {
            // Only the number matters: no need for the objects.
            let objects = kind
                .api(&self.client, namespace)
                .list(&Default::default())
                .await?;
            let count = i64::try_from(objects.items.len()).unwrap_or(i64::MAX);
            total.insert(plain, Quantity::from(count));
            return Ok(total);
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
        let extended = |class: &str| {
            self.classes
                .as_ref()?
                .get(class)?
                .spec
                .extended_resource_name
                .clone()
        };
        let quota = json!({"spec": quota.at("/spec")});
        let objects: Vec<Value> = api
            .list(&Default::default())
            .await?
            .items
            .iter()
            .map(|o| json!(o))
            .collect();
        let mut owners: BTreeMap<String, Value> = BTreeMap::new();
        let mut first = FirstClaims::default();
        if resource == "resourceclaims" && objects.iter().any(|o| quota::special_owner(o).is_some())
        {
            let pods = ApiResource::erase::<Pod>(&());
            let pods: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &pods);
            let pods = pods.list(&Default::default()).await?.items;
            owners.extend(pods.iter().map(|p| (meta::name(p).to_owned(), json!(p))));
            objects.iter().for_each(|claim| first.insert(claim));
        }
        let lookups = Lookups {
            extended: &extended,
            pod: &|name| owners.get(name).cloned(),
            first: &first,
        };
        let limits_allocated = names
            .iter()
            .any(|name| quota::allocated_class(name).is_some());
        for object in &objects {
            if quota::in_scopes(&quota, group, resource, object) {
                let mut usage = quota::usage(group, resource, object, lookups);
                if resource == "resourceclaims" && limits_allocated {
                    quota::merge(&mut usage, &allocated(object));
                }
                usage.retain(|name, _| names.contains(name));
                quota::merge(&mut total, &usage);
            }
        }
        Ok(total)
    }
}

/// The devices that a claim has, by the names that limit them.
fn allocated(claim: &Value) -> Usage {
    let claim = match ResourceClaim::deserialize(claim) {
        Ok(claim) => claim,
        Err(error) => {
            tracing::warn!(%error, "cannot read a claim");
            return Usage::new();
        }
    };
    let counts = allocation(&claim).map(|allocation| devices_by_class(&claim, allocation));
    let counts = counts.unwrap_or_default().into_iter();
    counts
        .map(|(class, count)| (quota::allocated_name(class), Quantity::from(count)))
        .collect()
}

/// Whether any amount is lower than before.
fn is_lower(old: &Value, new: &serde_json::Map<String, Value>) -> bool {
    let amount = |value: &Value| Quantity::from_json(value).unwrap_or_default();
    let old = old.as_object().into_iter().flatten();
    let mut both = old.filter_map(|(name, old)| Some((old, new.get(name)?)));
    both.any(|(old, new)| amount(new) < amount(old))
}

/// Whether amounts are equal in value; `1000m` is `1`.
fn same_amounts(old: &Value, new: &serde_json::Map<String, Value>) -> bool {
    let Some(old) = old.as_object() else {
        return new.is_empty();
    };
    old.len() == new.len()
        && new.iter().all(|(name, amount)| {
            let parse = |v: &Value| Quantity::from_json(v).ok();
            old.get(name)
                .is_some_and(|o| parse(o).is_some() && parse(o) == parse(amount))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_reservation_is_not_freed_before_its_object_is_stored() {
        let mut lower = Lower::default();
        let start = Instant::now();
        let mut may_be = |version, after| lower.may_be_reserved("ns/q", version, start + after);
        assert!(may_be("1", Duration::ZERO));
        // Admission has counted another object meanwhile.
        assert!(may_be("2", RESERVED));
        assert!(may_be("2", RESERVED + RESERVED / 2));
        assert!(!may_be("2", RESERVED * 2));
        // What is counted lower later is a new matter.
        assert!(may_be("2", RESERVED * 2));
    }

    #[test]
    fn amounts_are_compared_by_value() {
        let check = |old: Value, new: Value, expected| {
            let new = new.as_object().cloned().unwrap_or_default();
            assert_eq!(is_lower(&old, &new), expected, "{old} {new:?}");
        };
        check(json!({"cpu": "1"}), json!({"cpu": "1000m"}), false);
        check(json!({"cpu": "1"}), json!({"cpu": "900m"}), true);
        check(
            json!({"pods": "1", "cpu": "1"}),
            json!({"pods": "2", "cpu": "0"}),
            true,
        );
        check(json!({"pods": "1"}), json!({"cpu": "0"}), false);
        check(Value::Null, json!({"cpu": "0"}), false);
    }
}
