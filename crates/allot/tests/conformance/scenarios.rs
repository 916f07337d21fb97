//! Scenarios of a control plane: those of `tests/conformance`, of `tests/scenarios`, and of `ALLOT_CONFORMANCE_DIR`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use allot_testing::recordings::{self, Recording};
use serde_json::Value;

use super::report::Report;
use super::server::Server;

/// How many run at the same time. They wait most of their time.
const JOBS: &str = "8";

/// Factor for all limits of time: a debug build beside a busy core is much slower than what the limits are made for.
const PATIENCE: &str = "4";

/// A scenario, by the name of its file.
#[derive(Debug)]
pub struct Scenario(Recording);

impl Scenario {
    /// The name of its test.
    pub fn test(&self) -> String {
        format!("scenarios::{}", self.0.name)
    }
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let ours = recordings::read_in(&recordings::folder().join(".."), "scenarios");
    assert!(!ours.is_empty(), "tests/scenarios is missing");
    let all = recordings::read("scenarios").into_iter().chain(ours);
    all.map(Scenario).collect()
}

/// Runs scenarios, some at the same time.
pub fn run(chosen: &[Scenario], server: &Server, report: &mut Report) {
    let directory = tempfile::tempdir().expect("a directory");
    for Scenario(Recording { name, document }) in chosen {
        write(directory.path(), name, document);
    }
    let mut child = Command::new("python3")
        .arg(recordings::folder().join("run.py"))
        .args(["--json", "--patience", PATIENCE, "--jobs", JOBS])
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .args(["--have", "short-binding-timeout"])
        .args(["--have", "taint-rule-scheduling"])
        .args(["--have", "allocation-quota"])
        .arg("--dir")
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed: the scenarios need it");
    let stdout = child.stdout.take().expect("piped");
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            println!("run.py: {line}");
            continue;
        };
        let name = format!("scenarios::{}", told["name"].as_str().unwrap_or_default());
        let result = if told["ok"] == true {
            Ok(())
        } else {
            Err(format!(
                "{}\n(after {} s; it checks: {})",
                told["reason"].as_str().unwrap_or_default(),
                told["seconds"],
                told["why"].as_str().unwrap_or_default()
            ))
        };
        report.add(&name, result);
    }
    let _ = child.wait();
}

fn write(directory: &Path, name: &str, document: &Value) {
    let path = directory.join(format!("{name}.json"));
    assert!(!path.exists(), "there are two scenarios {name}");
    fs::write(path, document.to_string()).expect("written");
}
