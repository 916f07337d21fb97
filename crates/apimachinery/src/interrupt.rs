//! Work that is of no use any more.
//!
//! A server that works on an object whose size its client chose may find that the client's time is over. What
//! computes without waiting asks here in its long loops, and ends: with an error, so that nothing passes for valid because
//! not all of it was looked at.

use std::sync::OnceLock;

use crate::field::{Error, Path};

/// Why the work ended.
pub const TEXT: &str = "the time of the request is over";

static ASK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets what is asked: whether the work of the present task is of no use any more. The first one stays.
pub fn ask(ask: fn() -> bool) {
    let _first = ASK.set(ask);
}

/// Whether the present work is of no use any more. Once it is, it remains so.
pub fn is_requested() -> bool {
    ASK.get().is_some_and(|ask| ask())
}

/// The error with which validation ends.
pub fn error(path: &Path) -> Error {
    Error::internal(path, TEXT)
}

/// For loops whose steps cost less than the question: asks now and then.
#[derive(Debug, Default)]
pub struct Steps(u32);

impl Steps {
    /// How many steps are made between two questions.
    const EVERY: u32 = 256;

    /// One more step; whether the work is to end.
    pub fn is_over(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(Self::EVERY) && is_requested()
    }
}
