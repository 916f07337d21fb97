//! The score card as text.

use std::fmt::Write as _;

use super::{Record, Report, Verdict};

/// The case that every case with a prepared claim builds on.
const BASIC: &str = "prepare-answers";

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
        let observed = printable(&self.observed);
        let mut text = format!("{word:<5} {:<34} {}", self.case, first_line(&observed));
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
            if observed.lines().count() > 1 {
                line("observed", &observed);
            }
            if let Some(hint) = self.hint {
                line("hint", hint);
            }
            line("output", &printable(&self.output));
        }
        text
    }
}

/// Text of a driver for a terminal, which obeys control characters: colours are removed, others shown.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = match after_colour(rest) {
            Some(after) => after,
            None => {
                match c {
                    '\n' | '\t' => shown.push(c),
                    c if c.is_control() => shown.extend(c.escape_default()),
                    c => shown.push(c),
                }
                &rest[c.len_utf8()..]
            }
        };
    }
    shown
}

/// The text after the sequence for a colour, if it begins with one.
fn after_colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
    end.strip_prefix('m')
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
        "{}{}: {} of {tried} cases passed{}{}{}{}",
        first_of_all(report),
        printable(&report.driver),
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

/// A driver that prepares nothing fails most cases, and their hints are about what comes later.
fn first_of_all(report: &Report) -> String {
    let failed = || {
        let records = report.cases.iter();
        records.filter(|record| record.verdict == Verdict::Fail)
    };
    let unprepared = |record: &&Record| record.observed.starts_with("NodePrepareResources: ");
    if !failed()
        .filter(unprepared)
        .any(|record| record.case == BASIC)
    {
        return String::new();
    }
    match failed().filter(unprepared).count() - 1 {
        0 => String::new(),
        others => format!(
            "first of all {BASIC}: {others} other cases failed because no claim was prepared, whatever their hints say\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The name of a file or a line of its output could clear the terminal, or write something else there.
    #[test]
    fn regression_what_the_driver_says_does_not_control_the_terminal() {
        let record = Record {
            case: "c",
            verdict: Verdict::Fail,
            rule: "r",
            source: "s",
            observed: "a\u{1b}[2Jb\nc".into(),
            hint: None,
            output: "\u{1b}[1;31mred\u{1b}[0m\r\n\u{1b}]0;title\u{7}\u{9b}1m\u{1b}[3".into(),
            seconds: Duration::ZERO,
        };
        let text = record.text();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "FAIL  c                                  a\\u{1b}[2Jb",
                "      rule      r",
                "      source    s",
                "      observed  a\\u{1b}[2Jb",
                "                c",
                "      output    red\\r",
                "                \\u{1b}]0;title\\u{7}\\u{9b}1m\\u{1b}[3",
            ]
        );
    }

    fn report(cases: &[(&'static str, Verdict, &str)]) -> Report {
        let record = |(case, verdict, observed): &(&'static str, Verdict, &str)| Record {
            case,
            verdict: *verdict,
            rule: "r",
            source: "s",
            observed: (*observed).to_owned(),
            hint: None,
            output: String::new(),
            seconds: Duration::ZERO,
        };
        Report {
            driver: "d".into(),
            versions: Vec::new(),
            cases: cases.iter().map(record).collect(),
        }
    }

    /// A driver that fails every claim was told to remove CDI files and to persist answers.
    #[test]
    fn regression_a_driver_that_prepares_nothing_is_told_where_to_begin() {
        let panicked = "NodePrepareResources: Internal: driver: panicked";
        let report = |basic: Verdict| {
            summary(&report(&[
                (BASIC, basic, panicked),
                ("cdi-clean", Verdict::Fail, panicked),
                (
                    "churn",
                    Verdict::Fail,
                    "NodePrepareResources: no answer within 60s",
                ),
                ("publish-idle", Verdict::Fail, "3 writes"),
            ]))
        };
        assert_eq!(
            report(Verdict::Fail),
            "first of all prepare-answers: 2 other cases failed because no claim was prepared, whatever their hints say\n\
             d: 0 of 4 cases passed, 4 failed"
        );
        assert_eq!(report(Verdict::Pass), "d: 1 of 4 cases passed, 3 failed");
    }

    #[test]
    fn the_case_to_begin_with_exists() {
        assert!(crate::cases().iter().any(|case| case.name == BASIC));
    }
}
