//! JUnit's XML, as CI systems read it.

use std::fmt::Write as _;

use super::{Report, Verdict};

pub(super) fn write(report: &Report) -> String {
    let failures = report
        .cases
        .iter()
        .filter(|record| record.verdict.is_bad())
        .count();
    let skipped = report.count(Verdict::Skip) + report.count(Verdict::ExpectedFailure);
    let time: f64 = report
        .cases
        .iter()
        .map(|record| record.seconds.as_secs_f64())
        .sum();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "<testsuites>\n<testsuite name=\"dra-conformance {}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{time:.3}\">",
        escape(&report.driver),
        report.cases.len(),
    );
    for record in &report.cases {
        let _ = write!(
            text,
            "<testcase classname=\"dra.conformance\" name=\"{}\" time=\"{:.3}\">",
            record.case,
            record.seconds.as_secs_f64(),
        );
        let observed = escape(&record.observed);
        match record.verdict {
            Verdict::Pass => {}
            Verdict::Skip | Verdict::ExpectedFailure => {
                let _ = write!(text, "<skipped message=\"{observed}\"/>");
            }
            Verdict::Fail | Verdict::UnexpectedPass => {
                let hint = record
                    .hint
                    .map(|hint| format!("hint: {hint}\n"))
                    .unwrap_or_default();
                let body = format!(
                    "rule: {}\nsource: {}\n{hint}{}",
                    record.rule, record.source, record.output
                );
                let _ = write!(
                    text,
                    "<failure message=\"{observed}\">{}</failure>",
                    escape(&body)
                );
            }
        }
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// Text for XML; control characters that XML does not allow are removed.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Record;

    #[test]
    fn what_the_driver_says_does_not_break_the_document() {
        let record = Record {
            case: "c",
            verdict: Verdict::Fail,
            rule: "r",
            source: "s",
            observed: "<\"&\u{1b}[0m".into(),
            hint: None,
            output: "]]>\u{0}".into(),
            seconds: Duration::from_millis(1500),
        };
        let report = Report {
            driver: "d".into(),
            versions: Vec::new(),
            cases: vec![record],
        };
        let text = write(&report);
        assert!(
            text.contains(
                "<failure message=\"&lt;&quot;&amp;[0m\">rule: r&#10;source: s&#10;]]&gt;</failure>"
            ),
            "{text}"
        );
        assert!(
            text.contains("tests=\"1\" failures=\"1\" skipped=\"0\" time=\"1.500\""),
            "{text}"
        );
    }
}
