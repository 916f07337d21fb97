//! The replica sets of a deployment.

use std::sync::Arc;

use serde_json::Value;

use super::plan::Size;
use super::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION};
use crate::controller::meta;
use crate::replicaset::Set;
use crate::workload::POD_TEMPLATE_HASH;

pub(super) fn size_of(set: &Set) -> Size {
    let number = |name: &str| meta::annotation(set, name).and_then(|v| v.parse().ok());
    Size {
        spec: set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1),
        status: set.status.as_ref().map_or(0, |s| s.replicas),
        available: set
            .status
            .as_ref()
            .and_then(|s| s.available_replicas)
            .unwrap_or(0),
        max: number(MAX_REPLICAS),
        desired: number(DESIRED_REPLICAS),
    }
}

pub(super) fn revision_of(set: &Set) -> i64 {
    meta::annotation(set, REVISION)
        .and_then(|r| r.parse().ok())
        .unwrap_or(0)
}

/// A pod template without the label that the controller adds.
pub(super) fn plain(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove(POD_TEMPLATE_HASH);
    }
    if let Some(metadata) = template
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.retain(|_, v| !v.is_null() && v.as_object().is_none_or(|o| !o.is_empty()));
    }
    template
}

/// All replica sets of a deployment, oldest first, and which of them is the new one.
pub(super) struct Sets {
    pub(super) all: Vec<Arc<Set>>,
    pub(super) new: Option<usize>,
}

impl Sets {
    pub(super) fn of(mut all: Vec<Arc<Set>>, template: &Value) -> Self {
        all.sort_by_key(|s| {
            (
                s.metadata.creation_timestamp.clone(),
                s.metadata.name.clone(),
            )
        });
        let wanted = plain(template);
        // The oldest of several equal ones, so that the choice is stable.
        let new = all
            .iter()
            .position(|s| plain(s.at("/spec/template")) == wanted);
        Self { all, new }
    }

    pub(super) fn new_set(&self) -> Option<&Arc<Set>> {
        self.new.map(|i| &self.all[i])
    }

    pub(super) fn old(&self) -> impl Iterator<Item = &Arc<Set>> {
        self.all
            .iter()
            .enumerate()
            .filter(|(i, _)| Some(*i) != self.new)
            .map(|(_, s)| s)
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        self.all.iter().map(|s| size_of(s)).collect()
    }
}
