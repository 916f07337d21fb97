//! Converted objects for steps that cannot wait.

use parking_lot::Mutex;
use serde_json::Value;

use crate::error::Result;
use crate::registry::Resource;
use crate::server::Core;

/// How often a step is repeated at most: each repetition can use one more conversion.
pub const ROUNDS: usize = 8;

/// Computing field ownership compares objects in versions that are only known on the way. The step is repeated when the
/// missing conversions have been [fetched](Known::learn).
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

    /// Converts the missing objects; returns whether there were any.
    ///
    /// # Errors
    /// 500 if the webhook fails.
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
