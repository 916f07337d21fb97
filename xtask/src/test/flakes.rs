//! docs/FLAKES.md: the tests that failed, passed when they ran alone, and are not fixed yet.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

const HEAD: &str = "# Flaky tests

`cargo xtask test` runs a failed test again alone, once. A test that passes the second time is printed as `FLAKY` at the end, also by
`.ci/run`. On a developer's machine it is added to the list below, which is part of the next commit. Each flaky test is a bug of the test or
of the program, and is fixed before new work starts:

1. Reproduce it: run the test alone in a loop, next to a busy core (`yes > /dev/null`), until it fails.
2. Find the event that the test should have awaited, or the race in the program. A longer deadline, a sleep or a retry does not fix it.
3. Fix it, with a test named `regression_…` if the program had the bug, and remove the line in the same commit.

";

/// Adds tests to the list, each name once.
pub fn note(path: &Path, flaky: &[String]) -> Result<()> {
    if flaky.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    fs::write(path, with(&text, flaky))?;
    println!("see docs/FLAKES.md");
    Ok(())
}

fn with(text: &str, flaky: &[String]) -> String {
    let known = text.lines().filter_map(|line| line.strip_prefix("- "));
    let new = flaky.iter().map(String::as_str);
    let names: BTreeSet<_> = known.chain(new).collect();
    let lines: String = names.iter().map(|name| format!("- {name}\n")).collect();
    format!("{HEAD}{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_listed_once() {
        let once = with("", &["b".to_owned()]);
        let twice = with(&once, &["b".to_owned(), "a".to_owned()]);
        assert_eq!(twice, format!("{HEAD}- a\n- b\n"));
    }
}
