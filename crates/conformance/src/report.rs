//! What became of the cases.

use std::time::Duration;

use serde::Serialize;

use crate::case::Case;

mod junit;
mod text;

pub(crate) use text::printable;

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The driver follows the rule.
    Pass,
    /// It does not.
    Fail,
    /// The rule does not apply, or cannot be tried.
    Skip,
    /// It does not, which was expected.
    ExpectedFailure,
    /// It does, although a failure was expected: the list of expected failures is out of date.
    UnexpectedPass,
}

impl Verdict {
    /// Whether it fails the run.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Fail | Self::UnexpectedPass)
    }
}

/// A case and how it ended.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Name of the case.
    pub case: &'static str,
    /// Whether the driver keeps the rule, breaks it, or could not be tested.
    pub verdict: Verdict,
    /// The rule that the case checks, in a sentence.
    pub rule: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    /// What the driver did, or why the case was skipped.
    pub observed: String,
    /// Where to look; for failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
    /// The end of the driver's output; for failures.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// How long it took.
    #[serde(serialize_with = "seconds")]
    pub seconds: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

impl Record {
    pub(crate) fn new(case: &Case, verdict: Verdict, observed: String, seconds: Duration) -> Self {
        let failed = matches!(verdict, Verdict::Fail | Verdict::ExpectedFailure);
        Self {
            case: case.name,
            verdict,
            rule: case.rule,
            source: case.source,
            observed,
            hint: failed.then_some(case.hint),
            output: String::new(),
            seconds,
        }
    }
}

/// All cases of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the driver.
    pub driver: String,
    /// Versions that it offers when it registers.
    pub versions: Vec<String>,
    /// In the order of [`crate::cases`].
    pub cases: Vec<Record>,
}

impl Report {
    /// Whether no case failed that was not expected to, and none passed that was.
    pub fn passed(&self) -> bool {
        !self.cases.iter().any(|record| record.verdict.is_bad())
    }

    /// The number of cases with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases
            .iter()
            .filter(|record| record.verdict == verdict)
            .count()
    }

    /// Names of the cases with this verdict.
    pub fn names(&self, verdict: Verdict) -> Vec<&'static str> {
        let records = self.cases.iter().filter(|record| record.verdict == verdict);
        records.map(|record| record.case).collect()
    }

    /// One document with all records.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// The report in the format that CI systems read.
    pub fn junit(&self) -> String {
        junit::write(self)
    }

    /// The last lines of the score card.
    pub fn summary(&self) -> String {
        text::summary(self)
    }

    /// # Panics
    /// With the score card unless the driver passed; for tests.
    pub fn assert_passed(&self) {
        let bad = self.cases.iter().filter(|record| record.verdict.is_bad());
        let lines: Vec<String> = bad.map(Record::text).collect();
        assert!(lines.is_empty(), "{}\n{}", lines.join("\n"), self.summary());
    }
}
