//! The outcome of each test, as Rust's own harness prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

/// The tests of a run.
#[derive(Debug)]
pub struct Report {
    start: Instant,
    /// Selected and without an outcome yet.
    waiting: BTreeSet<String>,
    filtered: usize,
    /// Names of expected failures, with the reasons.
    expected: BTreeMap<String, String>,
    passed: usize,
    ignored: usize,
    failed: Vec<(String, String)>,
    fixed: Vec<String>,
}

impl Report {
    /// Of the selected tests.
    pub fn new(selected: Vec<String>, filtered: usize, expected: BTreeMap<String, String>) -> Self {
        println!("\nrunning {} tests", selected.len());
        Self {
            start: Instant::now(),
            waiting: selected.into_iter().collect(),
            filtered,
            expected,
            passed: 0,
            ignored: 0,
            failed: Vec::new(),
            fixed: Vec::new(),
        }
    }

    /// Adds the outcome of a test. An expected failure counts as ignored.
    pub fn add(&mut self, name: &str, result: Result<(), String>) {
        self.waiting.remove(name);
        match (result, self.expected.get(name)) {
            (Ok(()), expected) => {
                if expected.is_some() {
                    self.fixed.push(name.to_owned());
                }
                self.passed += 1;
                println!("test {name} ... ok");
            }
            (Err(_), Some(reason)) => {
                self.ignored += 1;
                println!("test {name} ... ignored, expected failure: {reason}");
            }
            (Err(error), None) => {
                println!("test {name} ... FAILED");
                self.failed.push((name.to_owned(), error));
            }
        }
    }

    /// A test that was asked for and has no outcome passed.
    pub fn add_if_missing(&mut self, name: &str) {
        if self.waiting.contains(name) {
            self.add(name, Ok(()));
        }
    }

    /// Adds a failure that is about the suite, such as a server that ended.
    pub fn fail(&mut self, name: &str, error: String) {
        self.add(name, Err(error));
    }

    /// Prints what failed, and the counts.
    pub fn finish(mut self) -> ExitCode {
        for name in std::mem::take(&mut self.waiting) {
            self.fail(&name, "the runner told no outcome of it".to_owned());
        }
        if !self.failed.is_empty() {
            println!("\nfailures:\n");
            for (name, error) in &self.failed {
                println!("---- {name} stdout ----\n{error}\n");
            }
            println!("\nfailures:");
            for (name, _) in &self.failed {
                println!("    {name}");
            }
        }
        for name in &self.fixed {
            println!("passes, so that it can be taken off expected-failures.txt: {name}");
        }
        let good = self.failed.is_empty();
        println!(
            "\ntest result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
            if good { "ok" } else { "FAILED" },
            self.passed,
            self.failed.len(),
            self.ignored,
            self.filtered,
            self.start.elapsed().as_secs_f64()
        );
        // What the harness of Rust ends with.
        if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(101)
        }
    }
}
