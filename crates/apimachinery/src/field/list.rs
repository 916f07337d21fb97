//! Lists of errors, which are bounded: the client determines how many errors there are.

use std::collections::HashSet;
use std::ops::Deref;

use super::Error;

/// The bytes that the errors of a list take, after which no more are kept.
const MOST_SIZE: usize = 1 << 20;

/// The length of the text about errors in one answer, after which they are only counted. The client determines how many
/// errors there are: an entry of two bytes in a list can cause several with hundreds of bytes each.
pub const MOST_TEXT: usize = 64 << 10;

/// All that is wrong with an object, in the order in which it was found.
///
/// The list keeps errors up to 1 MiB, which is many times what an [answer](aggregate) tells, and drops those that are
/// found afterwards. It then remembers that there were more, and is not empty even if all that it kept are taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorList {
    kept: Vec<Error>,
    size: usize,
    /// Whether errors were dropped.
    more: bool,
}

impl ErrorList {
    /// A list without errors.
    pub const fn new() -> Self {
        Self {
            kept: Vec::new(),
            size: 0,
            more: false,
        }
    }

    /// Adds an error that was found, unless the list is full.
    pub fn push(&mut self, error: Error) {
        self.insert(self.kept.len(), error);
    }

    /// Adds an error at a place that is not the end, unless the list is full.
    pub fn insert(&mut self, at: usize, error: Error) {
        if self.is_full() {
            self.more = true;
            return;
        }
        self.size += error.size();
        self.kept.insert(at, error);
    }

    /// Adds what another list has.
    pub fn append(&mut self, other: Self) {
        let more = other.more;
        self.extend(other.kept);
        self.more |= more;
    }

    /// Whether nothing was found. A list of which everything was taken away is not empty if it was full.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && !self.more
    }

    /// Whether no more errors are kept. Validation whose work grows with the number of errors may
    /// end here, after it has pushed the error that it has found: that the list is incomplete is known from a push.
    pub fn is_full(&self) -> bool {
        self.more || self.size >= MOST_SIZE
    }

    /// Takes away the errors that are none after all.
    pub fn retain(&mut self, keep: impl FnMut(&Error) -> bool) {
        self.kept.retain(keep);
        self.size = self.kept.iter().map(Error::size).sum();
    }

    /// Replaces each error by others, or by none, at its place.
    pub fn replace_each<T: IntoIterator<Item = Error>>(&mut self, replace: impl FnMut(Error) -> T) {
        let before = std::mem::take(self);
        self.extend(before.kept.into_iter().flat_map(replace));
        self.more |= before.more;
    }

    /// Sorts the errors by their texts.
    pub fn sort_by_text(&mut self) {
        self.kept.sort_by_cached_key(ToString::to_string);
    }

    /// Takes away the errors from the place `at` on, for a list of their own.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self {
            kept: self.kept.split_off(at),
            size: 0,
            // What was dropped would have been at the end.
            more: std::mem::take(&mut self.more),
        };
        rest.size = rest.kept.iter().map(Error::size).sum();
        self.size -= rest.size;
        rest
    }
}

impl Deref for ErrorList {
    type Target = [Error];

    fn deref(&self) -> &[Error] {
        &self.kept
    }
}

impl Extend<Error> for ErrorList {
    fn extend<T: IntoIterator<Item = Error>>(&mut self, errors: T) {
        for error in errors {
            self.push(error);
            if self.more {
                break;
            }
        }
    }
}

impl FromIterator<Error> for ErrorList {
    fn from_iter<T: IntoIterator<Item = Error>>(errors: T) -> Self {
        let mut list = Self::new();
        list.extend(errors);
        list
    }
}

impl<const N: usize> From<[Error; N]> for ErrorList {
    fn from(errors: [Error; N]) -> Self {
        errors.into_iter().collect()
    }
}

impl IntoIterator for ErrorList {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.iter()
    }
}

/// The text of several errors as upstream's aggregate formats it: a single one unchanged, several in brackets, equal
/// texts once. `None` without errors. After 64 KiB of text it says how many more there are.
pub fn aggregate(errors: &ErrorList) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let mut length = 0;
    let mut told = 0;
    for error in errors {
        if length > MOST_TEXT {
            break;
        }
        let text = error.to_string();
        length += text.len();
        told += 1;
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    match (errors.len() - told, errors.is_full()) {
        (0, false) => {}
        (0, true) => texts.push("and more errors".to_owned()),
        (rest, false) => texts.push(format!("and {rest} more errors")),
        (rest, true) => texts.push(format!("and at least {rest} more errors")),
    }
    joined(&texts)
}

/// Texts of errors as upstream's aggregate formats them: a single one unchanged, several in brackets. `None` without texts.
pub fn joined(texts: &[impl AsRef<str>]) -> Option<String> {
    let mut texts = texts.iter().map(AsRef::as_ref);
    let first: &str = texts.next()?;
    let Some(second) = texts.next() else {
        return Some(first.to_owned());
    };
    let mut all = format!("[{first}, {second}");
    for text in texts {
        all.push_str(", ");
        all.push_str(text);
    }
    all.push(']');
    Some(all)
}
