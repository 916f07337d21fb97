//! Reinvocation: which mutating plugins run again after a later one changed the object.

use std::collections::HashSet;

use serde_json::Value;

/// What policies or webhooks have done to an object so far.
#[derive(Default)]
pub(super) struct Reinvocations {
    /// The second round has begun.
    again: bool,
    /// The object after the first.
    last: Value,
    /// Those with reinvocation that have run since the last change.
    invoked: HashSet<String>,
    /// Those that must run again.
    wanted: HashSet<String>,
}

impl Reinvocations {
    /// Begins the second round with an object that others may have changed since.
    pub fn repeat(&mut self, object: &Value) {
        self.again = true;
        if *object != self.last {
            self.changed();
        }
    }

    /// The number of the round, from 0.
    pub fn round(&self) -> u8 {
        self.again.into()
    }

    /// It is this one's turn.
    pub fn has(&self, key: &str) -> bool {
        !self.again || self.wanted.contains(key)
    }

    /// The object has been changed.
    pub fn changed(&mut self) {
        self.wanted.extend(self.invoked.drain());
    }

    /// A policy or webhook with reinvocation has run.
    pub fn asked(&mut self, key: String) {
        self.invoked.insert(key);
    }

    /// The round has ended.
    pub fn end(&mut self, object: &Value) {
        // Not needed otherwise.
        if !self.invoked.is_empty() {
            self.last = object.clone();
        }
    }
}
