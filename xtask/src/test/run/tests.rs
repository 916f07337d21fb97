use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A shell script that speaks as a test binary; `$1` to `$9` are its arguments, the folder is its own.
fn script(name: &str, text: &str) -> (Folder, Binary) {
    let directory = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("binary");
    // Another process writes it: a program that is open for writing in this one cannot be run, and the tests beside this
    // one start processes that inherit what is open.
    let written = Command::new("sh")
        .args(["-c", r#"printf '#!/bin/sh\n%s' "$1" > "$0"; chmod +x "$0""#])
        .arg(&path)
        .arg(text)
        .status();
    assert!(written.unwrap().success());
    let binary = Binary {
        package: "p".to_owned(),
        target: "test t".to_owned(),
        path,
        directory: directory.clone(),
    };
    (Folder(directory), binary)
}

fn exists(folder: &Folder, name: &str) -> bool {
    Path::new(&folder.0).join(name).exists()
}

#[test]
fn what_fails_is_run_again_alone() {
    let text = r#"
case "$*" in
*--exact*) touch alone; echo "test a::flaky ... ok"; echo "test result: ok. 1 passed"; exit 0 ;;
esac
echo "test a::good ... ok"
echo "test a::flaky ... FAILED"
echo "test result: FAILED. 1 passed; 1 failed"
exit 101
"#;
    let (folder, binary) = script("flaky", text);
    let mut summary = Summary::default();
    let failed = super::binary(&binary, &[], &mut summary).unwrap();
    assert_eq!(failed, ["a::flaky"]);
    assert_eq!(summary.passed, 1);
    assert!(alone(&binary, "a::flaky").unwrap());
    assert!(exists(&folder, "alone"));
}

#[test]
fn a_binary_that_dies_fails_the_tests_without_an_outcome() {
    let text = r#"
case "$*" in
*--list*) echo "good: test"; echo "abort: test"; exit 0 ;;
esac
echo "test good ... ok"
kill -ABRT $$
"#;
    let (_folder, binary) = script("dies", text);
    let mut summary = Summary::default();
    let failed = super::binary(&binary, &[], &mut summary).unwrap();
    assert_eq!(failed, ["abort"]);
    assert!(!alone(&binary, "abort").unwrap());
}

#[test]
fn a_test_that_hangs_is_stopped_and_the_others_run() {
    let text = r#"
case "$*" in
*--list*) echo "good: test"; echo "hangs: test"; echo "later: test"; exit 0 ;;
*--exact*) echo "$*" > rest; echo "test later ... ok"; echo "test result: ok. 1 passed"; exit 0 ;;
esac
echo "test good ... ok"
echo "test hangs has been running for over 60 seconds"
sleep 1000
"#;
    let (folder, binary) = script("hangs", text);
    let limits = Limits {
        test: Duration::from_millis(1),
        silence: Duration::from_secs(600),
    };
    let mut summary = Summary::default();
    let failed = within(&binary, &[], limits, &mut summary).unwrap();
    assert_eq!(failed, ["hangs"]);
    assert_eq!(summary.passed, 2);
    let rest = fs::read_to_string(folder.0.join("rest")).unwrap();
    assert_eq!(rest.trim(), "--show-output later --exact");
}
