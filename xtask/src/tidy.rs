//! The invariants of docs/ARCHITECTURE.md that a reader of text can check.

mod circles;
mod docs;
mod names;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use circles::Graph;

/// Crates from the bottom to the top: each may depend only on those before it.
const ORDER: &[&str] = &[
    "testing",
    "apimachinery",
    "cel",
    "schema",
    "model",
    "allocator",
    "certificates",
    "store",
    "kinds",
    "apiserver",
    "client",
    "election",
    "reflector",
    "resourceclaim",
    "controllers",
    "framework",
    "classic",
    "scheduler",
    "simulate",
    "protos",
    "kubelet",
    "netlink",
    "cdi",
    "images",
    "node",
    "driver",
    "driver-gpu",
    "driver-net",
    "driver-test",
    "conformance",
    "dashboard",
    "hardware",
    "allot",
];

/// Crates without IO, clock, environment or async.
const PURE: &[&str] = &["apimachinery", "cel", "schema", "model", "allocator"];

/// What a pure crate must not name.
const IMPURE: &[&str] = &[
    "tokio",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::env",
    "std::process",
    "Uuid::new_v4",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "rand::",
];

/// Crates that use any Kubernetes API, and so must not depend on this project's server.
const CLIENTS: &[&str] = &[
    "client",
    "election",
    "reflector",
    "resourceclaim",
    "controllers",
    "framework",
    "classic",
    "scheduler",
    "simulate",
    "kubelet",
    "node",
    "driver",
    "dashboard",
];
const SERVER: &[&str] = &["apiserver", "kinds", "store"];

/// Longest source file, in lines, tables and tests included. About 400 is a readable size.
const LONGEST: usize = 500;

/// Checks everything, prints one line per finding, and returns whether there is none.
pub fn run() -> bool {
    let root = crate::root();
    let mut findings = Vec::new();
    let mut crates = crates(&root.join("crates"));
    crates.extend(crates_of_drivers(&root.join("drivers")));
    for (name, directory) in &crates {
        manifest(name, directory, &mut findings);
        for file in sources(&directory.join("src")) {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let shown = file
                .strip_prefix(&root)
                .unwrap_or(&file)
                .display()
                .to_string();
            source(name, &shown, &text, &mut findings);
            findings.extend(words::findings(&shown, &text));
        }
        let found = circles::in_circles(&uses(&directory.join("src")));
        if !found.is_empty() {
            let found = join(&found);
            findings.push(format!(
                "crate {name}: modules import each other in a circle: {found}"
            ));
        }
    }
    docs::check(&root, &mut findings);
    for finding in &findings {
        println!("tidy: {finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} crates are in order", crates.len());
    }
    findings.is_empty()
}

fn join(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Which top-level module of a crate uses which others, tests left out.
fn uses(source: &Path) -> Graph {
    let files: Vec<_> = sources(source)
        .into_iter()
        .filter(|file| !is_test(&file.to_string_lossy()))
        .filter_map(|file| Some((file.strip_prefix(source).ok()?.to_owned(), file)))
        .collect();
    let modules = files
        .iter()
        .filter_map(|(path, _)| path.iter().next())
        .map(|first| {
            Path::new(first)
                .with_extension("")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let read = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    let root: String = ["lib.rs", "main.rs"]
        .map(|name| read(&source.join(name)))
        .concat();
    let exports = circles::exports(&root, &modules);
    let mut graph = Graph::new();
    for (path, file) in &files {
        let text = read(file);
        circles::add(path, &text, &modules, &exports, &mut graph);
    }
    graph
}

/// A file without its tests. Line numbers do not change.
fn library(text: &str) -> String {
    const TESTS: &str = "#[cfg(test)]";
    let mut library = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(TESTS) {
        library.push_str(before);
        let item = after.trim_start();
        let item = item.strip_prefix("pub ").unwrap_or(item);
        let end = item.find([';', '{']).filter(|_| item.starts_with("mod "));
        match end {
            // A module in the file is its end.
            Some(end) if item[end..].starts_with('{') => return library,
            // A module in another file, which is a test.
            Some(_) => rest = after.split_once(';').map_or("", |(_, rest)| rest),
            // An item that only tests use is checked, too.
            None => rest = after,
        }
    }
    library.push_str(rest);
    library
}

fn is_test(shown: &str) -> bool {
    shown.ends_with("tests.rs") || shown.contains("/tests/")
}

fn crates(directory: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .collect()
}

fn crates_of_drivers(directory: &Path) -> BTreeMap<String, PathBuf> {
    let prefixed = |(name, path)| (format!("driver-{name}"), path);
    crates(directory).into_iter().map(prefixed).collect()
}

/// Dependencies point downwards.
fn manifest(name: &str, directory: &Path, findings: &mut Vec<String>) {
    let Some(place) = ORDER.iter().position(|other| *other == name) else {
        findings.push(format!("crate {name} has no place in xtask/src/tidy.rs"));
        return;
    };
    let text = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        }
        if section != "dependencies" {
            continue;
        }
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if PURE.contains(&name) && dependency == "tokio" {
            findings.push(format!("pure crate {name} depends on tokio"));
        }
        let Some(ours) = dependency.strip_prefix("allot-") else {
            continue;
        };
        let below = ORDER[..place].contains(&ours);
        if !below || (CLIENTS.contains(&name) && SERVER.contains(&ours)) {
            findings.push(format!("crate {name} must not depend on {ours}"));
        }
    }
}

fn source(name: &str, shown: &str, text: &str, findings: &mut Vec<String>) {
    let test = is_test(shown);
    if shown.ends_with("/mod.rs") {
        findings.push(format!("{shown}: use foo.rs beside foo/, not mod.rs"));
    }
    if !test && !text.starts_with("//!") {
        findings.push(format!(
            "{shown}: say at the top what the file is for (//!)"
        ));
    }
    let lines = text.lines().count();
    if lines > LONGEST {
        findings.push(format!(
            "{shown}: {lines} lines, at most {LONGEST} are allowed"
        ));
    }
    if PURE.contains(&name) && !test {
        let library = library(text);
        for (number, line) in library.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                let number = number + 1;
                findings.push(format!("{shown}:{number}: a pure crate names {word}"));
            }
        }
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, shown: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        source(name, shown, text, &mut findings);
        findings
    }

    #[test]
    fn a_pure_crate_may_not_look_at_the_clock_but_its_tests_may() {
        let bad = "//! x\nlet t = Instant::now();\n";
        assert_eq!(findings("cel", "crates/cel/src/a.rs", bad).len(), 1);
        assert_eq!(findings("cel", "crates/cel/src/a/tests.rs", bad).len(), 0);
        assert_eq!(findings("node", "crates/node/src/a.rs", bad).len(), 0);
    }

    #[test]
    fn what_stands_behind_the_name_of_a_test_module_is_looked_at() {
        let text = "//! x\n#[cfg(test)]\nmod tests;\n\nlet t = Instant::now();\n";
        assert_eq!(findings("cel", "crates/cel/src/a.rs", text).len(), 1);
        let text = "//! x\n#[cfg(test)]\nmod tests {\nlet t = Instant::now();\n}\n";
        assert_eq!(findings("cel", "crates/cel/src/a.rs", text).len(), 0);
    }

    #[test]
    fn files_say_what_they_are_for() {
        assert_eq!(
            findings("node", "crates/node/src/a.rs", "fn f() {}").len(),
            1
        );
    }
}
