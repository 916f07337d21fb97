//! `cargo xtask check`: the checks that a change most likely breaks, within about a minute on a warm build. It covers
//! the crates that differ from the main branch: their lints and their unit tests. It does not cover dependent crates;
//! `.ci/run` does.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{cargo, root, test, tidy};

/// Runs the checks until one fails, and returns whether none did.
pub fn run() -> Result<bool> {
    if !cargo()
        .args(["fmt", "--all", "--check"])
        .status()?
        .success()
    {
        println!("check: cargo fmt --all fixes the above");
        return Ok(false);
    }
    if !tidy::run() {
        return Ok(false);
    }
    let files = changed()?;
    let packages = packages(&files);
    if packages.is_empty() {
        println!("check: no crate differs from the main branch");
        return Ok(true);
    }
    let names: Vec<_> = packages.iter().map(String::as_str).collect();
    println!("check: {}", names.join(", "));
    let chosen: Vec<String> = packages
        .iter()
        .flat_map(|package| ["-p".to_owned(), package.clone()])
        .collect();
    let lints = cargo()
        .arg("clippy")
        .args(&chosen)
        .args(["--all-targets", "--", "-D", "warnings"])
        .status()?;
    if !lints.success() {
        return Ok(false);
    }
    let targets = ["--lib", "--bins"].map(str::to_owned);
    test::run(&[chosen.as_slice(), targets.as_slice()].concat())
}

/// The files that differ from the merge base with the main branch, committed or not.
fn changed() -> Result<BTreeSet<String>> {
    let base = ["origin/main", "main", "HEAD~1"]
        .iter()
        .find_map(|name| git(&["merge-base", "HEAD", name]).ok())
        .map_or_else(|| "HEAD".to_owned(), |base| base.trim().to_owned());
    let mut files = git(&["diff", "--name-only", &base])?;
    files.push_str(&git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(files.lines().map(str::to_owned).collect())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(root())
        .args(arguments)
        .output()
        .context("git")?;
    anyhow::ensure!(output.status.success(), "git {}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages of the files.
fn packages(files: &BTreeSet<String>) -> BTreeSet<String> {
    files.iter().filter_map(|file| package(file)).collect()
}

fn package(file: &str) -> Option<String> {
    let mut parts = file.split('/');
    let directory = match parts.next()? {
        "xtask" => "xtask".to_owned(),
        group @ ("crates" | "drivers") => format!("{group}/{}", parts.next()?),
        _ => return None,
    };
    let manifest = fs::read_to_string(root().join(directory).join("Cargo.toml")).ok()?;
    let name = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_of_its_folder() {
        assert_eq!(package("crates/cel/src/a.rs").as_deref(), Some("allot-cel"));
        assert_eq!(
            package("drivers/gpu/src/lib.rs").as_deref(),
            Some("allot-driver-gpu")
        );
        assert_eq!(package("xtask/src/main.rs").as_deref(), Some("xtask"));
        assert_eq!(package("README.md"), None);
        assert_eq!(package("crates/no-such/src/lib.rs"), None);
    }
}
