//! The state of the plugin, and which claims of a pod are classic ones.

use std::sync::Arc;

use allot_framework::pod::Key;
use allot_framework::pod::PodInfo;
use allot_framework::pod::claims::{ResolveError, claim_key};
use allot_model::classic::objects::{ResourceClaim, ResourceClass};
use allot_reflector::Observed;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim, PodResourceClaimStatus};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::discovery::Served;
use crate::{claims, deferrals, negotiations, structured};

/// The scheduler's state of the classic kinds.
#[derive(Debug)]
pub struct Classic {
    /// The versions and kinds that the API server serves.
    pub served: Served,
    /// The classic claims, as observed and as assumed.
    pub claims: claims::Claims,
    /// The PodSchedulingContexts by their pods.
    pub negotiations: negotiations::Negotiations,
    /// The deallocations that wait until another pod was tried.
    pub deferrals: deferrals::Deferrals,
    /// Structured resources and parameters.
    pub structured: structured::Structured,
    /// Negotiations that were observed when their pods were not known.
    pub(crate) without_pod: FxHashSet<Key>,
    classes: FxHashMap<String, Arc<ResourceClass>>,
}

impl Classic {
    /// The state before any list.
    pub fn new(served: Served) -> Self {
        Self {
            served,
            claims: claims::Claims::default(),
            negotiations: negotiations::Negotiations::default(),
            deferrals: deferrals::Deferrals::default(),
            structured: structured::Structured::default(),
            without_pod: FxHashSet::default(),
            classes: FxHashMap::default(),
        }
    }

    /// The observed ResourceClass of this name.
    pub fn class(&self, name: &str) -> Option<&Arc<ResourceClass>> {
        self.classes.get(name)
    }

    /// Adds, changes or removes classes.
    pub fn set_classes(&mut self, observed: Observed<ResourceClass>) {
        let name = |c: &ResourceClass| c.metadata.name.clone().unwrap_or_default();
        match observed {
            Observed::Applied(class) => {
                self.classes.insert(name(&class), Arc::new(*class));
            }
            Observed::Deleted(class) => {
                self.classes.remove(&name(&class));
            }
            Observed::Listed { items, .. } => {
                self.classes = items.into_iter().map(|c| (name(&c), Arc::new(c))).collect();
            }
        }
    }

    /// What later releases record in the status of a pod: the names of its generated claims, which up to 1.27 follow from
    /// the pod's name. Empty with API servers that record them.
    pub(crate) fn deterministic_names(&self, pod: &Pod) -> Vec<PodResourceClaimStatus> {
        if !self.served.deterministic_names {
            return Vec::new();
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let entries = pod.spec.iter().flat_map(|spec| &spec.resource_claims);
        entries
            .flatten()
            .filter(|entry| entry.resource_claim_name.is_none())
            .map(|entry| PodResourceClaimStatus {
                name: entry.name.clone(),
                resource_claim_name: Some(format!("{name}-{}", entry.name)),
            })
            .collect()
    }

    /// Whether an entry of a pod's claims refers to a classic claim. If both generations are served, a claim that does
    /// not exist yet counts as a current one: the result is the same, the claim is missing.
    pub fn owns(&self, pod: &PodInfo, entry: &PodResourceClaim) -> bool {
        if self.served.alone {
            return true;
        }
        matches!(claim_key(pod, entry), Ok(Some(key)) if self.claims.get(&key).is_some())
    }

    /// The classic claims of a pod with their names in the pod, each object once; the first problem ends it.
    ///
    /// # Errors
    /// When a claim does not exist, is being deleted, or belongs to another pod.
    pub fn resolve(
        &self,
        pod: &PodInfo,
    ) -> Result<Vec<(String, Key, Arc<ResourceClaim>)>, ResolveError> {
        let mut out: Vec<(String, Key, Arc<ResourceClaim>)> = Vec::new();
        for entry in pod.spec().resource_claims.iter().flatten() {
            if !self.owns(pod, entry) {
                continue;
            }
            let Some(key) = claim_key(pod, entry)? else {
                continue;
            };
            let claim = self
                .claims
                .get(&key)
                .ok_or_else(|| ResolveError::NotFound(key.name.to_string()))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(ResolveError::Deleting(key.name.to_string()));
            }
            if entry.resource_claim_name.is_none() && !is_owner(&pod.uid, claim) {
                return Err(ResolveError::NotOwner(key.to_string(), pod.key.to_string()));
            }
            if !out.iter().any(|(_, k, _)| *k == key) {
                out.push((entry.name.clone(), key, claim.clone()));
            }
        }
        Ok(out)
    }
}

/// Whether the claim was generated for the pod with this identity.
fn is_owner(pod: &str, claim: &ResourceClaim) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|o| o.controller == Some(true) && o.uid == pod)
}
