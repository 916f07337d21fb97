//! What every layer of the server shares: the store, the resources that there are, the options, and budgets of memory.

use std::sync::Arc;

use allot_store::Backend;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::answers::{Budget, Counters};
use crate::config::Config;
use crate::registry::{self, Registry};

/// State of one server, below authorization, admission and handlers.
pub struct ServerState {
    /// Where objects are kept.
    pub backend: Arc<dyn Backend>,
    /// Which resources there are.
    pub registry: ArcSwap<Registry>,
    /// Options.
    pub config: Config,
    /// What all large answers together may hold.
    pub answers: Budget,
    /// What decoding large bodies may take.
    pub(crate) decoding: Budget,
    /// Counts of what was sent in pieces.
    pub counters: Arc<Counters>,
    /// Ends watches and other streams when the server stops.
    pub shutdown: CancellationToken,
}

impl ServerState {
    /// Over a backend, with the built-in resources that the options select.
    pub fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let registry = registry::builtin(&config.runtime_config, config.features.release());
        ServerState {
            backend,
            registry: ArcSwap::from_pointee(registry),
            answers: Budget::new(config.limits.answer_bytes),
            decoding: Budget::new(config.limits.decode_bytes),
            counters: Arc::default(),
            shutdown: CancellationToken::new(),
            config,
        }
    }
}
