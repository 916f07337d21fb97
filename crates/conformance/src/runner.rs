//! Runs the cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;

use crate::case::Case;
use crate::fixture::Fixture;
use crate::options::Options;
use crate::outcome::Stop;
use crate::report::{Record, Report, Verdict, printable};

/// A case waits several times; this multiple of the limit of one wait ends it.
const CASE_LIMIT: u32 = 12;
/// How much of the driver's output is shown.
pub(crate) const LINES: usize = 15;

/// The driver cannot be tested at all.
#[derive(Debug, thiserror::Error)]
#[error("the driver did not start: {}{}", printable(.reason), with_output(.output))]
pub struct StartError {
    /// The missing requirement.
    pub reason: String,
    /// The end of the driver's output.
    pub output: String,
}

fn with_output(output: &str) -> String {
    match output.is_empty() {
        true => String::new(),
        false => format!("; the end of its output:\n{}", printable(output)),
    }
}

/// Tries every selected case and calls `progress` after each.
///
/// # Errors
/// When the driver does not start, register and publish devices.
pub async fn run(
    options: Options,
    mut progress: impl FnMut(&Record),
) -> Result<Report, StartError> {
    let options = Arc::new(options);
    let mut first = bring_up(&options).await?;
    let (driver, versions) = (first.driver().to_owned(), first.versions());
    let selected = options.selected();
    let mut records = Vec::new();
    if options.is_command() {
        first.end().await;
        let work = selected.map(|case| {
            let options = Arc::clone(&options);
            async move { alone(case, options).await }
        });
        let mut results = futures::stream::iter(work).buffered(options.jobs);
        while let Some(record) = results.next().await {
            progress(&record);
            records.push(record);
        }
    } else {
        for case in selected {
            let record = try_case(case, &mut first).await;
            first.clean_up().await;
            progress(&record);
            records.push(record);
        }
    }
    Ok(Report {
        driver,
        versions,
        cases: records,
    })
}

/// A node with a driver that runs, is registered and has published its devices.
///
/// # Errors
/// When it does not.
pub(crate) async fn bring_up(options: &Arc<Options>) -> Result<Fixture, StartError> {
    let fixture = Fixture::new(Arc::clone(options)).await;
    let mut fixture = fixture.map_err(|error| StartError {
        reason: error.to_string(),
        output: String::new(),
    })?;
    if let Err(Stop::Fail(reason) | Stop::Skip(reason)) = fixture.bring_up().await {
        let output = fixture.output(LINES);
        fixture.end().await;
        return Err(StartError { reason, output });
    }
    Ok(fixture)
}

/// A case on a separate node.
async fn alone(case: &'static Case, options: Arc<Options>) -> Record {
    let start = Instant::now();
    let expected = options.selection.expected.contains(case.name);
    let mut fixture = match Fixture::new(options).await {
        Ok(fixture) => fixture,
        Err(error) => {
            let stop = Stop::Fail(error.to_string());
            return finish(case, Err(stop), expected, start.elapsed());
        }
    };
    let record = match fixture.bring_up().await {
        Ok(()) => try_case(case, &mut fixture).await,
        Err(stop) => {
            let mut record = finish(case, Err(stop), expected, start.elapsed());
            record.output = fixture.output(LINES);
            record
        }
    };
    fixture.end().await;
    record
}

async fn try_case(case: &'static Case, fixture: &mut Fixture) -> Record {
    let start = Instant::now();
    let options = fixture.options();
    let expected = options.selection.expected.contains(case.name);
    let result = if case.process && !options.is_command() {
        Err(Stop::Skip(
            "the kit must run the driver itself for this: --command".to_owned(),
        ))
    } else if fixture.devices().len() < case.devices {
        let (found, needed) = (fixture.devices().len(), case.devices);
        Err(Stop::Skip(format!(
            "the driver has {found} usable devices, {needed} are needed"
        )))
    } else {
        let limit = options.timeout.saturating_mul(CASE_LIMIT);
        let limit = limit.saturating_add(options.churn);
        let result = tokio::time::timeout(limit, (case.run)(fixture)).await;
        result.unwrap_or_else(|_| Err(Stop::Fail(format!("the case did not end within {limit:?}"))))
    };
    // The driver that failed a call may have ended in it.
    let result = match result {
        Err(Stop::Fail(observed)) => match fixture.ended().await {
            Some(status) => Err(Stop::Fail(format!(
                "{observed}; the driver's process has ended: {status}"
            ))),
            None => Err(Stop::Fail(observed)),
        },
        result => result,
    };
    fixture.reset();
    let mut record = finish(case, result, expected, start.elapsed());
    if matches!(record.verdict, Verdict::Fail | Verdict::ExpectedFailure) {
        record.output = fixture.output(LINES);
    }
    record
}

fn finish(case: &Case, result: Result<String, Stop>, expected: bool, took: Duration) -> Record {
    let (verdict, observed) = match result {
        Ok(observed) if expected => (Verdict::UnexpectedPass, observed),
        Ok(observed) => (Verdict::Pass, observed),
        Err(Stop::Skip(reason)) => (Verdict::Skip, reason),
        Err(Stop::Fail(observed)) if expected => (Verdict::ExpectedFailure, observed),
        Err(Stop::Fail(observed)) => (Verdict::Fail, observed),
    };
    Record::new(case, verdict, observed, took)
}
