//! The writes of the plugin for claims of another generation.

use std::sync::Arc;

use allot_framework::claim_plugin::{ClaimWriter, Message, PreBindError, Shared, WriterHandle};

use super::Writer;
use crate::actions::BindJob;
use crate::core::{BindError, Input};

impl WriterHandle for Writer {
    fn report(&self, message: Box<dyn Message>) {
        self.report(Input::ClaimPlugin(message));
    }

    fn count_conflict(&self) {
        self.metrics.conflict();
    }
}

impl Writer {
    /// Leaves the writes of the plugin to its writer.
    #[must_use]
    pub fn with_claim_plugin(mut self, plugin: Option<Arc<dyn ClaimWriter>>) -> Self {
        self.claim_plugin = plugin;
        self
    }

    pub(super) fn start_claim_plugin(&self, write: Shared) {
        let Some(plugin) = self.claim_plugin.clone() else {
            return;
        };
        if let Some(work) = plugin.start(write, Arc::new(self.clone())) {
            self.clone().spawn(|_| work);
        }
    }

    /// Writes the plugin's claims of a pod.
    pub(super) async fn write_plugin_claims(&self, job: &BindJob) -> Result<(), BindError> {
        let (Some(plugin), Some(writes)) = (&self.claim_plugin, &job.plugin_claims) else {
            return Ok(());
        };
        let is_canceled = || job.cancel.is_cancelled();
        let written = plugin.pre_bind(&job.pod, writes, &is_canceled, self).await;
        written.map_err(|error| match error {
            PreBindError::Canceled => BindError::canceled(),
            PreBindError::Failed(message) => BindError::new(message),
        })
    }
}
