//! What the operations of one patch take together.

use serde_json::Value;

use super::{Error, broken};

/// The maximum depth of a value after it is inserted, including its own depth: deeper JSON cannot be parsed.
/// Operations build on each other, so no limit on the patch alone bounds what comes out of it.
const MAX_DEPTH: usize = 127;
/// The most values that all operations of one patch may look at to see how deep they are.
const MAX_VISITED: usize = 8 * 1024 * 1024;

/// The most elements of lists that all operations of one patch may move: each insertion into and removal from a list moves
/// those behind.
const MAX_MOVED: usize = 32 * 1024 * 1024;

/// What the operations of a patch have taken together.
#[derive(Default)]
pub(super) struct PatchBudget {
    /// Bytes of JSON that have been copied.
    pub(super) copied: usize,
    visited: usize,
    moved: usize,
}

impl PatchBudget {
    /// Checks a value before it is put at a path.
    ///
    /// # Errors
    /// The value would be nested too deep there, or too much has been looked at.
    pub(super) fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), Error> {
        let above = path.matches('/').count();
        match MAX_DEPTH.checked_sub(above) {
            Some(levels) if self.fits(value, levels)? => Ok(()),
            _ => Err(broken(format!(
                "value at path is nested more than {MAX_DEPTH} levels deep"
            ))),
        }
    }

    /// Notes that an operation moves the elements of a list.
    ///
    /// # Errors
    /// Too many have been moved.
    pub(super) fn moves(&mut self, elements: usize) -> Result<(), Error> {
        self.moved += elements;
        match self.moved > MAX_MOVED {
            true => Err(broken(format!(
                "the operations move more than {MAX_MOVED} elements of lists"
            ))),
            false => Ok(()),
        }
    }

    /// The value has at most so many levels.
    fn fits(&mut self, value: &Value, levels: usize) -> Result<bool, Error> {
        self.visited += 1;
        if self.visited > MAX_VISITED {
            let text = format!("the operations look at more than {MAX_VISITED} values");
            return Err(broken(text));
        }
        let inner: &mut dyn Iterator<Item = &Value> = match value {
            Value::Array(items) => &mut items.iter(),
            Value::Object(members) => &mut members.values(),
            _ => return Ok(true),
        };
        let Some(levels) = levels.checked_sub(1) else {
            return Ok(false);
        };
        for value in inner {
            if !self.fits(value, levels)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
