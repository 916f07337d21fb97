//! What admission notes about a request for the audit log.

use std::collections::BTreeMap;

/// How much is noted about one request, in bytes: webhooks and expressions write texts of any length.
const MOST: usize = 256 * 1024;

/// The notes about a request, under keys of upstream. Nothing is kept unless the request is logged.
#[derive(Debug, Default)]
pub struct Annotations(parking_lot::Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    detail: Detail,
    size: usize,
    texts: BTreeMap<String, String>,
}

/// How much is logged about the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    #[default]
    Nothing,
    Metadata,
    Bodies,
}

impl Annotations {
    /// The request is logged, with its body or without it.
    pub(crate) fn begin(&self, with_body: bool) {
        self.0.lock().detail = match with_body {
            true => Detail::Bodies,
            false => Detail::Metadata,
        };
    }

    /// Notes a text, which is made only if it is kept. The first one of a key stays.
    pub(crate) fn add(&self, key: impl Into<String>, text: impl FnOnce() -> String) {
        self.keep(Detail::Metadata, key.into(), text);
    }

    /// As [`Annotations::add`], for what is logged only with the bodies of requests.
    pub(crate) fn add_with_body(&self, key: impl Into<String>, text: impl FnOnce() -> String) {
        self.keep(Detail::Bodies, key.into(), text);
    }

    fn keep(&self, detail: Detail, key: String, text: impl FnOnce() -> String) {
        let mut notes = self.0.lock();
        if notes.detail < detail || notes.texts.contains_key(&key) {
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
        notes.begin(false);
        notes.add("a", || "1".to_owned());
        notes.add("a", || "2".to_owned());
        notes.add_with_body("b", || "3".to_owned());
        notes.add("c", || "x".repeat(MOST));
        notes.add("d", || "4".to_owned());
        let kept: Vec<_> = notes.take().into_iter().collect();
        let wanted = [("a", "1"), ("d", "4")].map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(kept, wanted);
    }
}
