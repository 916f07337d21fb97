//! Runs a test binary, with a limit for each of its tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::binary::Binary;
use super::output::{Output, Told, listed};
use super::summary::Summary;

/// How long things may take before a binary is stopped.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// A test, from when the harness tells that it takes long.
    test: Duration,
    /// A binary that prints nothing while no test is known to take long.
    silence: Duration,
}

/// Five minutes for a test: the harness tells of it after the first.
const LIMITS: Limits = Limits {
    test: Duration::from_secs(240),
    silence: Duration::from_secs(600),
};

/// Tests that take longer by design: the simulations go through as many seeds as they are given, the conformance kit
/// is tried with a hundred drivers.
const LONG: &[(&str, Duration)] = &[
    (
        "nothing_is_lost_and_nothing_is_given_twice",
        Duration::from_secs(3600),
    ),
    (
        "nothing_is_stuck_and_nothing_is_leaked",
        Duration::from_secs(3600),
    ),
    ("drivers::each_fault_is_found", Duration::from_secs(1800)),
    (
        "drivers::broken_drivers_fail_exactly_what_they_must",
        Duration::from_secs(1800),
    ),
];

/// The name of what failed where a program does not name its tests.
const WHOLE: &str = "the whole program";

/// Lines of the standard error that are kept for a failure.
const KEPT: usize = 100;

/// How a run of a binary ended.
#[derive(Debug)]
struct Ran {
    output: Output,
    /// Tests that took too long, with which the binary was stopped.
    hung: BTreeSet<String>,
    /// Why there is no complete outcome, if so.
    broken: Option<String>,
    stderr: VecDeque<String>,
}

/// Runs the tests of a binary whose names hold one of the filters, and returns those that failed.
pub fn binary(binary: &Binary, filters: &[String], summary: &mut Summary) -> Result<Vec<String>> {
    within(binary, filters, LIMITS, summary)
}

fn within(
    binary: &Binary,
    filters: &[String],
    limits: Limits,
    summary: &mut Summary,
) -> Result<Vec<String>> {
    let start = Instant::now();
    let before = (summary.passed, summary.skipped.len());
    let mut failed = BTreeSet::new();
    let mut arguments = filters.to_vec();
    loop {
        let ran = once(binary, &arguments, limits)?;
        summary.passed += ran.output.passed();
        for (name, why) in &ran.output.skipped {
            summary
                .skipped
                .push(format!("{}: {why}", binary.shown(name)));
        }
        summary.notes.extend(ran.output.notes.iter().cloned());
        failed.extend(ran.output.failed());
        report(binary, &ran);
        let Some(broken) = ran.broken else {
            break;
        };
        println!("{} {}: {broken}", binary.package, binary.target);
        let mut left = list(binary, &arguments)?;
        left.retain(|name| !ran.output.ended.contains_key(name));
        if ran.hung.is_empty() {
            // One of these ended the process. Each shows alone whether it does so again. A program that tells of no test at
            // all has failed as a whole.
            if left.is_empty() && ran.output.ended.is_empty() {
                failed.insert(WHOLE.to_owned());
            }
            failed.extend(left);
            break;
        }
        left.retain(|name| !ran.hung.contains(name));
        failed.extend(ran.hung);
        if left.is_empty() {
            break;
        }
        arguments = left.into_iter().chain(["--exact".to_owned()]).collect();
    }
    let passed = summary.passed - before.0;
    let skipped = summary.skipped.len() - before.1;
    if passed + skipped + failed.len() > 0 {
        println!(
            "{:<22} {:<28} {passed:>5} passed {:>3} failed {skipped:>3} skipped {:>7.1} s",
            binary.package,
            binary.target,
            failed.len(),
            start.elapsed().as_secs_f64()
        );
    }
    Ok(failed.into_iter().collect())
}

/// Runs one test again and returns whether it passes.
pub fn alone(binary: &Binary, name: &str) -> Result<bool> {
    println!("once more, alone: {}", binary.shown(name));
    let ran = once(binary, &[name.to_owned(), "--exact".to_owned()], LIMITS)?;
    report(binary, &ran);
    let ended = ran.output.ended.contains_key(name);
    Ok(ended && ran.broken.is_none() && ran.output.failed().is_empty())
}

/// Prints what a run told of its failures.
fn report(binary: &Binary, ran: &Ran) {
    for name in &ran.hung {
        println!("stopped after its time limit: {}", binary.shown(name));
    }
    if ran.output.failures.is_empty() && ran.broken.is_none() {
        return;
    }
    for line in ran.output.failures.iter().chain(&ran.stderr) {
        println!("{line}");
    }
}

fn list(binary: &Binary, arguments: &[String]) -> Result<BTreeSet<String>> {
    let output = binary
        .command()
        .arg("--list")
        .args(arguments)
        .output()
        .with_context(|| binary.path.display().to_string())?;
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Runs a binary to its end or to the limit of one of its tests.
fn once(binary: &Binary, arguments: &[String], limits: Limits) -> Result<Ran> {
    let mut child = binary
        .command()
        .arg("--show-output")
        .args(arguments)
        // What its tests start and leave is stopped with it.
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| binary.path.display().to_string())?;
    let lines = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let mut output = Output::default();
    let hung = follow(&lines, limits, &mut output);
    if hung.is_some() {
        stop(&mut child);
    }
    let broken = if hung.is_some() {
        Some("stopped".to_owned())
    } else {
        let status = child.wait()?;
        let told = output.complete && (status.success() || !output.failed().is_empty());
        (!told).then(|| format!("it ended without a whole outcome, {status}"))
    };
    let mut stderr = VecDeque::new();
    // A process that a test left behind may keep the pipe open, and write.
    let end = Instant::now() + Duration::from_secs(5);
    while let Ok(line) = errors.recv_timeout(Duration::from_millis(200)) {
        if Instant::now() > end {
            break;
        }
        stderr.push_back(line);
        if stderr.len() > KEPT {
            stderr.pop_front();
        }
    }
    Ok(Ran {
        output,
        hung: hung.unwrap_or_default(),
        broken,
        stderr,
    })
}

/// Reads the lines until the harness has printed its summary. Returns the tests that took too long, which may be none when
/// nothing at all was printed for long.
fn follow(
    lines: &mpsc::Receiver<String>,
    limits: Limits,
    output: &mut Output,
) -> Option<BTreeSet<String>> {
    let mut slow = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                last = Instant::now();
                match output.line(&line) {
                    Told::Slow(name) => {
                        let limit = long(&name).unwrap_or(limits.test);
                        slow.insert(name, last + limit);
                    }
                    Told::Ended(name) => {
                        slow.remove(&name);
                    }
                    Told::Other => {}
                }
                if output.complete {
                    return None;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        let late = slow.iter().filter(|(_, end)| **end < now);
        let late: BTreeSet<_> = late.map(|(name, _)| name.clone()).collect();
        if !late.is_empty() || (slow.is_empty() && last.elapsed() > limits.silence) {
            return Some(late);
        }
    }
}

fn long(name: &str) -> Option<Duration> {
    let long = LONG.iter().find(|(test, _)| *test == name);
    long.map(|(_, limit)| *limit)
}

/// Sends the lines of a stream, from a separate thread.
fn reader(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let Some(stream) = stream else { return };
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Ends a binary and everything of its process group.
fn stop(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
