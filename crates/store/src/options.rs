//! Sizes of a store.

/// Sizes of the store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Changes kept per collection for watches and older lists.
    pub window_events: usize,
    /// Bytes of values kept per collection for the same purpose.
    pub window_bytes: usize,
    /// Most writes that share one sync.
    pub group: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window_events: 10_000,
            window_bytes: 32 << 20,
            group: 512,
        }
    }
}
