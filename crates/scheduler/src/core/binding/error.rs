//! Why a binding cycle failed.

use crate::framework::Plugin;

/// Why a binding failed, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BindError {
    /// The text for the pod's condition and event.
    pub message: String,
    /// The pod was bound by another component: its reservations stay.
    pub bound_elsewhere: bool,
}

impl BindError {
    /// An error that leaves the pod without a node.
    #[must_use]
    pub fn new(message: String) -> Self {
        Self {
            message,
            bound_elsewhere: false,
        }
    }

    /// A write was not begun, because the binding cycle was canceled; the core knows why.
    pub(crate) fn canceled() -> Self {
        Self::new("context canceled".to_owned())
    }

    /// The error as upstream reports a failure of a plugin before the binding.
    #[must_use]
    pub fn before_binding(self, plugin: Plugin) -> Self {
        Self {
            message: format!(
                "running PreBind plugin {:?}: {}",
                plugin.name(),
                self.message
            ),
            ..self
        }
    }
}
