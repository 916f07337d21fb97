//! Claims, slices, classes and taint rules.

use std::sync::Arc;

use allot_allocator::Features as AllocatorFeatures;
use allot_model::features::{Feature, Features};
use allot_resourceclaim::{EXTENDED_RESOURCE_CLAIM_ANNOTATION, consumers};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Core, Time};
use crate::actions::Action;
use crate::dra::claims::{Change, allocation_of, key_of, uid_of};
use crate::dra::{ClaimCleanup, release};
use crate::hints::{CLAIM, ClusterEvent};
use crate::pod::{Key, PodInfo, Uid};
use crate::podgroups::claims::serves;
use crate::taint_rules::DeviceTaintRule;
use allot_reflector::Observed;

/// The allocator's settings that follow from the feature gates.
pub fn allocator_features(features: &Features) -> AllocatorFeatures {
    let on = |f| features.enabled(f);
    AllocatorFeatures {
        admin_access: on(Feature::DRAAdminAccess),
        prioritized_list: on(Feature::DRAPrioritizedList),
        partitionable_devices: on(Feature::DRAPartitionableDevices),
        device_taints: on(Feature::DRADeviceTaints),
        binding_conditions: on(Feature::DRADeviceBindingConditions)
            && on(Feature::DRAResourceClaimDeviceStatus),
        consumable_capacity: on(Feature::DRAConsumableCapacity),
        fractional_capacity_range: on(Feature::DRAFractionalCapacityRange),
        list_type_attributes: on(Feature::DRAListTypeAttributes),
        ..AllocatorFeatures::NONE
    }
}

/// Whether groups of pods have claims.
pub(crate) fn groups_have_claims(features: &Features) -> bool {
    features.enabled(Feature::GenericWorkload)
        && features.enabled(Feature::DRAWorkloadResourceClaims)
}

/// A claim from a watch as it is kept. While it is allocated no write contains more of it than its status, and of its
/// annotations only the one of claims for extended resources is read: a map takes half a kilobyte.
fn slim(mut claim: ResourceClaim) -> ResourceClaim {
    let annotations = claim.metadata.annotations.as_ref();
    let is_read = annotations.is_none_or(|a| a.contains_key(EXTENDED_RESOURCE_CLAIM_ANNOTATION));
    if !is_read && allocation_of(&claim).is_some() {
        claim.metadata.annotations = None;
    }
    claim
}

impl Core {
    pub(super) fn observe_claims(&mut self, observed: Observed<ResourceClaim>, time: Time) {
        let Some(observed) = self.split_claims(observed, time) else {
            return;
        };
        match observed {
            Observed::Applied(claim) => {
                let change = self.claims.observe(Arc::new(slim(*claim)));
                self.after(&change, time);
            }
            Observed::Deleted(claim) => self.forget_claim(&key_of(&claim), time),
            Observed::Listed { items, version } => {
                let present: FxHashSet<Key> = items.iter().map(key_of).collect();
                let mut gone = self.claims.observed_keys();
                gone.extend(self.claims.unseen_older_than(&version));
                gone.retain(|k| !present.contains(k));
                gone.iter().for_each(|key| self.forget_claim(key, time));
                let items = items.into_iter().map(slim).map(Arc::new);
                let changes = self.claims.observe_list(items);
                for change in changes {
                    self.after(&change, time);
                }
            }
        }
    }

    fn forget_claim(&mut self, key: &Key, time: Time) {
        let change = self.claims.observe_deleted(key);
        self.after(&change, time);
    }

    /// Deallocates a claim that keeps a pod from a node.
    pub(super) fn deallocate(&mut self, claim: Arc<ResourceClaim>) {
        self.claims.release(&claim, None);
        self.push_fenced(&claim.clone(), |_| true, Action::Deallocate(claim));
    }

    /// Deletes an extended resource claim that its pod no longer uses.
    pub(super) fn delete_extended_resource_claim(&mut self, claim: Arc<ResourceClaim>) {
        self.push_fenced(
            &claim.clone(),
            |_| true,
            Action::DeleteExtendedResourceClaim(claim),
        );
    }

    /// Pushes an action that deallocates or unreserves a claim. Pods that an earlier scheduler may still be binding with
    /// the claim are fenced first.
    fn push_fenced(
        &mut self,
        claim: &ResourceClaim,
        concerns: impl Fn(&PodInfo) -> bool,
        then: Action,
    ) {
        let users = consumers(claim);
        let namespace = claim.metadata.namespace.as_deref();
        let pods = self.inherited.values().filter_map(|key| self.pods.get(key));
        let mut pods: Vec<Arc<PodInfo>> = pods
            .filter(|p| Some(&*p.key.namespace) == namespace && concerns(p))
            .filter(|p| users.iter().any(|user| serves(user, p)))
            .cloned()
            .collect();
        pods.sort_unstable_by(|a, b| a.uid.cmp(&b.uid));
        let action = match pods.is_empty() {
            true => then,
            false => Action::Fenced {
                pods,
                then: Box::new(then),
            },
        };
        self.actions.push(action);
    }

    /// Removes a pod's reservation from a claim.
    pub(super) fn unreserve(&mut self, pod: &Uid, claim: Arc<ResourceClaim>) {
        self.claims.release(&claim, Some(pod.clone()));
        let then = Action::Unreserve {
            pod: pod.clone(),
            claim: claim.clone(),
        };
        self.push_fenced(&claim, |p| p.uid == *pod, then);
    }

    /// Releases one claim of a pod that cannot be attempted; the outcome of the write triggers the next.
    pub(super) fn release_claims(&mut self, pod: &Arc<PodInfo>) {
        if !self.queue.contains(&pod.uid) || self.cache.is_assumed(&pod.uid) {
            return;
        }
        if let Some(held) =
            release::claims_to_release(pod, &self.claims, self.claim_plugin.as_deref())
        {
            self.clean_up(pod, held);
        }
    }

    /// Carries out a cleanup.
    pub(super) fn clean_up(&mut self, pod: &Arc<PodInfo>, what: ClaimCleanup) {
        match what {
            ClaimCleanup::Deallocate(claim) => self.deallocate(claim),
            ClaimCleanup::Unreserve(claim) => self.unreserve(&pod.uid, claim),
            ClaimCleanup::Delete(claim) => self.delete_extended_resource_claim(claim),
        }
    }

    pub(super) fn released(
        &mut self,
        (key, uid): (&Key, &Uid),
        pod: Option<Uid>,
        claim: Option<Arc<ResourceClaim>>,
        time: Time,
    ) {
        let assumed = claim.map(|claim| self.claims.assume(claim));
        let over = self.claims.released(key, uid, pod);
        self.after(&assumed.unwrap_or_default(), time);
        self.after(&over, time);
    }

    /// Brings back the pods that a change of a claim concerns.
    pub(super) fn after(&mut self, change: &Change, time: Time) {
        if let Some(key) = change.key.as_ref().filter(|_| change.double_allocated) {
            let uid = self.claims.get(key).map(|c| uid_of(c));
            if let Some(conflict) = uid.and_then(|uid| self.claims.conflict(uid)) {
                self.metrics.double_allocated();
                let conflict = conflict.describe(&key.namespace);
                tracing::warn!(claim = %key, conflict, "a claim got devices that another claim had before");
            }
        }
        if let Some(key) = change.key.as_ref().filter(|_| change.progressed) {
            self.activate_pods_using_claim(key, time);
            self.check_claim(key, time);
        }
        // The pod must wait for the deletion, and none of its entries names the claim.
        let owner = change.extended_resource_claim_gone.as_ref();
        if let Some(pod) = owner.and_then(|pod| self.queue.get(pod)) {
            let pod = pod.info.clone();
            self.activate(&pod, CLAIM, time);
        }
        if change.freed {
            self.requeue(&ClusterEvent::DevicesFreed, time);
        }
    }

    pub(super) fn observe_slices(&mut self, observed: Observed<ResourceSlice>, time: Time) {
        match observed {
            Observed::Applied(slice) => self.set_slice(&slice),
            Observed::Deleted(slice) => {
                self.remove_slice(slice.metadata.name.as_deref().unwrap_or_default())
            }
            Observed::Listed { items, .. } => {
                let present: FxHashSet<&str> = items
                    .iter()
                    .filter_map(|s| s.metadata.name.as_deref())
                    .collect();
                let gone: Vec<String> = self
                    .slices
                    .iter()
                    .filter(|n| !present.contains(n.as_str()))
                    .cloned()
                    .collect();
                gone.iter().for_each(|name| self.remove_slice(name));
                items.iter().for_each(|slice| self.set_slice(slice));
                if !std::mem::replace(&mut self.slices_listed, true) {
                    self.claims.check_all_double_allocations();
                }
            }
        }
        // A deletion can also help: the remaining slices of a pool may be complete and valid now.
        self.requeue(&ClusterEvent::DevicesChanged, time);
    }

    fn set_slice(&mut self, slice: &ResourceSlice) {
        self.slices
            .insert(slice.metadata.name.clone().unwrap_or_default());
        self.claims.cluster_mut().apply(slice);
        if let Some(node_allocatable) = &mut self.node_allocatable {
            node_allocatable.set(slice);
        }
    }

    fn remove_slice(&mut self, name: &str) {
        self.slices.remove(name);
        self.claims.cluster_mut().remove(name);
        if let Some(node_allocatable) = &mut self.node_allocatable {
            node_allocatable.remove(name);
        }
    }

    pub(super) fn observe_quotas(&mut self, observed: Observed<ResourceQuota>, time: Time) {
        let namespaces = match observed {
            Observed::Applied(quota) => self.claims.observe_quota(&quota, false),
            Observed::Deleted(quota) => self.claims.observe_quota(&quota, true),
            Observed::Listed { items, .. } => self.claims.observe_quotas(&items),
        };
        for namespace in namespaces {
            self.requeue(&ClusterEvent::QuotaChanged(&namespace), time);
        }
    }

    pub(super) fn observe_classes(&mut self, observed: Observed<DeviceClass>, time: Time) {
        match observed {
            Observed::Applied(class) => self.classes.set(Arc::new(*class)),
            Observed::Deleted(class) => self
                .classes
                .remove(class.metadata.name.as_deref().unwrap_or_default()),
            Observed::Listed { items, .. } => self.classes.replace(items),
        }
        self.requeue(&ClusterEvent::ClassChanged, time);
    }

    pub(super) fn observe_rules(&mut self, observed: Observed<DeviceTaintRule>, time: Time) {
        match observed {
            Observed::Applied(rule) => {
                let new = rule.clone();
                // The eviction controller updates the status of rules; that does not matter here.
                if self.rules.insert(rule.name.clone(), *rule) == Some(*new) {
                    return;
                }
            }
            Observed::Deleted(rule) => {
                self.rules.remove(&rule.name);
            }
            Observed::Listed { items, .. } => {
                self.rules = items
                    .into_iter()
                    .map(|r| (r.name.clone(), r))
                    .collect::<FxHashMap<_, _>>();
            }
        }
        let mut names: Vec<&String> = self.rules.keys().collect();
        names.sort_unstable();
        let rules = names
            .into_iter()
            .map(|n| self.rules[n].rule.clone())
            .collect();
        self.claims.cluster_mut().set_taint_rules(rules);
        self.requeue(&ClusterEvent::DevicesChanged, time);
    }
}
