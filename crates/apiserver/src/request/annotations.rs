//! What admission notes about a request for the audit log.

use std::collections::BTreeMap;

use crate::audit::Level;

/// How much is noted about one request, in bytes: webhooks and expressions write texts of any length.
const MOST: usize = 256 * 1024;

/// The notes about a request, under keys of upstream. Nothing is kept unless the request is logged.
#[derive(Debug, Default)]
pub struct Annotations(parking_lot::Mutex<Notes>);

#[derive(Debug)]
struct Notes {
    level: Level,
    size: usize,
    texts: BTreeMap<String, String>,
}

impl Default for Notes {
    fn default() -> Self {
        Notes {
            level: Level::None,
            size: 0,
            texts: BTreeMap::new(),
        }
    }
}

impl Annotations {
    /// The request is logged at this level.
    pub(crate) fn begin(&self, level: Level) {
        self.0.lock().level = level;
    }

    /// Notes a text, which is made only if it is kept. The first one of a key stays.
    pub(crate) fn add(&self, key: impl Into<String>, text: impl FnOnce() -> String) {
        self.add_at(Level::Metadata, key, text);
    }

    /// As [`Annotations::add`], for what is logged from a level on.
    pub(crate) fn add_at(
        &self,
        level: Level,
        key: impl Into<String>,
        text: impl FnOnce() -> String,
    ) {
        let mut notes = self.0.lock();
        let key = key.into();
        if notes.level < level || notes.texts.contains_key(&key) {
            return;
        }
        let text = text();
        let size = notes.size + key.len() + text.len();
        if size <= MOST {
            notes.size = size;
            notes.texts.insert(key, text);
        }
    }

    /// The notes, which are taken out.
    pub(crate) fn take(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.0.lock().texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_by_level_and_up_to_a_size() {
        let notes = Annotations::default();
        notes.add("a", || unreachable!("nothing is logged"));
        notes.begin(Level::Metadata);
        notes.add("a", || "1".to_owned());
        notes.add("a", || "2".to_owned());
        notes.add_at(Level::Request, "b", || "3".to_owned());
        notes.add("c", || "x".repeat(MOST));
        notes.add("d", || "4".to_owned());
        let kept: Vec<_> = notes.take().into_iter().collect();
        let wanted = [("a", "1"), ("d", "4")].map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(kept, wanted);
    }
}
