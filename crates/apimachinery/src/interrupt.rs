//! Cancellation of computations whose request has timed out.
//!
//! The time of a request can end while the server works on an object whose size the client chose. Long loops that do not
//! wait check for that and end with an error, so that an object does not count as valid because only a part of it was
//! validated.

use std::sync::OnceLock;

use crate::field::{Error, Path};

/// The text of the errors with which work ends.
pub const TEXT: &str = "the time of the request is over";

static ASK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the function that tells whether the request of the current task has timed out. Later calls have no effect.
pub fn ask(ask: fn() -> bool) {
    let _first = ASK.set(ask);
}

/// Whether the request of the current task has timed out. This remains so.
pub fn is_requested() -> bool {
    ASK.get().is_some_and(|ask| ask())
}

/// The error with which validation ends.
pub fn error(path: &Path) -> Error {
    Error::internal(path, TEXT)
}

/// For loops whose steps cost less than [`is_requested`]: checks only some of them.
#[derive(Debug, Default)]
pub struct Steps(u32);

impl Steps {
    /// The number of steps for each check.
    const EVERY: u32 = 256;

    /// Counts one more step; whether the work has to end.
    pub fn is_over(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(Self::EVERY) && is_requested()
    }
}
