//! Sets of completion indexes in the form `1,3-5,7`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// A set of indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::job) struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads the text form, of indexes below a limit; unreadable parts are skipped.
    pub(in crate::job) fn parse_below(text: &str, limit: i32) -> Self {
        let mut set = BTreeSet::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            match part.split_once('-') {
                Some((first, last)) => {
                    if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                        set.extend(first..=last.min(limit - 1));
                    }
                }
                None => set.extend(part.parse::<i32>().ok().filter(|index| *index < limit)),
            }
        }
        Self(set)
    }

    pub(in crate::job) fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub(in crate::job) fn insert(&mut self, index: i32) {
        self.0.insert(index);
    }

    pub(in crate::job) fn len(&self) -> i32 {
        i32::try_from(self.0.len()).unwrap_or(i32::MAX)
    }

    /// How many indexes are in both sets.
    pub(in crate::job) fn common(&self, other: &Self) -> i32 {
        i32::try_from(self.0.intersection(&other.0).count()).unwrap_or(i32::MAX)
    }

    /// The text form as JSON; null if the set is empty.
    pub(in crate::job) fn to_value(&self) -> Value {
        if self.0.is_empty() {
            Value::Null
        } else {
            json!(self.to_string())
        }
    }
}

impl std::fmt::Display for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        let parts: Vec<String> = ranges
            .into_iter()
            .map(|(a, b)| match b - a {
                0 => a.to_string(),
                1 => format!("{a},{b}"),
                _ => format!("{a}-{b}"),
            })
            .collect();
        f.write_str(&parts.join(","))
    }
}
