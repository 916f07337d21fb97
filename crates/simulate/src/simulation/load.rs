//! The cluster that a simulation starts from.

use std::sync::Arc;

use allot_reflector::Observed;
use allot_scheduler::core::Input;
use allot_scheduler::watched;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

use super::Simulation;
use crate::objects::{identity, stored};
use crate::prepare::text;
use crate::show::{self, Seen, parsed};

impl Simulation {
    /// Shows the scheduler what exists, as the first lists of its watches.
    pub(super) fn load(&mut self, cluster: Vec<Value>, rules: bool) -> anyhow::Result<()> {
        let (mut pods, mut claims) = (Vec::new(), Vec::new());
        for mut object in cluster {
            self.objects
                .note_version(text(&object, "/metadata/resourceVersion"));
            if text(&object, "/metadata/uid").is_empty() {
                object["metadata"]["uid"] = self.objects.next_uid().into();
            }
            match text(&object, "/kind") {
                "Pod" => pods.push(parsed::<Pod>(object)?),
                "ResourceClaim" => claims.push(parsed::<ResourceClaim>(object)?),
                "ResourceClaimTemplate" => self.add_template(parsed(object)?),
                _ => {
                    self.objects.others.insert(identity(&object), object);
                }
            }
        }
        let mut kinds: Vec<&str> = watched::kinds().iter().map(|k| k.kind).collect();
        kinds.retain(|kind| !matches!(*kind, "Pod" | "ResourceClaim"));
        kinds.retain(|kind| *kind != watched::TAINT_RULES.kind || rules);
        for kind in kinds {
            let objects = self.objects.of_kind(kind).cloned().collect();
            if let Some(input) = show::input(kind, Seen::Listed(objects))? {
                self.deliver(input);
            }
        }
        for claim in &mut claims {
            let version = &mut claim.metadata.resource_version;
            if version.is_none() {
                *version = Some(self.objects.next_version());
            }
            let key = allot_scheduler::dra::claims::key_of(claim);
            self.objects.claims.insert(key, Arc::new(claim.clone()));
        }
        self.deliver(Input::Claim(Observed::Listed {
            items: claims,
            version: String::new(),
        }));
        self.load_pods(pods);
        self.release_left_over();
        self.carry_out();
        Ok(())
    }

    /// Takes in the pods that are there from the start.
    fn load_pods(&mut self, pods: Vec<Pod>) {
        let mut items = Vec::new();
        for mut pod in pods {
            if pod.metadata.resource_version.is_none() {
                pod.metadata.resource_version = Some(self.objects.next_version());
            }
            if allot_scheduler::pod::is_finished(&pod) {
                continue;
            }
            self.name_claims(&mut pod);
            let (pod, info) = stored(pod);
            self.remember(pod, &info, true);
            items.push(info);
        }
        self.deliver(Input::Pod(Observed::Listed {
            items,
            version: String::new(),
        }));
    }
}
