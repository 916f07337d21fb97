//! `cargo xtask test`: builds the tests and runs every test binary. A test that fails runs again alone, once; if it
//! passes then, the run continues and the test is reported as `FLAKY`. A test that hangs is stopped and reported. What
//! a test skips (a line `skipped: WHY`) is counted as skipped, not as passed.
//!
//! Its last line is `N passed, N failed, N skipped`, preceded by the names that matter. `target/test-summary.txt` has
//! the same content. If the variable `CI` is not set, the flaky tests of the run are added to docs/FLAKES.md.

mod binary;
mod doc;
mod flakes;
mod output;
mod run;
mod summary;

use anyhow::Result;

use crate::{cargo, root};
use binary::Binary;
pub use binary::executables;
use summary::Summary;

/// How many failed tests get a second chance in a run. More are no matter of luck.
const SECOND_CHANCES: usize = 20;

/// Runs the tests with the options of `cargo test` that were given. Returns whether all is well.
pub fn run(arguments: &[String]) -> Result<bool> {
    let mut parts = arguments.splitn(2, |argument| argument == "--");
    let options = parts.next().unwrap_or_default();
    let filters = parts.next().unwrap_or_default();
    let binaries = binary::build(options)?;
    let mut summary = Summary::default();
    let mut failed = Vec::new();
    for binary in &binaries {
        for name in run::binary(binary, filters, &mut summary)? {
            failed.push((binary, name));
        }
    }
    // Doc tests are no binaries. A choice of targets leaves them out, as in `cargo test`.
    if !options.iter().any(|option| binary::is_target(option)) {
        doc::run(options, filters, &mut summary)?;
    }
    for (index, (binary, name)) in failed.into_iter().enumerate() {
        second_chance(binary, &name, index < SECOND_CHANCES, &mut summary)?;
    }
    if std::env::var_os("CI").is_none() {
        flakes::note(&root().join("docs/FLAKES.md"), &summary.flaky)?;
    }
    summary.finish(&target_directory())?;
    Ok(summary.failed.is_empty())
}

/// Runs a failed test again, unless too many were.
fn second_chance(binary: &Binary, name: &str, chance: bool, summary: &mut Summary) -> Result<()> {
    let shown = binary.shown(name);
    if chance && run::alone(binary, name)? {
        println!("passed alone: {shown}");
        summary.flaky.push(shown);
    } else {
        summary.failed.push(shown);
    }
    Ok(())
}

fn target_directory() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}
