//! The verdict on a suite: failures, expected failures, and unexpected passes.

use std::collections::BTreeMap;
use std::fs;

use crate::recordings;

/// The failures that are expected, as `tests/conformance/expected-failures.txt` lists them: `SUITE::NAME  REASON`.
///
/// # Panics
///
/// If the file is missing or a line has no reason.
pub fn expected_failures() -> BTreeMap<String, String> {
    let path = recordings::folder().join("expected-failures.txt");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse(&text)
}

fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, reason) = line
                .split_once(char::is_whitespace)
                .unwrap_or_else(|| panic!("{line:?} lacks a reason"));
            (name.to_owned(), reason.trim().to_owned())
        })
        .collect()
}

/// The outcomes of the cases of one suite.
#[derive(Debug)]
pub struct Outcomes {
    suite: String,
    expected: BTreeMap<String, String>,
    passed: usize,
    failed: Vec<String>,
    expected_failed: Vec<String>,
    expected_passed: Vec<String>,
}

impl Outcomes {
    /// The outcomes of a suite, with the failures that the repository expects.
    pub fn new(suite: &str) -> Self {
        Self::with(suite, expected_failures())
    }

    fn with(suite: &str, expected: BTreeMap<String, String>) -> Self {
        Self {
            suite: suite.to_owned(),
            expected,
            passed: 0,
            failed: Vec::new(),
            expected_failed: Vec::new(),
            expected_passed: Vec::new(),
        }
    }

    /// Adds the result of a case: passed, or failed with a message.
    pub fn add(&mut self, name: &str, result: Result<(), String>) {
        let name = format!("{}::{name}", self.suite);
        match (result, self.expected.get(&name)) {
            (Ok(()), Some(_)) => self.expected_passed.push(name),
            (Ok(()), None) => self.passed += 1,
            (Err(_), Some(reason)) => self.expected_failed.push(format!("{name}: {reason}")),
            (Err(error), None) => self.failed.push(format!("{name}: {error}")),
        }
    }

    /// Prints the counts and the differences from the list of expected failures.
    ///
    /// # Panics
    ///
    /// If a case failed that is not on the list, or if there were no cases.
    pub fn finish(self) {
        for name in &self.expected_failed {
            println!("expected failure: {name}");
        }
        for name in &self.expected_passed {
            println!("passes, so that it can be taken off expected-failures.txt: {name}");
        }
        let passed = self.passed + self.expected_passed.len();
        println!(
            "{}: {passed} passed, {} failed, {} failed as expected",
            self.suite,
            self.failed.len(),
            self.expected_failed.len()
        );
        assert!(
            self.failed.is_empty(),
            "{} cases of {} failed:\n{}",
            self.failed.len(),
            self.suite,
            self.failed.join("\n")
        );
        assert!(passed > 0, "{}: no cases", self.suite);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes() -> Outcomes {
        Outcomes::with("s", parse("# why\n\ns::known  it is so upstream\n"))
    }

    #[test]
    fn only_what_is_listed_may_fail() {
        let mut fine = outcomes();
        fine.add("a", Ok(()));
        fine.add("known", Err("differs".to_owned()));
        fine.finish();

        let mut bad = outcomes();
        bad.add("a", Ok(()));
        bad.add("b", Err("differs".to_owned()));
        assert!(std::panic::catch_unwind(|| bad.finish()).is_err());
    }

    #[test]
    fn a_suite_without_cases_does_not_pass() {
        assert!(std::panic::catch_unwind(|| outcomes().finish()).is_err());
    }

    #[test]
    fn an_expected_failure_that_passes_is_noticed() {
        let mut all = outcomes();
        all.add("known", Ok(()));
        assert_eq!(all.expected_passed, ["s::known"]);
    }

    #[test]
    fn every_expected_failure_has_a_reason() {
        for (name, reason) in expected_failures() {
            assert!(name.contains("::") && reason.len() > 20, "{name}: {reason}");
        }
        assert!(std::panic::catch_unwind(|| parse("s::name")).is_err());
    }
}
