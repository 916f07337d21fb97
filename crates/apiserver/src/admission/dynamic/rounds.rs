//! Who is asked again when others have changed an object after him.

use std::collections::HashSet;

use serde_json::Value;

/// What policies or webhooks have done to an object so far.
#[derive(Default)]
pub(super) struct Rounds {
    /// The second round has begun.
    again: bool,
    /// The object after the first.
    last: Value,
    /// Those that want to see what changes after them, and have been asked since the last change.
    invoked: HashSet<String>,
    /// Those that are to be asked once more.
    wanted: HashSet<String>,
}

impl Rounds {
    /// Begins the second round with an object that others may have changed since.
    pub fn repeat(&mut self, object: &Value) {
        self.again = true;
        if *object != self.last {
            self.changed();
        }
    }

    /// It is this one's turn.
    pub fn has(&self, key: &str) -> bool {
        !self.again || self.wanted.contains(key)
    }

    /// The object has been changed.
    pub fn changed(&mut self) {
        self.wanted.extend(self.invoked.drain());
    }

    /// One that wants to see later changes has been asked.
    pub fn asked(&mut self, key: String) {
        self.invoked.insert(key);
    }

    /// All have been asked.
    pub fn end(&mut self, object: &Value) {
        // Nobody looks at it otherwise.
        if !self.invoked.is_empty() {
            self.last = object.clone();
        }
    }
}
