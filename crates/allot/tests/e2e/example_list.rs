//! Every example has a test and passes `allot lint`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::demo_table::{DEMOS, Step};
use super::demos::{PLAYED, flags};
use super::harness::{ALLOT, example};

/// The manifests below a directory, by their paths in `examples/`.
fn manifests(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path.extension().is_some_and(|it| it == "yaml") {
            let shown = path.strip_prefix(examples()).expect("below it");
            found.insert(shown.display().to_string());
        }
    }
}

fn examples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))
}

/// The tests of the examples, as text.
fn sources() -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = ["e2e", "seeds"].map(|suite| std::fs::read_dir(tests.join(suite)));
    let files = files.into_iter().flat_map(|files| files.expect("a suite"));
    let files = files.flatten().map(|file| file.path());
    files
        .filter(|file| file.extension().is_some_and(|it| it == "rs"))
        .map(|file| std::fs::read_to_string(file).expect("a test"))
        .collect()
}

/// Examples that no test applies: the class is created by every `allot up`; the other ones need a network card, and
/// `network.rs` has their like.
const NOT_APPLIED: [&str; 3] = [
    "deviceclass.yaml",
    "net/gpu-and-nic.yaml",
    "net/macvlan.yaml",
];

#[test]
fn every_example_has_a_test() {
    let mut all = BTreeSet::new();
    manifests(examples(), &mut all);
    let sources = sources();
    let mut played: BTreeSet<&str> = NOT_APPLIED.into();
    for demo in DEMOS {
        let flags = flags(&example(demo.file));
        let flags = flags.unwrap_or_else(|| panic!("{} has no command", demo.file));
        assert!(
            PLAYED.iter().any(|played| flags == *played),
            "no test starts a cluster with {flags:?} for {}",
            demo.file
        );
        played.insert(demo.file);
        played.extend(demo.steps.iter().filter_map(|step| match step {
            Step::Apply(file) => Some(*file),
            _ => None,
        }));
    }
    let untested = all.iter().filter(|file| {
        let stem = Path::new(file).file_stem().expect("a name");
        let stem = stem.to_str().expect("UTF-8");
        let named = ["/", "\"", " "].iter().any(|before| {
            [".yaml", "\""]
                .iter()
                .any(|after| sources.contains(&format!("{before}{stem}{after}")))
        });
        let demo = file.starts_with("demos/");
        !played.contains(file.as_str()) && (demo || !named)
    });
    let untested: Vec<_> = untested.collect();
    assert!(untested.is_empty(), "no test for {untested:?}");
    for file in played {
        assert!(all.contains(file), "there is no {file}");
    }
}

/// The directories with examples for the default release.
fn directories() -> Vec<PathBuf> {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).expect("a directory").flatten();
        let entries = entries.map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let other_releases = ["1.32", "classic"].map(|name| examples().join(name));
    let mut all: Vec<PathBuf> = below(examples());
    all.retain(|directory| !other_releases.contains(directory));
    all.extend(below(&examples().join("demos")));
    all.push(examples().to_owned());
    all
}

#[test]
fn examples_pass_lint() {
    let directories = directories();
    assert!(directories.len() > 6, "{directories:?}");
    for directory in directories {
        let lint = Command::new(ALLOT)
            .arg("lint")
            .arg(&directory)
            .output()
            .expect("it starts");
        assert!(lint.status.success(), "{lint:?}");
        // In subdirectories it warns of classes that come with a driver and of kinds that need a feature gate.
        let clean = lint.stdout.is_empty() && lint.stderr.is_empty();
        assert!(clean || directory != examples(), "{lint:?}");
    }
}
