//! The score card as text.

use std::fmt::Write as _;

use super::{Record, Report, Verdict};

impl Record {
    /// The case as a paragraph: one line unless it failed.
    pub fn text(&self) -> String {
        let word = match self.verdict {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "SKIP",
            Verdict::ExpectedFailure => "XFAIL",
            Verdict::UnexpectedPass => "XPASS",
        };
        let mut text = format!("{word:<5} {:<34} {}", self.case, first_line(&self.observed));
        if self.verdict.is_bad() {
            let mut line = |name: &str, content: &str| {
                for (index, part) in content.lines().enumerate() {
                    let name = if index == 0 { name } else { "" };
                    // Writing to a string does not fail.
                    let _ = write!(text, "\n      {name:<9} {part}");
                }
            };
            line("rule", self.rule);
            line("source", self.source);
            if self.observed.lines().count() > 1 {
                line("observed", &self.observed);
            }
            if let Some(hint) = self.hint {
                line("hint", hint);
            }
            line("output", &self.output);
        }
        text
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

pub(super) fn summary(report: &Report) -> String {
    let count = |verdict, word: &str| match report.count(verdict) {
        0 => String::new(),
        count => format!(", {count} {word}"),
    };
    let tried = report.cases.len() - report.count(Verdict::Skip);
    format!(
        "{}: {} of {tried} cases passed{}{}{}{}",
        report.driver,
        report.count(Verdict::Pass),
        count(Verdict::Fail, "failed"),
        count(Verdict::ExpectedFailure, "failed as expected"),
        count(
            Verdict::UnexpectedPass,
            "passed although a failure is expected"
        ),
        count(Verdict::Skip, "skipped"),
    )
}
