//! Pods that have to leave because of their node's taints.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

use super::{Nodes, plan};
use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::until;
use crate::controller::events::{Level, reference};
use crate::controller::informer::split_key;
use crate::controller::meta;
use crate::controller::nodes::taints;
use crate::controller::queue::Next;
use crate::controller::whole::Whole;
use crate::workload::disruption_target;

impl Nodes {
    /// Since when a pod may have to be evicted: not every taint has the time it was added.
    fn doomed_since(&self, key: &str, pod: &Pod, now: Timestamp) -> Timestamp {
        let mut doomed = self.doomed.lock();
        let entry = doomed.entry(key.to_owned());
        let entry = entry.or_insert_with(|| (meta::uid(pod).to_owned(), now));
        if entry.0 != meta::uid(pod) {
            *entry = (meta::uid(pod).to_owned(), now);
        }
        entry.1
    }

    /// Deletes a pod when its node's taints require it.
    pub(super) async fn sync_pod(&self, key: &str) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key).filter(|p| !meta::deleting(&**p)) else {
            return Ok(Next::Done);
        };
        let Some(node) = self.nodes.get(meta::node_name(&pod)) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let (namespace, name) = split_key(key);
        let since = self.doomed_since(key, &pod, now);
        let Some(at) = plan::eviction(taints(&node), &pod, since, &self.features) else {
            if self
                .doomed
                .lock()
                .remove(key)
                .is_some_and(|(_, since)| since < now)
            {
                self.evictions.event(
                    reference(&*pod),
                    Level::Normal,
                    "TaintManagerEviction",
                    format!("Cancelling deletion of Pod {namespace}/{name}"),
                );
            }
            return Ok(Next::Done);
        };
        if at > now {
            return Ok(Next::After(until(now, at)));
        }
        let api: Api<Whole<Pod>> = Api::namespaced(self.client.clone(), namespace);
        let Some(live) = api::get(&api, name)
            .await?
            .filter(|p| meta::uid(p) == meta::uid(&*pod))
        else {
            return Ok(Next::Done);
        };
        let conditions = disruption_target(
            &live,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            Some(meta::generation(&live)),
            now,
        );
        let body = json!({"metadata": api::unchanged(&live), "status": {"conditions": conditions}});
        api::patch(&api, name, Part::Status, &body).await?;
        self.evictions.event(
            reference(&*pod),
            Level::Normal,
            "TaintManagerEviction",
            format!("Marking for deletion Pod {namespace}/{name}"),
        );
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api::delete_cached(&self.pods, &pods, &pod, Delete::default()).await?;
        Ok(Next::Done)
    }
}
