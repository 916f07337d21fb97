//! The recordings of `tests/conformance`, and of a second folder of the same shape.
//!
//! A suite is a file `NAME.jsonl.gz`, one recording a line, or a folder `NAME` of JSON files. The repository's own
//! recordings always run: a suite that is missing or empty panics. `ALLOT_CONFORMANCE_DIR` names a folder with more of
//! them; a recording that both hold runs once.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A recorded case.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The name of its file, without `.json`.
    pub name: String,
    /// The content of the file.
    pub document: Value,
}

/// The folder of the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

/// The second folder, if `ALLOT_CONFORMANCE_DIR` names one.
pub fn extra() -> Option<PathBuf> {
    let named = std::env::var_os("ALLOT_CONFORMANCE_DIR").filter(|path| !path.is_empty())?;
    let path = PathBuf::from(named);
    assert!(
        path.is_dir(),
        "ALLOT_CONFORMANCE_DIR names {}, which is no folder",
        path.display()
    );
    Some(path)
}

/// The recordings of a suite, such as `cel` or `api/golden`, ordered by name.
///
/// # Panics
///
/// If the repository's suite is missing, empty or unreadable.
pub fn read(suite: &str) -> Vec<Recording> {
    let own = read_in(&folder(), suite);
    assert!(
        !own.is_empty(),
        "no recordings of {suite} in {}",
        folder().display()
    );
    let more = extra().map(|extra| read_in(&extra, suite));
    merged(own, more.unwrap_or_default())
}

/// The recordings of a suite in one folder; empty if the suite does not exist.
pub fn read_in(folder: &Path, suite: &str) -> Vec<Recording> {
    let packed = folder.join(format!("{suite}.jsonl.gz"));
    if packed.is_file() {
        return lines(&packed).iter().map(|line| unpacked(line)).collect();
    }
    let mut found: Vec<_> = fs::read_dir(folder.join(suite))
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| Recording {
            name: stem(&path.to_string_lossy()),
            document: parsed(&fs::read_to_string(&path).expect("a readable recording")),
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Adds the further recordings of another folder to the repository's. Another recording of the same name is renamed.
fn merged(own: Vec<Recording>, more: Vec<Recording>) -> Vec<Recording> {
    let known: BTreeMap<_, _> = own
        .iter()
        .map(|it| (it.name.clone(), it.document.clone()))
        .collect();
    let mut all = own;
    for mut recording in more {
        match known.get(&recording.name) {
            Some(document) if *document == recording.document => continue,
            Some(_) => recording.name.push_str("-extra"),
            None => {}
        }
        all.push(recording);
    }
    all
}

/// The lines of a compressed file.
///
/// # Panics
///
/// If there is no such file, or it is damaged.
pub fn lines(path: &Path) -> Vec<String> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

fn unpacked(line: &str) -> Recording {
    let mut line = parsed(line);
    Recording {
        name: stem(line["file"].as_str().expect("the name of a file")),
        document: line["document"].take(),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("a recording is JSON")
}

fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".json").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(name: &str, document: u64) -> Recording {
        Recording {
            name: name.to_owned(),
            document: document.into(),
        }
    }

    #[test]
    fn a_second_folder_adds_what_is_new_or_different() {
        let own = vec![recording("a", 1), recording("b", 2)];
        let more = vec![recording("a", 1), recording("b", 3), recording("c", 4)];
        let names: Vec<_> = merged(own, more).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["a", "b", "b-extra", "c"]);
    }

    #[test]
    fn every_suite_of_the_repository_is_whole() {
        for (suite, count) in [
            ("allocator", 219),
            ("api/golden", 64),
            ("api/scenarios", 64),
            ("cel", 106),
            ("scenarios", 201),
            ("validation", 294),
        ] {
            assert!(read_in(&folder(), suite).len() >= count, "{suite}");
        }
        for file in ["cases", "expected"] {
            let file = folder().join(format!("allocator-random/{file}.jsonl.gz"));
            assert!(lines(&file).len() >= 1500, "{}", file.display());
        }
    }

    #[test]
    fn a_missing_suite_is_a_failure() {
        assert!(std::panic::catch_unwind(|| read("no-such-suite")).is_err());
    }
}
