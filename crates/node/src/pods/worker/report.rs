//! Writing the pod's status.

use std::collections::HashMap;

use allot_apimachinery::well_known::is_terminal_phase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Origin;
use super::super::allocations::{ResizeConditions, record_events};
use super::super::record::Record;
use super::super::state::ContainerState;
use super::super::status::{self, Input, has_ended};
use super::{REPORT, RETRY, Wake, Worker};
use crate::error::api_message;

impl Worker {
    pub(super) fn input<'a>(
        &'a self,
        pod: &'a Pod,
        containers: &'a HashMap<String, ContainerState>,
        ending: bool,
        address: &'a str,
        own: &'a [String],
    ) -> Input<'a> {
        Input {
            pod,
            containers,
            runtime: self.node.runtime.name(),
            address,
            own,
            sandbox: self.ready,
            ending,
            disrupted: self.disrupted,
            failed: self.failed.as_ref().map(|it| (it.0, it.1.as_str())),
            now: Timestamp::now(),
            start: self.start,
            since: &self.since,
        }
    }

    pub(super) fn phase(&self, pod: &Pod) -> &'static str {
        let containers = self.containers.lock();
        status::phase(&self.input(pod, &containers, false, "", &[]))
    }

    /// Writes the pod's status if it changed. Before a pod is reported as terminated, its sidecars are stopped and its
    /// claims unprepared. Returns when to try again.
    pub(super) async fn report(&mut self, pod: &Pod, ending: bool) -> Wake {
        let known = has_ended(pod);
        if known && !ending {
            return None;
        }
        let uid = pod.uid().unwrap_or_default();
        if !ending && is_terminal_phase(self.phase(pod)) {
            self.stop_all(pod, self.grace(pod)).await;
            self.unprepare_claims(pod).await;
            // The claims may still be prepared. Once the pod is over, others get their devices: the next agent reports its end.
            if self.node.shutdown.is_cancelled() {
                return None;
            }
            self.remove_volumes(pod).await;
            self.eviction = None;
            self.ready = false;
            record_events(&self.node.events, self.node.allocations.end(&uid));
        }
        let resizes = match ending {
            true => ResizeConditions::default(),
            false => self.node.allocations.resizes(&uid),
        };
        self.was_resized |= resizes != ResizeConditions::default();
        let address = self.node.config.address.to_string();
        let own = self.node.addresses(pod);
        let mut status = {
            let containers = self.containers.lock();
            status::status(&self.input(pod, &containers, ending, &address, &own))
        };
        if self.was_resized {
            status::add_resizes(&mut status, &resizes);
        }
        for container in status["containerStatuses"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            let name = container["name"].as_str().unwrap_or_default();
            let health = self.node.claims.health(pod, name);
            if !health.is_empty() {
                container["allocatedResourcesStatus"] = health.into();
            }
        }
        if known {
            // The phase of a terminated pod does not change.
            status["phase"] = json!(pod.status.as_ref().and_then(|status| status.phase.clone()));
        }
        let uid = match self.origin {
            Origin::Api => pod.uid(),
            Origin::File => {
                self.record(pod, &status);
                Some(self.node.mirrors.uid_of(pod)?)
            }
        };
        replace_addresses(&mut status);
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        if self.sent.as_ref() == Some(&patch) && !self.was_overwritten(pod) {
            return None;
        }
        // Of the answer only the version is used.
        let api: Api<kube::core::PartialObjectMeta<Pod>> = Api::namespaced(
            self.node.client.clone(),
            &pod.namespace().unwrap_or_default(),
        );
        match api
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Strategic(&patch),
            )
            .await
        {
            Ok(stored) => {
                self.remember_conditions(&patch["status"]);
                self.sent_version = version(&stored.metadata);
                self.sent = Some(patch);
                self.report_pause = REPORT;
                None
            }
            // Another pod of that name by now, or none: the watch will report it.
            Err(kube::Error::Api(error)) if is_about_another(&error) => None,
            Err(error) => {
                let error = api_message(&error);
                tracing::warn!(pod = pod.name_any(), error, "pod status was not updated");
                let at = Instant::now() + self.report_pause;
                self.report_pause = (self.report_pause * 2).min(RETRY.1);
                Some(at)
            }
        }
    }

    /// Whether another client has changed a condition since it was reported, as the node controller does with the pods of a node that it
    /// takes for lost. A kubelet writes its status again then.
    fn was_overwritten(&self, pod: &Pod) -> bool {
        // The pod may have been observed before the report was.
        let (known, sent) = (version(&pod.metadata), self.sent_version);
        if self.origin != Origin::Api || known.is_none() || sent.is_none() || known <= sent {
            return false;
        }
        let status = pod.status.as_ref();
        let stored = status.and_then(|status| status.conditions.as_deref());
        let sent = self.sent.iter();
        let mut sent =
            sent.flat_map(|it| it["status"]["conditions"].as_array().into_iter().flatten());
        sent.any(|condition| {
            let mut stored = stored.unwrap_or_default().iter();
            let same = stored.find(|it| condition["type"] == it.type_);
            same.is_none_or(|it| condition["status"] != it.status)
        })
    }

    /// Remembers since when conditions are as they were reported.
    fn remember_conditions(&mut self, status: &Value) {
        for condition in status["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let time = text("lastTransitionTime").parse();
            let time = time.unwrap_or_else(|_| Timestamp::now());
            self.since.insert(text("type"), (text("status"), time));
        }
    }

    /// Writes down for the next agent what is known of a static pod, if that changed.
    fn record(&mut self, pod: &Pod, status: &Value) {
        let recorded = self.recorded.as_ref();
        if recorded.is_some_and(|recorded| recorded.holds(status)) {
            return;
        }
        let record = Record::of(status, &self.containers.lock());
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        if let Err(error) = record.write(&directory) {
            tracing::warn!(pod = pod.name_any(), %error, "static pod was not recorded");
        }
        self.remember_conditions(status);
        self.recorded = Some(record);
    }
}

/// The version of an object, if it can be compared with others.
fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

/// Lets addresses of a patch take the place of others: lists of them are merged, and a pod that has another one, as in a new sandbox,
/// would have both, which no API server accepts.
fn replace_addresses(status: &mut Value) {
    for field in ["hostIPs", "podIPs"] {
        if let Some(all) = status.get_mut(field).and_then(Value::as_array_mut) {
            all.insert(0, json!({"$patch": "replace"}));
        }
    }
}

/// The pod no longer exists: the API server compares UIDs.
fn is_about_another(error: &kube::core::Status) -> bool {
    matches!(error.code, 404 | 409) || error.code == 422 && error.message.contains("metadata.uid")
}
