//! Runs `tests/conformance/replay.py`: recorded HTTP conversations against a server.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::recordings;

/// A folder of conversations: the repository's, or the one of `ALLOT_CONFORMANCE_DIR`.
#[derive(Debug)]
pub struct Conversations {
    folder: PathBuf,
    /// The name of each conversation, and its steps.
    steps: BTreeMap<String, Vec<Step>>,
}

/// A request of a conversation.
#[derive(Debug, Clone)]
pub struct Step {
    /// `CONVERSATION/STEP`.
    pub name: String,
    /// Whether its response is compared; otherwise only its effect is needed.
    pub compared: bool,
}

/// The server's address, and the client's identity.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// Its URL, without a path.
    pub url: &'a str,
    /// The token of the user `admin` of the group `system:masters`.
    pub token: &'a str,
}

/// The conversations of the repository, then further ones in `ALLOT_CONFORMANCE_DIR`.
///
/// # Panics
///
/// If the repository's are missing.
pub fn conversations() -> Vec<Conversations> {
    let own = recordings::folder();
    let read = |folder: &PathBuf| {
        let scenarios = recordings::read_in(folder, "api/scenarios");
        let mut answers: BTreeMap<_, _> = recordings::read_in(folder, "api/golden")
            .into_iter()
            .map(|it| (it.name, it.document))
            .collect();
        scenarios
            .into_iter()
            .map(|it| {
                let answers = answers.remove(&it.name).unwrap_or_default();
                (it.name, (it.document, answers))
            })
            .collect::<BTreeMap<_, _>>()
    };
    let known = read(&own);
    assert!(!known.is_empty(), "no conversations in {}", own.display());
    let mut all = Vec::new();
    if let Some(extra) = recordings::extra() {
        let more = read(&extra)
            .into_iter()
            .filter(|(name, both)| known.get(name) != Some(both))
            .collect();
        all.push(Conversations::new(extra.join("api"), &more));
    }
    all.insert(0, Conversations::new(own.join("api"), &known));
    all
}

impl Conversations {
    fn new(folder: PathBuf, all: &BTreeMap<String, (Value, Value)>) -> Self {
        let steps = all
            .iter()
            .map(|(name, (document, _))| (name.clone(), steps(document)))
            .collect();
        Self { folder, steps }
    }

    /// The steps of the recorded conversations, in the order of their names.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.values().flatten()
    }

    /// Replays the conversations that have a step in `wanted`, and reports each step that was compared or failed.
    ///
    /// # Panics
    ///
    /// If python3 is not installed.
    pub fn play(
        &self,
        server: Server<'_>,
        wanted: &dyn Fn(&Step) -> bool,
        each: &mut dyn FnMut(&str, Result<(), String>),
    ) {
        let chosen: Vec<_> = self
            .steps
            .iter()
            .filter(|(_, steps)| steps.iter().any(wanted))
            .map(|(name, _)| name)
            .collect();
        if chosen.is_empty() {
            return;
        }
        let mut child = Command::new("python3")
            .arg(recordings::folder().join("replay.py"))
            .args(["check", "--insecure", "--verbose", "--token", server.token])
            .args(["--loose-tags", "go-text,go-struct", "--server", server.url])
            .arg("--dir")
            .arg(&self.folder)
            .args(chosen.iter().flat_map(|name| ["--only", name]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed: the conversations need it");
        let stdout = child.stdout.take().expect("piped");
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some((name, result)) = parse(&line) {
                each(name, result);
            }
        }
        let _ = child.wait();
    }
}

/// Reads a line of `replay.py`.
fn parse(line: &str) -> Option<(&str, Result<(), String>)> {
    if let Some(name) = line.strip_prefix("ok   ") {
        return Some((name, Ok(())));
    }
    let (name, error) = line.strip_prefix("FAIL ")?.split_once(": ")?;
    Some((name, Err(error.to_owned())))
}

fn steps(document: &Value) -> Vec<Step> {
    let conversation = document["scenario"].as_str().unwrap_or_default();
    let steps = document["steps"].as_array().into_iter().flatten();
    steps
        .map(|step| Step {
            name: format!("{conversation}/{}", step["id"].as_str().unwrap_or_default()),
            // A watch in the background answers to the step that collects it.
            compared: step["compare"] != false && step["watch"]["background"] != true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_runner_are_read() {
        assert_eq!(parse("ok   a/b"), Some(("a/b", Ok(()))));
        let failed = parse("FAIL a/b: status: got 1, want 2");
        assert_eq!(
            failed,
            Some(("a/b", Err("status: got 1, want 2".to_owned())))
        );
        assert_eq!(parse("12 passed, 0 failed"), None);
    }

    #[test]
    fn the_repository_has_conversations() {
        let own = &conversations()[0];
        let compared = own.steps().filter(|step| step.compared).count();
        assert!(compared >= 1178, "{compared} steps");
    }
}
