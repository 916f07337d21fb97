//! The test binaries, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cargo;

/// A test binary.
#[derive(Debug)]
pub struct Binary {
    /// The package it belongs to.
    pub package: String,
    /// The kind and name of its target, such as `lib` or `test e2e`.
    pub target: String,
    /// Where it is.
    pub path: PathBuf,
    /// The folder of its package, in which it runs.
    pub directory: PathBuf,
}

impl Binary {
    /// The name of a test in reports.
    pub fn shown(&self, test: &str) -> String {
        format!("{} {} {test}", self.package, self.target)
    }

    /// The command that runs it, as `cargo test` would.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("CARGO_PKG_NAME", &self.package)
            .stdin(Stdio::null());
        // A single thread would announce each test before it runs, with what others print between name and outcome.
        if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
            command.env("RUST_TEST_THREADS", "2");
        }
        command
    }
}

/// Whether an option of `cargo test` chooses targets.
pub fn is_target(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    [
        "--lib",
        "--bins",
        "--bin",
        "--tests",
        "--test",
        "--examples",
        "--example",
        "--benches",
        "--bench",
        "--all-targets",
    ]
    .contains(&name)
}

/// Options that say which packages; without one, all of the workspace.
pub fn packages(options: &[String]) -> Option<&'static str> {
    let chosen = |option: &String| {
        option.starts_with("-p") || option.starts_with("--package") || option == "--workspace"
    };
    (!options.iter().any(chosen)).then_some("--workspace")
}

/// Builds the tests with the programs that they start, and returns what cargo says of each executable.
pub fn executables(options: &[String]) -> Result<Vec<Value>> {
    let output = cargo()
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(packages(options))
        .args(options)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_executable = |message: &Value| message["executable"].is_string();
    Ok(messages.filter(is_executable).collect())
}

/// Builds the tests and returns their binaries, in the order of packages and targets.
pub fn build(options: &[String]) -> Result<Vec<Binary>> {
    let mut binaries: Vec<_> = executables(options)?.iter().filter_map(parse).collect();
    binaries.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(binaries)
}

/// Reads a message of cargo, which may be about a test binary.
fn parse(message: &Value) -> Option<Binary> {
    let path = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let target = &message["target"];
    let kind = match target["kind"][0].as_str()? {
        kind @ ("test" | "bin" | "example" | "bench") => {
            format!("{kind} {}", target["name"].as_str()?)
        }
        _ => "lib".to_owned(),
    };
    Some(Binary {
        package: package(message["package_id"].as_str()?)?,
        target: kind,
        path: path.into(),
        directory: manifest.parent()?.to_owned(),
    })
}

/// The name in the ID of a package: `path+file:///top/crates/cel#allot-cel@0.1.0`, or without `allot-cel@` where the
/// folder has the name.
fn package(id: &str) -> Option<String> {
    let (place, version) = id.rsplit_once('#')?;
    let name = match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next()?,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///top/crates/cel#allot-cel@0.1.0",
            "manifest_path":"/top/crates/cel/Cargo.toml","target":{"kind":["test"],"name":"conformance"},
            "profile":{"test":true},"executable":"/top/target/debug/deps/conformance-1"}"#
            .replace('\n', " ");
        let parse = |line: &str| parse(&serde_json::from_str(line).unwrap());
        let binary = parse(&line).unwrap();
        assert_eq!(binary.shown("it"), "allot-cel test conformance it");
        assert_eq!(binary.directory, Path::new("/top/crates/cel"));
        assert!(parse(&line.replace("\"test\":true", "\"test\":false")).is_none());
        assert!(parse(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert_eq!(package("path+file:///top/xtask#0.1.0").unwrap(), "xtask");
    }
}
