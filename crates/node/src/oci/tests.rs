use allot_cdi::{DeviceNode, Hook};
use serde_json::{Value, json};

use super::*;
use crate::spec::Mount;
use crate::spec::staged::Device;

fn built(spec: &ContainerSpec, cgroups: Hierarchy) -> Value {
    let device = Device {
        source: "/dev/host".into(),
        kind: "c",
        numbers: (10, 7),
        mode: 0o600,
        owner: (0, 44),
    };
    let staged = Staged {
        root: "/stage/root".into(),
        mounts: spec
            .mounts
            .iter()
            .map(|_| "/stage/mount-0".into())
            .collect(),
        devices: spec.devices.iter().map(|_| device.clone()).collect(),
        cgroups,
    };
    let account = Account {
        home: "/home/me".into(),
        groups: vec![5],
        ..Account::default()
    };
    serde_json::to_value(build(spec, &staged, &account).unwrap()).unwrap()
}

/// A container whose other fields do not matter.
fn container(isolation: Isolation) -> ContainerSpec {
    ContainerSpec {
        id: "id".into(),
        args: vec!["true".into()],
        isolation,
        ..ContainerSpec::default()
    }
}

fn mounts_on<'a>(spec: &'a Value, target: &str) -> Vec<&'a Value> {
    let all = spec["mounts"].as_array().unwrap().iter();
    all.filter(|mount| mount["destination"] == target).collect()
}

#[test]
fn without_a_word_nothing_is_given() {
    let spec = built(&container(Isolation::Namespaces), Hierarchy::V1);
    assert_eq!(spec["process"]["capabilities"]["bounding"], json!([]));
    assert_eq!(spec["process"]["env"], json!(["HOME=/home/me"]));
    assert_eq!(spec["process"]["cwd"], "/");
    assert_eq!(spec["process"]["user"]["umask"], 0o022);
    assert_eq!(spec["process"]["user"]["additionalGids"], json!([5]));
    assert_eq!(spec["linux"]["cgroupsPath"], "/allot/id/processes");
    assert_eq!(
        spec["linux"]["resources"]["devices"][0],
        json!({"allow": false, "access": "rwm"})
    );
    let paths = spec["linux"]["readonlyPaths"].as_array().unwrap();
    assert!(paths.contains(&json!("/proc/sys")) && paths.contains(&json!("/sys/fs/cgroup")));
    let kinds: Vec<&str> = spec["linux"]["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["type"].as_str())
        .collect();
    assert_eq!(kinds, ["mount", "uts", "pid", "ipc", "cgroup"]);
}

/// libcontainer takes the last of several variables, and looks up an empty one by the C library.
#[test]
fn regression_the_home_directory_is_never_empty() {
    let check = |variables: &[&str], expected: &[&str]| {
        let spec = ContainerSpec {
            env: variables.iter().map(|it| (*it).to_owned()).collect(),
            ..container(Isolation::Namespaces)
        };
        let built = built(&spec, Hierarchy::V1);
        assert_eq!(built["process"]["env"], json!(expected), "{variables:?}");
        let process = further_process(&spec, &Account::default(), &[], false).unwrap();
        let env = process.env().clone().unwrap_or_default();
        assert!(!env.iter().any(|it| it == "HOME="), "{env:?}");
    };
    check(&["HOME=", "A=1"], &["A=1", "HOME=/home/me"]);
    check(&["HOME"], &["HOME=/home/me"]);
    check(&["HOME=/own", "HOME="], &["HOME=/own"]);
    check(&["HOME=/own", "HOMES="], &["HOME=/own", "HOMES="]);
}

#[test]
fn devices_are_nodes_for_root_and_mounts_for_others() {
    let devices = vec![DeviceNode {
        path: "/dev/mine".into(),
        host_path: Some("/dev/host".into()),
        permissions: Some("r".into()),
        ..DeviceNode::default()
    }];
    let spec = ContainerSpec {
        devices,
        ..container(Isolation::Namespaces)
    };
    let root = built(&spec, Hierarchy::V1);
    let node = &root["linux"]["devices"][0];
    assert_eq!(
        (&node["path"], &node["major"], &node["gid"]),
        (&json!("/dev/mine"), &json!(10), &json!(44))
    );
    let rule = &root["linux"]["resources"]["devices"][1];
    assert_eq!(
        (&rule["allow"], &rule["minor"], &rule["access"]),
        (&json!(true), &json!(7), &json!("r"))
    );
    assert!(mounts_on(&root, "/dev/mine").is_empty());
    let user = ContainerSpec {
        isolation: Isolation::UserNamespace,
        ..spec
    };
    let user = built(&user, Hierarchy::None);
    assert_eq!(mounts_on(&user, "/dev/mine")[0]["source"], "/dev/host");
    assert!(user["process"]["user"]["additionalGids"].is_null());
}

#[test]
fn volumes_come_from_the_stage() {
    let mounts = vec![Mount {
        source: "/host".into(),
        target: "data".into(),
        read_only: true,
        options: vec!["rnodev".into()],
        ..Mount::default()
    }];
    let spec = ContainerSpec {
        mounts,
        ..container(Isolation::Namespaces)
    };
    let built = built(&spec, Hierarchy::V2);
    let mount = mounts_on(&built, "/data")[0];
    assert_eq!(mount["source"], "/stage/mount-0");
    assert_eq!(mount["options"], json!(["rbind", "rro", "rnodev"]));
    assert_eq!(mounts_on(&built, "/sys/fs/cgroup")[0]["type"], "cgroup");
    for target in ["/", "", "/a/../b"] {
        let mut spec = spec.clone();
        spec.mounts[0].target = target.into();
        let staged = Staged {
            mounts: vec!["/stage/mount-0".into()],
            ..Staged::default()
        };
        let error = build(&spec, &staged, &Account::default()).unwrap_err();
        assert!(matches!(error, Error::Target(_)), "{error}");
    }
}

#[test]
fn hooks_run_at_their_points() {
    let hook = |name: &str| Hook {
        hook_name: name.into(),
        path: "/bin/hook".into(),
        ..Hook::default()
    };
    let spec = ContainerSpec {
        hooks: vec![
            hook("createContainer"),
            hook("createContainer"),
            hook("startContainer"),
            hook("poststop"),
        ],
        ..container(Isolation::Namespaces)
    };
    let hooks = &built(&spec, Hierarchy::V1)["hooks"];
    assert_eq!(hooks["createContainer"].as_array().unwrap().len(), 2);
    assert_eq!(hooks["poststop"][0]["timeout"], 20);
    // The shim runs it, when the program is confined.
    assert!(hooks.get("startContainer").is_none());
    let unknown = ContainerSpec {
        hooks: vec![hook("sometime")],
        ..spec
    };
    let error = build(&unknown, &Staged::default(), &Account::default()).unwrap_err();
    assert_eq!(error.to_string(), "unknown CDI hook \"sometime\"");
}
