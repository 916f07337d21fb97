//! What a test binary prints, line by line: the format of Rust's test harness.

use std::collections::{BTreeMap, BTreeSet};

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It did not run.
    Ignored,
}

/// What a line tells.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// A test ended.
    Ended(String),
    /// A test runs for more than a minute.
    Slow(String),
    /// Anything else.
    Other,
}

/// What was printed so far.
#[derive(Debug, Default)]
pub struct Output {
    /// The tests that ended, and how.
    pub ended: BTreeMap<String, End>,
    /// Tests that did not run or said so themselves, with the reasons.
    pub skipped: BTreeMap<String, String>,
    /// What else is to be told at the end.
    pub notes: Vec<String>,
    /// What was printed about the failures.
    pub failures: Vec<String>,
    /// Whether the harness got to its end.
    pub complete: bool,
    section: Section,
}

/// Where in the output of a binary a line stands.
#[derive(Debug, Default, PartialEq, Eq)]
enum Section {
    /// Tests end.
    #[default]
    Tests,
    /// What tests printed that passed; the name of the test that printed.
    Successes(String),
    /// What tests printed that failed.
    Failures,
}

/// More lines of failures are left out.
const LONGEST: usize = 400;

/// How a test says that it did nothing, and why.
const SKIPPED: &str = "skipped: ";

/// How the conformance suites tell of an expected failure that passed.
const FIXED: &str = "passes, so that it can be taken off expected-failures.txt: ";

impl Output {
    /// Takes a line in.
    pub fn line(&mut self, line: &str) -> Told {
        if let Some(told) = self.test(line) {
            return told;
        }
        if line.starts_with(FIXED) {
            self.notes.push(line.to_owned());
        } else if line == "successes:" {
            self.section = Section::Successes(String::new());
        } else if line == "failures:" {
            self.section = Section::Failures;
        } else if line.starts_with("test result: ") {
            self.complete = true;
            self.section = Section::Tests;
        } else {
            self.detail(line);
        }
        Told::Other
    }

    /// A line about a test: its end, or that it takes long.
    fn test(&mut self, line: &str) -> Option<Told> {
        let rest = line.strip_prefix("test ")?;
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            return Some(Told::Slow(plain(name)));
        }
        let (name, end) = rest.rsplit_once(" ... ")?;
        let name = plain(name);
        let end = match end.split(',').next().unwrap_or_default().trim() {
            "ok" => End::Passed,
            "FAILED" => End::Failed,
            "ignored" => {
                let why = end.trim_start_matches("ignored").trim_matches([',', ' ']);
                self.skipped.insert(name.clone(), why.to_owned());
                End::Ignored
            }
            _ => return None,
        };
        self.ended.insert(name.clone(), end);
        Some(Told::Ended(name))
    }

    /// A line of what tests printed.
    fn detail(&mut self, line: &str) {
        match &mut self.section {
            Section::Tests => {}
            Section::Successes(test) => {
                if let Some(name) = header(line) {
                    *test = name.to_owned();
                } else if let Some(why) = line.strip_prefix(SKIPPED) {
                    self.skipped.insert(test.clone(), why.to_owned());
                }
            }
            Section::Failures => {
                if self.failures.len() < LONGEST {
                    self.failures.push(line.to_owned());
                }
            }
        }
    }

    /// The tests that failed.
    pub fn failed(&self) -> BTreeSet<String> {
        let failed = self.ended.iter().filter(|(_, end)| **end == End::Failed);
        failed.map(|(name, _)| name.clone()).collect()
    }

    /// How many tests passed, without those that said that they skip.
    pub fn passed(&self) -> usize {
        let passed = self.ended.iter().filter(|(_, end)| **end == End::Passed);
        passed
            .filter(|(name, _)| !self.skipped.contains_key(*name))
            .count()
    }
}

/// The name of a test without what the harness adds.
fn plain(name: &str) -> String {
    name.strip_suffix(" - should panic")
        .unwrap_or(name)
        .to_owned()
}

/// The test of a line `---- NAME stdout ----`.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The names in the answer to `--list`.
pub fn listed(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Output {
        let mut output = Output::default();
        for line in text.lines() {
            output.line(line);
        }
        output
    }

    #[test]
    fn outcomes_reasons_and_failures_are_read() {
        let output = read(
            "
running 5 tests
test a::good ... ok
test a::panics - should panic ... ok
test a::no_kubectl ... ok
test a::bad ... FAILED
test a::off ... ignored, takes a day

successes:

---- a::no_kubectl stdout ----
skipped: kubectl is not installed


successes:
    a::good
    a::no_kubectl

failures:

---- a::bad stdout ----
test words ... that look like an outcome
assertion failed

failures:
    a::bad

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
",
        );
        assert!(output.complete);
        assert_eq!(output.passed(), 2);
        assert_eq!(output.failed().into_iter().collect::<Vec<_>>(), ["a::bad"]);
        assert_eq!(output.skipped["a::no_kubectl"], "kubectl is not installed");
        assert_eq!(output.skipped["a::off"], "takes a day");
        assert!(output.failures.contains(&"assertion failed".to_owned()));
    }

    #[test]
    fn a_slow_test_is_noticed_and_a_list_is_read() {
        let mut output = Output::default();
        let told = output.line("test a::slow has been running for over 60 seconds");
        assert_eq!(told, Told::Slow("a::slow".to_owned()));
        let names = listed("a::b: test\nc: bench\nd: test\n\n2 tests, 1 benchmark\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a::b", "d"]);
    }

    #[test]
    fn a_binary_that_ends_early_is_not_complete() {
        assert!(!read("running 2 tests\ntest a ... ok\n").complete);
    }
}
