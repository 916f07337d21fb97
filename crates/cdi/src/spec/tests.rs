use super::*;

fn spec(json: &str) -> Spec {
    serde_json::from_str(json).unwrap()
}

/// The error of a spec whose JSON is given.
fn check(json: &str, expected: &str) {
    let error = spec(json).validate().unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn broken_rules_are_named() {
    check(
        r#"{"cdiVersion":"9.9.9","kind":"a.com/b","devices":[{"name":"x"}]}"#,
        "cdiVersion: unknown version",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"nokind","devices":[{"name":"x"}]}"#,
        "kind: ",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"1a/b","devices":[{"name":"x"}]}"#,
        "must not start with '1'",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"a.com/b","devices":[]}"#,
        "devices: must not be empty",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"a.com/b","devices":[{"name":"x"},{"name":"x"}]}"#,
        "defined twice",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"a.com/b","devices":[{"name":"x","containerEdits":{"env":["=1"]}}]}"#,
        "devices[0].containerEdits.env[0]",
    );
    check(
        r#"{"cdiVersion":"0.5.0","kind":"a.com/b","devices":[{"name":"x","containerEdits":{"hooks":[{"hookName":"never","path":"/x"}]}}]}"#,
        "hooks[0].hookName",
    );
    check(
        r#"{"cdiVersion":"0.3.0","kind":"a.com/b","devices":[{"name":"0"}]}"#,
        "need at least 0.5.0",
    );
}

/// containerd 2.2.9 panics on reading it. It is read here: it may be another driver's.
#[test]
fn regression_kinds_that_crash_runtimes_are_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let device = || Device {
        name: "x".into(),
        ..Device::default()
    };
    for (kind, what) in [("a.com/b", "class \"b\""), ("a/bc", "vendor \"a\"")] {
        let spec = Spec::new(kind, vec![device()]);
        spec.validate().unwrap();
        let error = spec.write(&path).unwrap_err().to_string();
        assert!(
            error.contains(what) && error.contains("at least two"),
            "{error}"
        );
        assert!(!path.exists());
    }
    Spec::new("ab/cd", vec![device()]).write(&path).unwrap();
}

#[test]
fn versions_follow_the_fields_in_use() {
    let with = |edits: &str| {
        spec(&format!(r#"{{"cdiVersion":"","kind":"a.com/b","devices":[{{"name":"x","containerEdits":{edits}}}]}}"#))
            .minimum_version()
    };
    assert_eq!(with("{}"), "0.3.0");
    assert_eq!(
        with(r#"{"mounts":[{"hostPath":"/a","containerPath":"/b","type":"bind"}]}"#),
        "0.4.0"
    );
    assert_eq!(
        with(r#"{"deviceNodes":[{"path":"/dev/a","hostPath":"/dev/b"}]}"#),
        "0.5.0"
    );
    assert_eq!(with(r#"{"additionalGids":[5]}"#), "0.7.0");
    assert_eq!(
        with(r#"{"netDevices":[{"hostInterfaceName":"eth0","name":"net1"}]}"#),
        "1.1.0"
    );
}

/// As the published library refuses them.
#[test]
fn interfaces_and_groups_are_unique_and_have_names() {
    let check = |edits: &str, expected: &str| {
        let text = format!(
            r#"{{"cdiVersion":"1.1.0","kind":"a.com/bc","devices":[{{"name":"x","containerEdits":{edits}}}]}}"#
        );
        let validated = spec(&text).validate().map_err(|error| error.to_string());
        match expected {
            "" => validated.unwrap(),
            part => {
                let error = validated.unwrap_err();
                assert!(error.contains(part), "{error}");
            }
        }
    };
    let devices = |of: [(&str, &str); 2]| {
        let device = |(host, name)| format!(r#"{{"hostInterfaceName":"{host}","name":"{name}"}}"#);
        format!(r#"{{"netDevices":[{}]}}"#, of.map(device).join(","))
    };
    check(&devices([("eth0", "net1"), ("eth1", "net2")]), "");
    check(&devices([("eth0", "net1"), ("eth1", "eth0")]), "");
    let host = r#"netDevices[1].hostInterfaceName: duplicate "eth0""#;
    check(&devices([("eth0", "net1"), ("eth0", "net2")]), host);
    let name = r#"netDevices[1].name: duplicate "net1""#;
    check(&devices([("eth0", "net1"), ("eth1", "net1")]), name);
    let group = |name: &str| format!(r#"{{"intelRdt":{{"closID":"{name}"}}}}"#);
    for name in ["", "/", "gold", &"x".repeat(4095)] {
        check(&group(name), "");
    }
    for name in [".", "..", "a/b", "/a", "a\\nb", &"x".repeat(4096)] {
        check(&group(name), "is not the name of a group");
    }
}

#[test]
fn json_and_yaml_are_read_and_unknown_fields_refused() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = directory.path().join("a.yaml");
    let text = "cdiVersion: \"0.5.0\"\nkind: a.com/bc\ndevices:\n- name: x\n  containerEdits:\n    env: [\"A=1\"]\n";
    std::fs::write(&yaml, text).unwrap();
    let read = Spec::read(&yaml).unwrap();
    assert_eq!(read.devices[0].edits.env, ["A=1"]);
    let json = directory.path().join("a.json");
    read.write(&json).unwrap();
    assert_eq!(Spec::read(&json).unwrap(), read);
    // Valid, but containerd and CRI-O panic on it.
    for kind in ["a.com/b", "a/bc"] {
        let short = Spec {
            kind: kind.to_owned(),
            ..read.clone()
        };
        short.validate().unwrap();
        let refused = short.write(&json).unwrap_err().to_string();
        assert!(refused.contains("one letter"), "{refused}");
    }
    std::fs::write(&yaml, format!("{text}surprise: 1\n")).unwrap();
    assert!(matches!(Spec::read(&yaml), Err(Error::Parse { .. })));
}

/// The attack: a driver puts a pipe or a huge file where its specs are. The reader waited without end, or took all memory.
#[test]
fn pipes_and_huge_files_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.json");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = Spec::read(&pipe).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    let huge = directory.path().join("huge.yaml");
    let file = std::fs::File::create(&huge).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let error = Spec::read(&huge).unwrap_err().to_string();
    assert!(error.contains("larger than 16 MiB"), "{error}");
}
