//! Converted objects for synchronous code, which cannot call the conversion webhook.

use parking_lot::Mutex;
use serde_json::Value;

/// How often a step is repeated at most: each time it can come one conversion further.
pub const ROUNDS: usize = 8;

/// Finding out who owns which field compares objects in versions that only turn up on the way. The step is repeated
/// when what it lacked has been learned, see `conversion::learn` of the server.
#[derive(Debug, Default)]
pub struct Known {
    made: Mutex<Vec<(Value, String, Value)>>,
    wanted: Mutex<Vec<(Value, String)>>,
}

impl Known {
    /// An object in another version; a missing one is recorded.
    pub fn get(&self, object: &Value, version: &str) -> Option<Value> {
        let made = self.made.lock();
        let known = made.iter().find(|it| it.1 == version && it.0 == *object);
        if known.is_none() {
            let missing = (object.clone(), version.to_owned());
            self.wanted.lock().push(missing);
        }
        known.map(|(.., converted)| converted.clone())
    }

    /// Returns and clears the list of missing objects.
    pub fn take_wanted(&self) -> Vec<(Value, String)> {
        std::mem::take(&mut *self.wanted.lock())
    }

    /// Adds an object in another version.
    pub fn add(&self, object: Value, version: String, converted: Value) {
        self.made.lock().push((object, version, converted));
    }
}
