//! What a check found.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::interrupt::{self, Steps};

/// The text about faults that is composed for one object. Each fault names the place, with all keys above it, and a
/// client can send any number of values below a key that is as long as the rest of the object.
const MOST_TEXT: usize = 4 << 20;

/// The text and time that validation of one object may take.
pub(super) struct Budget {
    /// How much text may still be composed.
    text: Cell<usize>,
    steps: Cell<Steps>,
    /// The time of the request is over: validation is incomplete.
    over: Cell<bool>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            text: Cell::new(MOST_TEXT),
            steps: Cell::default(),
            over: Cell::new(false),
        }
    }
}

impl Budget {
    pub(super) fn is_spent(&self) -> bool {
        self.text.get() == 0
    }

    pub(super) fn spend(&self, text: &str) {
        self.text.set(self.text.get().saturating_sub(text.len()));
    }

    /// Counts one more value; false if the time of the request is over.
    pub(super) fn step(&self) -> bool {
        let mut steps = self.steps.take();
        if steps.is_over() {
            self.over.set(true);
        }
        self.steps.set(steps);
        !self.over.get()
    }

    /// The errors that were found; one error instead if validation is incomplete.
    pub(super) fn finish(&self, found: Outcome, path: &Path) -> ErrorList {
        match self.over.get() {
            true => [interrupt::error(path)].into(),
            false => found.errors(path),
        }
    }
}

/// The faults, and how much of the schema was gone through, by which alternatives are compared.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) faults: Vec<Fault>,
    /// The texts of the faults.
    seen: HashSet<Arc<str>>,
    pub(super) matches: u32,
}

/// One thing that is wrong, at a place relative to where validation began.
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) value: BadValue,
    /// The text; two faults with the same text are one.
    pub(super) text: Arc<str>,
}

pub(super) enum Kind {
    /// Belongs to the place where validation began.
    Start,
    Type,
    Required,
    /// The values that are allowed.
    Enum(Vec<String>),
    TooLong(i64),
    TooMany {
        count: i64,
        max: i64,
    },
    Other,
}

impl Fault {
    pub(super) fn of_start(text: String) -> Self {
        Self {
            kind: Kind::Start,
            name: String::new(),
            value: BadValue::from(""),
            text: text.into(),
        }
    }

    /// Stands for all that is beyond the [`Budget`].
    pub(super) fn untold() -> Self {
        Self::of_start("there are more errors, which are not listed".to_owned())
    }

    fn error(self, base: &Path) -> Error {
        let name = self.name.strip_prefix('.').unwrap_or(&self.name);
        let path = match self.kind {
            Kind::Start => base.clone(),
            _ if name.is_empty() => base.clone(),
            _ => base.child(name),
        };
        let size = |size: i64| usize::try_from(size).unwrap_or_default();
        match self.kind {
            Kind::Start | Kind::Other => Error::invalid(&path, self.value, &*self.text),
            Kind::Type => Error::type_invalid(&path, self.value, &*self.text),
            Kind::Required => Error::required(&path, ""),
            Kind::Enum(values) => Error::not_supported(&path, self.value, &values),
            Kind::TooLong(max) => {
                limited(Error::too_long(&path, size(max)), max, "value is too long")
            }
            Kind::TooMany { count, max } => {
                let error = Error::too_many(&path, size(count), size(max));
                limited(error, max, "has too many items")
            }
        }
    }
}

/// A limit below zero is one that nothing can keep, and is not named.
fn limited(mut error: Error, max: i64, otherwise: &str) -> Error {
    if max < 0 {
        error.detail = otherwise.to_owned();
    }
    error
}

impl Outcome {
    pub(super) fn of(fault: Fault) -> Self {
        let mut found = Self::default();
        found.add(fault);
        found
    }

    pub(super) fn passed() -> Self {
        Self {
            matches: 1,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, fault: Fault) {
        if self.seen.insert(fault.text.clone()) {
            self.faults.push(fault);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        let matches = self.matches + other.matches;
        if self.faults.is_empty() {
            *self = other;
        } else {
            other.faults.into_iter().for_each(|fault| self.add(fault));
        }
        self.matches = matches;
    }

    /// Forgets the faults.
    pub(super) fn forgive(&mut self) {
        self.faults.clear();
        self.seen.clear();
    }

    /// Takes over what one validator found; that it applied counts.
    pub(super) fn step(&mut self, other: Self) {
        self.merge(other);
        self.matches += 1;
    }

    pub(super) fn errors(self, base: &Path) -> ErrorList {
        self.faults
            .into_iter()
            .map(|fault| fault.error(base))
            .collect()
    }
}
