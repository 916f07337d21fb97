//! The state that all layers of the server share: the store, the resource registry, the options, and memory budgets.

use std::sync::Arc;
use std::time::Duration;

use allot_store::Backend;
use arc_swap::ArcSwap;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::answers::{Budget, Counters};
use crate::builtin;
use crate::config::Config;
use crate::error::Result;
use crate::extensions::Extensions;
use crate::registry::Registry;
use crate::select::extract;
use crate::unread;

/// The state of one server below authorization, admission and handlers.
pub struct ServerState {
    /// The storage backend.
    pub backend: Arc<dyn Backend>,
    /// The registry of served resources.
    pub registry: ArcSwap<Registry>,
    /// The extension API servers.
    pub(crate) extensions: Extensions,
    /// The server options.
    pub config: Config,
    /// The memory budget of all large responses together.
    pub answers: Budget,
    /// The bytes of answers that connections have not sent.
    pub(crate) unread: Arc<unread::Pool>,
    /// The memory budget for decoding large request bodies.
    pub(crate) decoding: Budget,
    /// Counters of chunked responses.
    pub counters: Arc<Counters>,
    /// Cancels watches and other streams on shutdown.
    pub shutdown: CancellationToken,
}

impl ServerState {
    /// Creates the state for a backend, with the built-in resources that the options select.
    pub fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let registry = builtin::registry_with(&config.runtime_config, &config.features);
        for version in config.runtime_config.missing(&registry) {
            tracing::warn!(
                version,
                "--runtime-config asks for a version that there is not"
            );
        }
        ServerState {
            backend,
            registry: ArcSwap::from_pointee(registry),
            extensions: Extensions::default(),
            answers: Budget::new(config.limits.answer_bytes),
            unread: unread::Pool::new(config.limits.unread_bytes),
            decoding: Budget::new(config.limits.decode_bytes),
            counters: Arc::default(),
            shutdown: CancellationToken::new(),
            config,
        }
    }

    /// Waits for a time, between repetitions of a task. False if the server stops meanwhile.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.shutdown.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// The object of a collection under this key, as it is stored.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn stored(&self, collection: &str, key: &str) -> Result<Option<Value>> {
        let entry = self.backend.get(collection, key).await?;
        // What the store holds was written by this server as JSON.
        Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// As [`ServerState::stored`], reduced to the values at some paths. Requests read a few fields of objects that may be
    /// large; skipping the rest is much cheaper than building it.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn stored_parts(
        &self,
        collection: &str,
        key: &str,
        paths: &[&str],
    ) -> Result<Option<Value>> {
        let entry = self.backend.get(collection, key).await?;
        Ok(entry.map(|entry| extract(&entry.value, paths)))
    }
}
