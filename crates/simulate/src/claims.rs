//! The claim controller: claims from templates, and their release.
//!
//! A claim that was made for a pod goes with it; one that pods share loses its allocation with the last of them.

use std::sync::Arc;

use allot_reflector::Observed;
use allot_resourceclaim::{FINALIZER, POD_CLAIM_NAME_ANNOTATION, consumers, is_pod_group};
use allot_scheduler::core::Input;
use allot_scheduler::dra::claims::key_of;
use allot_scheduler::pod::{Key, Uid};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::history::{Placement, devices_of};
use crate::kubelet::claims_of;
use crate::simulation::Simulation;

impl Simulation {
    pub(crate) fn add_template(&mut self, template: ResourceClaimTemplate) {
        let meta = &template.metadata;
        let key = Key::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        self.objects.templates.insert(key, template);
    }

    /// Makes the claims of a pod that come from templates, and names them in its status. Those whose templates are missing
    /// are made when the templates come.
    pub(crate) fn name_claims(&mut self, pod: &mut Pod) {
        let entries = pod
            .spec
            .iter()
            .flat_map(|s| s.resource_claims.iter().flatten());
        let open: Vec<(String, String)> = entries
            .filter(|entry| allot_resourceclaim::claim_status(pod, entry).is_none())
            .filter_map(|e| Some((e.name.clone(), e.resource_claim_template_name.clone()?)))
            .collect();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for (entry, template) in open {
            let template = Key::new(&namespace, &template);
            let Some(template) = self.objects.templates.get(&template).cloned() else {
                continue;
            };
            let name = self.make_claim(pod, &entry, &template);
            let status = pod.status.get_or_insert_default();
            let statuses = status.resource_claim_statuses.get_or_insert_default();
            statuses.push(PodResourceClaimStatus {
                name: entry,
                resource_claim_name: Some(name),
            });
        }
    }

    fn make_claim(&mut self, pod: &Pod, entry: &str, template: &ResourceClaimTemplate) -> String {
        let owner = pod.metadata.name.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let mut name = format!("{owner}-{entry}");
        while self
            .objects
            .claims
            .contains_key(&Key::new(&namespace, &name))
        {
            name.push_str("-x");
        }
        let of = template.spec.metadata.clone().unwrap_or_default();
        let mut annotations = of.annotations.unwrap_or_default();
        annotations.insert(POD_CLAIM_NAME_ANNOTATION.to_owned(), entry.to_owned());
        let claim = ResourceClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                uid: Some(self.objects.next_uid()),
                resource_version: Some(self.objects.next_version()),
                creation_timestamp: Some(Time(self.wall())),
                labels: of.labels,
                annotations: Some(annotations),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: owner,
                    uid: pod.metadata.uid.clone().unwrap_or_default(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                // With the finalizer from the start, the allocation is the first write of the scheduler.
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: template.spec.spec.clone(),
            status: None,
        };
        self.show_claim(claim);
        name
    }

    /// Makes the claims that pods wait for, now that there are more templates.
    pub(crate) fn make_missing_claims(&mut self) {
        let waits = |pod: &Pod| {
            let entries = pod
                .spec
                .iter()
                .flat_map(|s| s.resource_claims.iter().flatten());
            let mut entries = entries.filter(|e| e.resource_claim_template_name.is_some());
            entries.any(|e| allot_resourceclaim::claim_status(pod, e).is_none())
        };
        let waiting = self.objects.pods.iter();
        let mut waiting: Vec<(usize, Uid)> = waiting
            .filter(|(_, live)| live.node.is_none() && waits(&live.pod))
            .map(|(uid, live)| (live.record, uid.clone()))
            .collect();
        waiting.sort_unstable();
        for (_, uid) in waiting {
            let Some(live) = self.objects.pod(&uid) else {
                continue;
            };
            let mut pod = (*live.pod).clone();
            self.name_claims(&mut pod);
            self.use_claims(&uid, &pod);
            self.show_pod(&uid, pod);
        }
    }

    /// Notes the claims of a pod, now that more of their names are known.
    pub(crate) fn use_claims(&mut self, uid: &Uid, pod: &Pod) {
        if let Some(live) = self.objects.pods.get_mut(uid) {
            live.claims = claims_of(pod);
        }
    }

    /// A user creates a claim.
    pub(crate) fn create_claim(&mut self, mut claim: ResourceClaim) {
        claim.metadata.creation_timestamp = Some(Time(self.wall()));
        self.show_claim(claim);
    }

    /// A user deletes a claim: it goes when no pod uses it. `None` when there is none.
    pub(crate) fn delete_claim(&mut self, key: &Key) -> Option<()> {
        let mut claim = (**self.objects.claims.get(key)?).clone();
        if consumers(&claim).is_empty() {
            self.remove_claim(key);
        } else if claim.metadata.deletion_timestamp.is_none() {
            claim.metadata.deletion_timestamp = Some(Time(self.wall()));
            claim.metadata.resource_version = Some(self.objects.next_version());
            self.show_claim(claim);
        }
        Some(())
    }

    /// Stores a claim and shows it to the scheduler.
    pub(crate) fn show_claim(&mut self, claim: impl Into<Arc<ResourceClaim>>) {
        let claim = claim.into();
        let shown = Box::new((*claim).clone());
        self.objects.claims.insert(key_of(&claim), claim);
        self.deliver(Input::Claim(Observed::Applied(shown)));
    }

    pub(crate) fn remove_claim(&mut self, key: &Key) {
        if let Some(claim) = self.objects.claims.remove(key) {
            let claim = Arc::unwrap_or_clone(claim);
            self.deliver(Input::Claim(Observed::Deleted(Box::new(claim))));
        }
    }

    /// A pod needs its claims no more.
    pub(crate) fn release_claims(&mut self, pod: &Uid, claims: &[Key]) {
        for key in claims {
            let Some(claim) = self.objects.claims.get(key) else {
                continue;
            };
            let owned = claim.metadata.owner_references.iter().flatten();
            let owned = owned
                .filter(|o| o.controller == Some(true))
                .any(|o| o.uid == **pod);
            if owned {
                self.remove_claim(key);
                continue;
            }
            let mut claim = (**claim).clone();
            if drop_consumers(&mut claim, |uid| uid == &**pod) {
                self.store_released(key, claim);
            }
        }
    }

    fn store_released(&mut self, key: &Key, mut claim: ResourceClaim) {
        if claim.metadata.deletion_timestamp.is_some() && consumers(&claim).is_empty() {
            return self.remove_claim(key);
        }
        claim.metadata.resource_version = Some(self.objects.next_version());
        self.show_claim(claim);
    }

    /// Releases the claims that pods hold which are gone.
    pub(crate) fn release_left_over(&mut self) {
        let mut keys: Vec<Key> = self.objects.claims.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(claim) = self.objects.claims.get(&key) else {
                continue;
            };
            let mut claim = (**claim).clone();
            let owners = claim.metadata.owner_references.iter().flatten();
            let mut owners = owners.filter(|o| o.controller == Some(true) && o.kind == "Pod");
            if owners.any(|o| !self.objects.pods.contains_key(&*o.uid)) {
                self.remove_claim(&key);
                continue;
            }
            let pods = &self.objects.pods;
            if drop_consumers(&mut claim, |uid| !pods.contains_key(uid)) {
                self.store_released(&key, claim);
            }
        }
    }

    /// Where a pod is, with its devices.
    pub(crate) fn placement(&self, node: &Arc<str>, claims: &[Key]) -> Placement {
        let claims = claims.iter().filter_map(|key| self.objects.claims.get(key));
        let allocations = claims.filter_map(|c| c.status.as_ref()?.allocation.as_ref());
        Placement {
            at: self.now,
            node: node.clone(),
            devices: allocations.flat_map(devices_of).collect(),
        }
    }
}

/// Takes pods out of those that a claim is reserved for, and the allocation with the last of them. Says whether there were
/// any.
fn drop_consumers(claim: &mut ResourceClaim, gone: impl Fn(&str) -> bool) -> bool {
    let Some(status) = &mut claim.status else {
        return false;
    };
    let Some(users) = &mut status.reserved_for else {
        return false;
    };
    let before = users.len();
    users.retain(|user| is_pod_group(user) || !gone(&user.uid));
    if users.len() == before {
        return false;
    }
    if users.is_empty() {
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        // Without it, another component manages the claim.
        if finalizers.iter().any(|f| f == FINALIZER) {
            (status.allocation, status.devices) = (None, None);
            finalizers.retain(|f| f != FINALIZER);
        }
        status.reserved_for = None;
    }
    true
}
