//! Compiled patterns, kept for the next object.

use std::collections::HashMap;
use std::sync::OnceLock;

use allot_cel::Regex;
use parking_lot::Mutex;

/// The memory that patterns may take. They come from definitions that users write, and one of a hundred bytes can be a
/// program of megabytes.
const MOST_SIZE: usize = 256 << 20;
/// What an entry takes besides.
const OVERHEAD: usize = 256;

/// Whether the text matches a pattern anywhere. A pattern that cannot be compiled matches nothing.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: OnceLock<Mutex<Patterns>> = OnceLock::new();
    let known = COMPILED.get_or_init(Mutex::default);
    let found = known.lock().get(pattern);
    // To compile a pattern and to look for it in a long text takes its time, which others must not wait for.
    let regex = found.unwrap_or_else(|| {
        let regex = Regex::new(pattern).ok();
        known.lock().insert(pattern, regex.clone());
        regex
    });
    regex.is_some_and(|regex| regex.is_match(text))
}

struct Patterns {
    entries: HashMap<String, Entry>,
    size: usize,
    most: usize,
    /// Counts uses.
    now: u64,
}

struct Entry {
    regex: Option<Regex>,
    size: usize,
    used: u64,
}

impl Default for Patterns {
    fn default() -> Self {
        Self::new(MOST_SIZE)
    }
}

impl Patterns {
    fn new(most: usize) -> Self {
        Self {
            entries: HashMap::new(),
            size: 0,
            most,
            now: 0,
        }
    }

    fn get(&mut self, pattern: &str) -> Option<Option<Regex>> {
        let entry = self.entries.get_mut(pattern)?;
        self.now += 1;
        entry.used = self.now;
        Some(entry.regex.clone())
    }

    fn insert(&mut self, pattern: &str, regex: Option<Regex>) {
        self.now += 1;
        let size = OVERHEAD + pattern.len() + regex.as_ref().map_or(0, Regex::size);
        let entry = Entry {
            regex,
            size,
            used: self.now,
        };
        self.size += size;
        if let Some(old) = self.entries.insert(pattern.to_owned(), entry) {
            self.size -= old.size;
        }
        if self.size > self.most {
            self.forget();
        }
    }

    /// Evicts the least recently used patterns until the cache is three quarters full.
    fn forget(&mut self) {
        let mut uses: Vec<(u64, usize)> = self
            .entries
            .values()
            .map(|entry| (entry.used, entry.size))
            .collect();
        uses.sort_unstable();
        let (mut size, mut least) = (self.size, 0);
        for (used, of) in uses {
            if size <= self.most / 4 * 3 {
                break;
            }
            size -= of;
            least = used;
        }
        self.entries.retain(|_, entry| entry.used > least);
        self.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(patterns: &Patterns) -> usize {
        patterns.entries.values().map(|entry| entry.size).sum()
    }

    /// Each of them is a program of a megabyte.
    #[test]
    fn regression_patterns_take_a_bounded_amount_of_memory() {
        let mut patterns = Patterns::new(32 << 20);
        for number in 0..40 {
            let pattern = format!("{number}[\\x{{80}}-\\x{{10ffff}}]{{500}}");
            let regex = Regex::new(&pattern).ok();
            let own = regex.as_ref().map_or(0, Regex::size);
            assert!(own >= 1 << 20, "{own}");
            patterns.insert(&pattern, regex);
            assert!(patterns.size <= patterns.most, "{}", patterns.size);
            assert_eq!(patterns.size, size(&patterns));
        }
    }

    #[test]
    fn those_that_are_used_stay() {
        let mut patterns = Patterns::new(10 << 20);
        patterns.insert("^used$", Regex::new("^used$").ok());
        for number in 0..1000 {
            let pattern = format!("^{number}$");
            patterns.insert(&pattern, Regex::new(&pattern).ok());
            assert!(patterns.get("^used$").is_some());
        }
        assert!(patterns.get("^0$").is_none());
        assert!(patterns.get("^999$").is_some());
        // What cannot be compiled counts, too.
        patterns.insert(&"(".repeat(1 << 20), None);
        assert!(patterns.size > 1 << 20);
        assert_eq!(patterns.size, size(&patterns));
    }
}
