//! Which cases a run includes, and which of them are expected to fail.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Empty means all.
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) expected: BTreeSet<&'static str>,
}

impl Selection {
    pub(crate) fn includes(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.only.is_empty() || any(&self.only)) && !any(&self.skip)
    }
}

/// Whether all of `text` matches a pattern in which `*` matches any text and `?` one character. Takes time proportional
/// to the product of both lengths.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // reached[i]: the pattern so far fits the first i characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for p in pattern.chars() {
        let mut next = vec![false; text.len() + 1];
        for i in 0..=text.len() {
            next[i] = match p {
                '*' => reached[i] || (i > 0 && next[i - 1]),
                p => i > 0 && reached[i - 1] && (p == '?' || p == text[i - 1]),
            };
        }
        reached = next;
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let check = |pattern, text, expected| {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}")
        };
        check("prepare-*", "prepare-answers", true);
        check("prepare", "prepare-answers", false);
        check("*-a?swers", "prepare-answers", true);
        check("*", "", true);
        check("?", "", false);
        check("*a*a*a*b", &"a".repeat(2000), false);
    }
}
