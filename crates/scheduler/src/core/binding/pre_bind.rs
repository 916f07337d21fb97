//! Pods in PreBind: their binding cycle can be canceled, so that a victim of preemption need not be deleted, and that
//! nothing more is written for a pod that is gone.

use tokio_util::sync::CancellationToken;

use super::{BindError, Binding, Phase};
use crate::core::{Core, Time};
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::pod::Uid;

/// The binding cycle of a pod in PreBind, as upstream's `podInPreBind`: it can be canceled until PreBind is over.
#[derive(Debug)]
pub(in crate::core) struct PodInPreBind {
    /// Tells the writer that it must not begin another write for the pod.
    cancel: CancellationToken,
    /// Why the cycle was canceled, while writes that had begun are not over yet.
    pub(super) canceled: Option<BindError>,
}

impl PodInPreBind {
    /// A pod whose writes stop with `cancel`.
    pub(in crate::core) fn new(cancel: CancellationToken) -> Self {
        Self {
            cancel,
            canceled: None,
        }
    }
}

impl Binding {
    /// Why the cycle was canceled, if it was.
    pub(super) fn canceled(&self) -> Option<&BindError> {
        self.pre_bind.as_ref()?.canceled.as_ref()
    }

    /// The plugin that PreBind runs for the pod.
    fn pre_bind_plugin(&self) -> Plugin {
        match self.claims.is_empty() && self.in_flight.is_empty() && self.plugin_claims.is_empty() {
            true => Plugin::VolumeBinding,
            false => Plugin::DynamicResources,
        }
    }
}

impl Core {
    /// Cancels the binding cycle of a pod in PreBind. Returns whether that was possible: a pod that is being bound, or for
    /// which PreBind has nothing to do, may be bound already.
    ///
    /// The resources of its node are free at once. Devices whose allocation is being written stay in use until the
    /// outcome of the write is known, since it may be carried out.
    pub(in crate::core) fn cancel_pod(&mut self, pod: &Uid, why: &str, time: Time) -> bool {
        let Some(binding) = self.bindings.get_mut(pod) else {
            return false;
        };
        let error = BindError::new(why.to_owned()).before_binding(binding.pre_bind_plugin());
        let Some(pre_bind) = &mut binding.pre_bind else {
            return false;
        };
        match binding.phase {
            Phase::Bind { .. } => return false,
            Phase::Waiting { .. } => self.bound(pod, Err(error), time),
            Phase::Writing if pre_bind.canceled.is_some() => {}
            Phase::Writing => {
                pre_bind.cancel.cancel();
                pre_bind.canceled = Some(error);
                let info = binding.queued.info.clone();
                self.cache.forget(pod);
                self.forget_nomination(pod, time);
                self.requeue(&ClusterEvent::PodGone(&info), time);
            }
        }
        true
    }
}
