use super::*;

fn put(directory: &Path, file: &str, device: &str, env: &str) {
    let text = format!(
        r#"{{"cdiVersion":"0.5.0","kind":"example.com/gpu","containerEdits":{{"env":["SPEC={file}"]}},
            "devices":[{{"name":"{device}","containerEdits":{{"env":["{env}"]}}}}]}}"#
    );
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(file), text).unwrap();
}

/// Files as (directory, file, device, env), and what names resolve to.
fn check(files: &[(&str, &str, &str, &str)], names: &[&str], expected: Result<&[&str], &str>) {
    let root = tempfile::tempdir().unwrap();
    for (directory, file, device, env) in files {
        put(&root.path().join(directory), file, device, env);
    }
    let registry = Registry::load(&[root.path().join("a"), root.path().join("b")]);
    match (registry.resolve(names), expected) {
        (Ok(edits), Ok(expected)) => assert_eq!(edits.env, expected),
        (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
        (got, _) => panic!("{got:?}"),
    }
}

#[test]
fn edits_of_spec_come_first_and_once() {
    check(
        &[
            ("a", "x.json", "gpu-0", "A=0"),
            ("a", "y.json", "gpu-1", "A=1"),
        ],
        &[
            "example.com/gpu=gpu-1",
            "example.com/gpu=gpu-0",
            "example.com/gpu=gpu-1",
        ],
        Ok(&["SPEC=y.json", "A=1", "SPEC=x.json", "A=0"]),
    );
}

#[test]
fn later_directories_win() {
    check(
        &[
            ("a", "x.json", "gpu-0", "A=a"),
            ("b", "x.json", "gpu-0", "A=b"),
        ],
        &["example.com/gpu=gpu-0"],
        Ok(&["SPEC=x.json", "A=b"]),
    );
}

#[test]
fn two_definitions_of_one_priority_are_an_error() {
    check(
        &[
            ("a", "x.json", "gpu-0", "A=1"),
            ("a", "y.json", "gpu-0", "A=2"),
        ],
        &["example.com/gpu=gpu-0"],
        Err("defined in"),
    );
}

#[test]
fn missing_devices_are_all_named() {
    let expected = "unresolvable CDI devices example.com/gpu=gpu-8, example.com/gpu=gpu-9";
    check(
        &[],
        &["example.com/gpu=gpu-8", "example.com/gpu=gpu-9"],
        Err(expected),
    );
    check(&[], &["gpu-8"], Err("expected vendor/class=name"));
}

#[test]
fn broken_and_temporary_files_do_not_hide_the_others() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "x.json", "gpu-0", "A=1");
    std::fs::write(root.path().join("broken.json"), "{").unwrap();
    std::fs::write(root.path().join(".x.json.tmp"), "{").unwrap();
    let registry = Registry::load(&[root.path()]);
    assert_eq!(registry.errors().len(), 1);
    assert!(registry.resolve(&["example.com/gpu=gpu-0"]).is_ok());
}
