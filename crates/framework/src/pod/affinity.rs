//! Terms of pod affinity and anti-affinity, compiled once for each pod.

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};

use super::PodInfo;
use crate::selectors::{LabelMap, Labels};

/// A compiled pod (anti-)affinity term.
#[derive(Debug, Clone)]
pub struct AffinityTerm {
    /// Pods it is about.
    pub selector: Labels,
    /// Their namespaces by name.
    pub namespaces: Vec<String>,
    /// Their namespaces by label.
    pub namespace_selector: Labels,
    /// The node label that defines the domains.
    pub topology_key: String,
}

impl AffinityTerm {
    pub(super) fn new(owner: &Pod, term: &PodAffinityTerm) -> Self {
        let mut selector = Labels::new(term.label_selector.as_ref());
        let labels = owner.metadata.labels.as_ref();
        // The API server folds these keys into the selector on creation; a pod created otherwise still has them.
        let folded = |key: &str| {
            term.label_selector
                .as_ref()
                .and_then(|s| s.match_expressions.as_ref())
                .is_some_and(|es| es.iter().any(|e| e.key == key))
        };
        for key in term
            .match_label_keys
            .iter()
            .flatten()
            .filter(|k| !folded(k))
        {
            if let Some(value) = labels.and_then(|l| l.get(key)) {
                selector.require_in(key, value);
            }
        }
        for key in term
            .mismatch_label_keys
            .iter()
            .flatten()
            .filter(|k| !folded(k))
        {
            if let Some(value) = labels.and_then(|l| l.get(key)) {
                selector.require_not_in(key, value);
            }
        }
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.extend(owner.metadata.namespace.clone());
        }
        Self {
            selector,
            namespaces,
            namespace_selector: Labels::new(term.namespace_selector.as_ref()),
            topology_key: term.topology_key.clone(),
        }
    }

    /// Whether the term selects a pod. `namespace_labels` are those of the pod's namespace.
    pub fn matches(&self, pod: &PodInfo, namespace_labels: Option<&LabelMap>) -> bool {
        let namespace = &*pod.key.namespace;
        let in_namespace = self.namespaces.iter().any(|n| n == namespace)
            || self.namespace_selector.is_everything()
            || namespace_labels.is_some_and(|labels| self.namespace_selector.matches(Some(labels)));
        in_namespace && self.selector.matches(pod.labels())
    }
}
