//! The doc tests, which rustdoc builds and runs. They have no second chance: they start nothing and wait for nothing.

use anyhow::{Context as _, Result};

use super::binary::packages;
use super::cargo;
use super::output::Output;
use super::summary::Summary;

/// Runs the doc tests whose names hold one of the filters.
pub fn run(options: &[String], filters: &[String], summary: &mut Summary) -> Result<()> {
    let ran = cargo()
        .args(["test", "--doc", "--no-fail-fast"])
        .args(packages(options))
        .args(options)
        .arg("--")
        .args(filters)
        .output()
        .context("cargo")?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    if !ran.status.success() && errors.contains("no library targets found") {
        return Ok(());
    }
    eprint!("{errors}");
    let mut output = Output::default();
    for line in String::from_utf8_lossy(&ran.stdout).lines() {
        output.line(line);
    }
    for line in &output.failures {
        println!("{line}");
    }
    let failed = output.failed();
    println!(
        "doc tests: {} passed, {} failed",
        output.passed(),
        failed.len()
    );
    summary.passed += output.passed();
    for (name, why) in &output.skipped {
        summary.skipped.push(format!("doc {name}: {why}"));
    }
    if !ran.status.success() && failed.is_empty() {
        summary
            .failed
            .push("doc tests: they do not build".to_owned());
    }
    let names = failed.into_iter().map(|name| format!("doc {name}"));
    summary.failed.extend(names);
    Ok(())
}
