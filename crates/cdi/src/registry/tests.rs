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

/// The attack: a driver writes files without end. Each container that started read all of them.
#[test]
fn all_files_together_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    put(directory.path(), "a.json", "good", "A=1");
    let blanks = " ".repeat(15 << 20);
    for n in 0..6 {
        let path = directory.path().join(format!("large-{n}.json"));
        let text = r#"{"cdiVersion": "0.6.0", "kind": "v.com/large", "devices": [{"name": "d"}]}"#;
        // Those that cannot be used count as well.
        let text = if n % 2 == 0 { text } else { "{" };
        std::fs::write(path, format!("{text}{blanks}")).unwrap();
    }
    let registry = Registry::load(&[directory.path()]);
    let errors: Vec<String> = registry.errors().iter().map(ToString::to_string).collect();
    let refused = |error: &&String| error.contains("larger than 64 MiB");
    assert_eq!(errors.iter().filter(refused).count(), 2, "{errors:?}");
    // What was read before counts.
    assert!(registry.resolve(&["example.com/gpu=good"]).is_ok());
    // Files that are invalid are read as well.
    for n in 0..6 {
        let path = directory.path().join(format!("large-{n}.json"));
        std::fs::write(path, &blanks).unwrap();
    }
    let registry = Registry::load(&[directory.path()]);
    let errors: Vec<String> = registry.errors().iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 6, "{errors:?}");
    assert_eq!(errors.iter().filter(refused).count(), 2, "{errors:?}");
    let other = tempfile::tempdir().unwrap();
    for n in 0..bounded::FILES + 10 {
        std::fs::write(other.path().join(format!("{n}.json")), "").unwrap();
    }
    let registry = Registry::load(&[other.path(), directory.path()]);
    let last = registry.errors().last().unwrap().to_string();
    assert!(last.ends_with("there are more than 4096 files"), "{last}");
    assert!(registry.errors().len() <= bounded::FILES + 2);
}

/// The attack: entries of lists take many times the memory of their text.
#[test]
fn lists_have_a_bounded_number_of_entries() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let write = |devices: usize, nodes: usize| {
        let nodes = vec![serde_json::json!({"path": "/d"}); nodes];
        let list = (0..devices).map(|n| serde_json::json!({"name": format!("d{n}"), "containerEdits": {"deviceNodes": nodes}}));
        let spec = serde_json::json!({"cdiVersion": "0.6.0", "kind": "v.com/c", "devices": list.collect::<Vec<_>>()});
        std::fs::write(&path, spec.to_string()).unwrap();
        Spec::read(&path)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(write(16_384, 1), Ok(()));
    for (devices, nodes) in [(16_385, 1), (1, 16_385)] {
        let error = write(devices, nodes).unwrap_err();
        assert!(
            error.contains("a list has more than 16384 entries"),
            "{error}"
        );
    }
}
