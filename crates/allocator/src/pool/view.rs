//! The part of a pool that a node can access.

use rustc_hash::FxHashSet;
use smol_str::SmolStr;

use super::PoolInfo;
use crate::device::Scope;
use crate::node::{Node, NodeSelectorError};
use crate::slice::Slice;

/// Why it is unknown whether a node can access a slice; the text is upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    #[error("failed to perform node selection for slice {slice}: {error}")]
    Slice {
        slice: SmolStr,
        error: Box<NodeSelectorError>,
    },
    #[error("failed to perform node selection for device {device} in slice {slice}: {error}")]
    Device {
        slice: SmolStr,
        device: SmolStr,
        error: Box<NodeSelectorError>,
    },
}

/// The part of a pool that a node can access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) state: ViewState,
    /// The devices in the order in which they are tried.
    pub(crate) slots: Vec<u32>,
    /// Index of the generation.
    pub(crate) generation: u32,
    /// Some device has binding conditions, which puts the pool behind all others.
    pub(crate) binding: bool,
}

/// Whether a pool can be allocated from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewState {
    Usable,
    /// Some of its slices are not published yet.
    Incomplete,
    /// Its slices contradict each other.
    Invalid(String),
}

/// A view that is either part of the pool or was created for one attempt.
#[derive(Debug)]
pub(crate) enum ViewRef<'a> {
    Shared(&'a View),
    Own(Box<View>),
}

impl std::ops::Deref for ViewRef<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        match self {
            Self::Shared(view) => view,
            Self::Own(view) => view,
        }
    }
}

impl PoolInfo {
    pub(super) fn find_views(&mut self) {
        let counters = |info: &Self| -> Vec<u32> {
            info.rest
                .iter()
                .copied()
                .filter(|m| info.members[*m as usize].slice.has_counters())
                .collect()
        };
        self.outside = self.build(counters(self));
        self.inside = self
            .uniform
            .is_some()
            .then(|| {
                // In the order of listing: slices of one node come before the others.
                let local = self.local.values().flatten().copied();
                self.build(local.chain(self.rest.iter().copied()).collect())
            })
            .flatten();
    }

    /// The view from a node; `None` when the pool does not exist there.
    ///
    /// # Errors
    /// A node selector of the pool cannot be compiled.
    pub(crate) fn view(&self, node: &Node) -> Result<Option<ViewRef<'_>>, ViewError> {
        if let Some(scope) = &self.uniform {
            let matches = scope.matches(node);
            let matches = matches.map_err(|error| self.selector_error(error))?;
            let view = if matches { &self.inside } else { &self.outside };
            return Ok(view.as_ref().map(ViewRef::Shared));
        }
        let mut relevant = self.local.get(node.name()).cloned().unwrap_or_default();
        for &index in &self.rest {
            let slice = &self.members[index as usize].slice;
            if slice.has_counters() || self.reaches(slice, node)? {
                relevant.push(index);
            }
        }
        Ok(self
            .build(relevant)
            .map(|view| ViewRef::Own(Box::new(view))))
    }

    /// Whether the node can access the slice, or one of its devices.
    fn reaches(&self, slice: &Slice, node: &Node) -> Result<bool, ViewError> {
        let Scope::PerDevice = slice.scope else {
            return slice.scope.matches(node).map_err(|error| ViewError::Slice {
                slice: slice.name.clone(),
                error: Box::new(error.clone()),
            });
        };
        for device in &slice.devices {
            let matches = device.scope.matches(node);
            let matches = matches.map_err(|error| ViewError::Device {
                slice: slice.name.clone(),
                device: device.name.clone(),
                error: Box::new(error.clone()),
            })?;
            if matches {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The error of the node selector that all slices without counters have in common; upstream finds it in the first.
    fn selector_error(&self, error: &NodeSelectorError) -> ViewError {
        let slice = self
            .rest
            .iter()
            .map(|m| &self.members[*m as usize].slice)
            .find(|s| !s.has_counters());
        ViewError::Slice {
            slice: slice.map(|s| s.name.clone()).unwrap_or_default(),
            error: Box::new(error.clone()),
        }
    }

    /// The newest generation on all nodes: its state, and all its devices in any state.
    pub(crate) fn newest(&self) -> (ViewState, impl Iterator<Item = u32>) {
        let all = self.build((0..self.members.len() as u32).collect());
        let state = all.map_or(ViewState::Usable, |view| view.state);
        let newest = self.generations.first().map(|g| g.number);
        let slots = (0..self.slots.len() as u32)
            .filter(move |slot| Some(self.slice(*slot).generation) == newest);
        (state, slots)
    }

    /// Whether the newest generation has a device of this name.
    pub(super) fn publishes(&self, name: &str) -> bool {
        let newest = self.generations.first().map(|g| g.number);
        let mut slots = self.slots_named(name);
        slots.any(|slot| Some(self.slice(slot).generation) == newest)
    }

    /// How many slices there are of the newest generation, and how many there should be.
    pub(crate) fn seen_and_expected(&self) -> (i64, i64) {
        let expected = self.members.first().map_or(0, |m| m.slice.pool_slices);
        (self.generations.first().map_or(0, |g| g.seen), expected)
    }

    /// The view through these members, which are given in the order of listing.
    pub(super) fn build(&self, mut relevant: Vec<u32>) -> Option<View> {
        let generation = relevant
            .iter()
            .map(|m| self.members[*m as usize].slice.generation)
            .max()?;
        relevant.retain(|m| self.members[*m as usize].slice.generation == generation);
        let index = self
            .generations
            .iter()
            .position(|g| g.number == generation)?;
        let expected = self.members[relevant[0] as usize].slice.pool_slices;
        let mut view = View {
            state: ViewState::Usable,
            slots: Vec::new(),
            generation: index as u32,
            binding: false,
        };
        if relevant.len() as i64 != expected {
            if index > 0 {
                // A newer generation exists elsewhere, so this one is being replaced.
                return None;
            }
            if self.generations[index].seen != expected {
                view.state = ViewState::Incomplete;
                return Some(view);
            }
        }
        // Members are sorted by name already.
        relevant.sort_unstable();
        let mut names = FxHashSet::default();
        for member in relevant {
            let slice = &self.members[member as usize].slice;
            if slice.has_counters() {
                continue;
            }
            for (slot, device) in (self.starts[member as usize]..).zip(&slice.devices) {
                if !self.unique && !names.insert(device.name.as_str()) {
                    let problem = format!("duplicate device name {}", device.name);
                    view.state = ViewState::Invalid(problem);
                    view.slots.clear();
                    view.binding = false;
                    return Some(view);
                }
                view.binding |= device.binding_conditions.is_some();
                view.slots.push(slot);
            }
        }
        if let Some(problem) = &self.generations[index].problem {
            view.state = ViewState::Invalid(problem.clone());
            view.slots.clear();
            view.binding = false;
        }
        Some(view)
    }
}
