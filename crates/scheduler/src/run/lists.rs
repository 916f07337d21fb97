//! Which kinds have been listed: no decision is made before all are.

use std::mem::{Discriminant, discriminant};

use allot_reflector::Observed;
use rustc_hash::FxHashSet;

use crate::core::Input;

/// The kind of the observed objects; of those of the plugin for claims of another generation by its name.
type Kind = (Discriminant<Input>, Option<&'static str>);

/// The kinds whose first list has arrived.
pub(super) struct Lists {
    kinds: usize,
    listed: FxHashSet<Kind>,
}

impl Lists {
    /// Expects the first list of each of this number of kinds.
    pub(super) fn new(kinds: usize) -> Self {
        let listed = FxHashSet::default();
        Self { kinds, listed }
    }

    /// Whether all have been listed.
    pub(super) fn are_complete(&self) -> bool {
        self.listed.len() >= self.kinds
    }

    /// A kind may be listed again before another one is for the first time.
    pub(super) fn note(&mut self, input: &Input) {
        if !self.are_complete() && is_list(input) {
            let of_plugin = match input {
                Input::ClaimPlugin(message) => message.list_of(),
                _ => None,
            };
            self.listed.insert((discriminant(input), of_plugin));
        }
    }
}

fn is_list(input: &Input) -> bool {
    fn listed<K>(o: &Observed<K>) -> bool {
        matches!(o, Observed::Listed { .. })
    }
    match input {
        Input::Node(o) => listed(o),
        Input::Pod(o) => listed(o),
        Input::Claim(o) => listed(o),
        Input::Slice(o) => listed(o),
        Input::Class(o) => listed(o),
        Input::TaintRule(o) => listed(o),
        Input::PodGroup(o) => listed(o),
        Input::Budget(o) => listed(o),
        Input::Namespace(o) => listed(o),
        Input::VolumeClaim(o) => listed(o),
        Input::Volume(o) => listed(o),
        Input::StorageClass(o) => listed(o),
        Input::CsiNode(o) => listed(o),
        Input::VolumeAttachment(o) => listed(o),
        Input::CsiDriver(o) => listed(o),
        Input::StorageCapacity(o) => listed(o),
        Input::Quota(o) => listed(o),
        Input::ClaimPlugin(message) => message.list_of().is_some(),
        Input::VolumesWritten { .. }
        | Input::ClaimWritten { .. }
        | Input::Released { .. }
        | Input::ClaimsReady(_)
        | Input::NotPreempted(_)
        | Input::Bound { .. } => false,
    }
}

#[cfg(test)]
mod tests;
