//! Converted objects for steps that cannot wait.

use parking_lot::Mutex;
use serde_json::Value;

use crate::error::Result;
use crate::registry::Resource;
use crate::server::Core;

/// How often a step is repeated at most: each time it can come one conversion further.
pub const ROUNDS: usize = 8;

/// Finding out who owns which field compares objects in versions that only turn up on the way. The step is repeated
/// when what it lacked has been [learned](Known::learn).
#[derive(Debug, Default)]
pub struct Known {
    made: Mutex<Vec<(Value, String, Value)>>,
    wanted: Mutex<Vec<(Value, String)>>,
}

impl Known {
    /// An object in another version; what is not known is noted.
    pub fn get(&self, object: &Value, version: &str) -> Option<Value> {
        let made = self.made.lock();
        let known = made.iter().find(|it| it.1 == version && it.0 == *object);
        if known.is_none() {
            let missing = (object.clone(), version.to_owned());
            self.wanted.lock().push(missing);
        }
        known.map(|(.., converted)| converted.clone())
    }

    /// Has what was missing converted; says whether something was.
    ///
    /// # Errors
    /// 500 where the webhook fails.
    pub async fn learn(&self, core: &Core, resource: &Resource) -> Result<bool> {
        let wanted = std::mem::take(&mut *self.wanted.lock());
        let any = !wanted.is_empty();
        for (object, version) in wanted {
            let converted = super::object(core, resource, &version, object.clone()).await?;
            self.made.lock().push((object, version, converted));
        }
        Ok(any)
    }
}
