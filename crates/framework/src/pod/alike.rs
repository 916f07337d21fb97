//! Pods on nodes that are alike.
//!
//! What the scheduler keeps of a pod that is on a node is the same for all pods of a workload, and 3 KB with its labels, most
//! of it room for fields that are not set. A cluster has few workloads beside its pods.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

/// How many different pods are remembered: each pod that is observed on a node is compared with them.
const REMEMBERED: usize = 32;

/// The pods that were observed last, without what tells pods of a workload from each other.
#[derive(Debug, Default)]
pub struct Alike(Mutex<VecDeque<Arc<Pod>>>);

impl Alike {
    /// One that is equal and was seen before, or else this one, which is remembered.
    pub(super) fn share(&self, pod: Arc<Pod>) -> Arc<Pod> {
        let mut known = self.0.lock();
        if let Some(at) = known.iter().position(|other| *other == pod) {
            // Pods of a workload come together: the next one is found at once.
            if at > 0
                && let Some(found) = known.remove(at)
            {
                known.push_front(found);
            }
            return known[0].clone();
        }
        known.truncate(REMEMBERED - 1);
        known.push_front(pod.clone());
        pod
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodInfo;

    fn observed(alike: &Alike, name: &str, more: Value) -> PodInfo {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": {"app": "a"}},
            "spec": {
                "nodeName": format!("node-of-{name}"),
                "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
            },
            "status": {"phase": "Running", "startTime": format!("2026-01-01T00:00:0{name}Z")},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            pod["metadata"][field] = value.clone();
        }
        PodInfo::observed_among(serde_json::from_value(pod).unwrap(), alike)
    }

    #[test]
    fn pods_that_are_alike_share_what_is_kept_of_them() {
        let alike = Alike::default();
        let (one, two) = (
            observed(&alike, "1", json!({})),
            observed(&alike, "2", json!({"resourceVersion": "7"})),
        );
        assert!(Arc::ptr_eq(&one.pod, &two.pod));
        for (info, name, version) in [(&one, "1", "1"), (&two, "2", "7")] {
            assert_eq!((&*info.key.name, &*info.uid), (name, name));
            assert_eq!(info.node_name(), Some(&*format!("node-of-{name}")));
            assert_eq!(info.version(), Some(version));
            assert_eq!(info.requests.milli_cpu, 2000);
            let time = info.start_time().unwrap().0.to_string();
            assert_eq!(time, format!("2026-01-01T00:00:0{name}Z"));
            assert_eq!(info.labels().unwrap()["app"], "a");
        }
    }

    #[test]
    fn pods_that_differ_share_nothing() {
        let alike = Alike::default();
        let one = observed(&alike, "1", json!({}));
        for other in [
            json!({"labels": {"app": "b"}}),
            json!({"namespace": "other"}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ] {
            let other = observed(&alike, "2", other);
            assert!(!Arc::ptr_eq(&one.pod, &other.pod));
        }
        assert!(!one.is_terminating());
    }

    /// A client with a thousand kinds of pods is no reason to remember all of them.
    #[test]
    fn only_the_last_are_remembered() {
        let alike = Alike::default();
        let first = observed(&alike, "1", json!({}));
        for number in 0..REMEMBERED {
            observed(&alike, "2", json!({"labels": {"app": number.to_string()}}));
        }
        assert_eq!(alike.0.lock().len(), REMEMBERED);
        let again = observed(&alike, "1", json!({}));
        assert!(!Arc::ptr_eq(&first.pod, &again.pod));
        assert_eq!(first.pod, again.pod);
    }
}
