//! The moments at which pods are bound.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_reflector::{Collection, Observed, reflect};
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::Bench;

impl Bench {
    /// Names of pods as they are seen bound, with the moment.
    pub(super) async fn watch_bindings(
        &self,
    ) -> anyhow::Result<UnboundedReceiver<(String, Instant)>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.names.namespace());
        // Only bound pods are sent, and little of them is read: the load generator shares the machine.
        let bound = Collection::new(api, Some("spec.nodeName!="));
        let keep = |of: &str, field: &str| match of {
            "Pod" => field == "metadata",
            "ObjectMeta" => matches!(field, "name" | "uid" | "resourceVersion"),
            _ => true,
        };
        let (sender, receiver) = unbounded_channel();
        let listed = Arc::new(Notify::new());
        let is_listed = listed.clone();
        tokio::spawn(async move {
            let known = Mutex::new(HashSet::new());
            reflect::<Pod, _>(bound, keep, CancellationToken::new(), |observed| {
                let mut known = known.lock();
                let mut see = |pod: Pod| {
                    let new = known.insert(pod.metadata.uid.unwrap_or_default());
                    let pod = (pod.metadata.name.unwrap_or_default(), Instant::now());
                    !new || sender.send(pod).is_ok()
                };
                match observed {
                    Observed::Listed { items, .. } => {
                        let goes_on = items.into_iter().all(see);
                        is_listed.notify_one();
                        goes_on
                    }
                    Observed::Applied(pod) => see(*pod),
                    Observed::Deleted(pod) => {
                        known.remove(&pod.metadata.uid.unwrap_or_default());
                        true
                    }
                }
            })
            .await;
        });
        let patience = Duration::from_secs(self.args.patience);
        let first = tokio::time::timeout(patience, listed.notified()).await;
        first.context("pods cannot be listed")?;
        Ok(receiver)
    }
}
