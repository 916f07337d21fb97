//! Which cases run, and which are expected to fail.

use std::collections::BTreeSet;

use crate::case::cases;
use crate::options::OptionsError;

#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    /// Empty means all.
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) expected: BTreeSet<&'static str>,
}

impl Selection {
    pub(crate) fn takes(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.only.is_empty() || any(&self.only)) && !any(&self.skip)
    }
}

pub(crate) fn patterns(patterns: &[impl AsRef<str>]) -> Result<Vec<String>, OptionsError> {
    let known = |pattern: &str| cases().iter().any(|case| matches(pattern, case.name));
    let check = |pattern: &str| match known(pattern) {
        true => Ok(pattern.to_owned()),
        false => Err(OptionsError::Pattern(pattern.to_owned())),
    };
    patterns
        .iter()
        .map(|pattern| check(pattern.as_ref()))
        .collect()
}

pub(crate) fn expected(text: &str) -> Result<BTreeSet<&'static str>, OptionsError> {
    let mut expected = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        let case = cases().iter().find(|case| case.name == name);
        let unknown = || OptionsError::Expected {
            line: index + 1,
            name: name.to_owned(),
        };
        expected.insert(case.ok_or_else(unknown)?.name);
    }
    Ok(expected)
}

/// Whether all of `text` matches a pattern in which `*` matches any text and `?` one character. Takes time proportional
/// to the product of both lengths.
fn matches(pattern: &str, text: &str) -> bool {
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

    #[test]
    fn lists_name_cases_that_exist() {
        assert!(
            expected("# none\n\nprepare-answers # a reason\n")
                .unwrap()
                .contains("prepare-answers")
        );
        let error = expected("prepare-answers\nprepare-anwsers\n")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "expected failures, line 2: there is no case \"prepare-anwsers\""
        );
        assert!(patterns(&["no-such-*"]).is_err());
    }
}
