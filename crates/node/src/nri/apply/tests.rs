//! Adjustments, and the OCI specification that they lead to.

use allot_cdi::NetDevice;
use allot_protos::nri::{
    Container, ContainerAdjustment, KeyValue, LinuxContainerAdjustment, LinuxCpu,
    LinuxDeviceCgroup, LinuxIoPriority, LinuxMemoryPolicy, LinuxNamespace, LinuxNetDevice,
    LinuxRdt, LinuxResources, LinuxScheduler, LinuxSeccomp, LinuxSyscall, OptionalFileMode,
    OptionalInt, OptionalInt64, OptionalString, OptionalUInt64, PosixRlimit,
};

use super::*;
use crate::spec::Isolation;
use crate::spec::staged::{Account, Device, Hierarchy, Staged};

mod rdt;

/// A container with a variable, a volume and a network namespace.
fn container() -> ContainerSpec {
    ContainerSpec {
        id: "c".to_owned(),
        args: vec!["true".to_owned()],
        env: vec!["A=1".to_owned(), "HOME=/".to_owned()],
        mounts: vec![Mount {
            source: "/srv".into(),
            target: "/data".into(),
            ..Mount::default()
        }],
        network: Some("/run/netns/p".into()),
        isolation: Isolation::Namespaces,
        ..ContainerSpec::default()
    }
}

fn adjusted(mut spec: ContainerSpec, wanted: ContainerAdjustment) -> Result<ContainerSpec, String> {
    let mut all = Adjustments::default();
    let mut seen = Container {
        id: "c".to_owned(),
        ..Container::default()
    };
    let added = all.add(&mut seen, wanted, "05-p");
    added.map_err(|conflict| conflict.to_string())?;
    let config = Config::new("n", "/node");
    let applied = apply(&all, &config, true, &mut spec);
    applied
        .map(|()| spec)
        .map_err(|refused| refused.to_string())
}

fn oci(spec: &ContainerSpec) -> Value {
    let device = |device: &DeviceNode| Device {
        source: device.path.clone().into(),
        kind: if device.kind.as_deref() == Some("b") {
            "b"
        } else {
            "c"
        },
        ..Device::default()
    };
    let staged = Staged {
        root: "/root".into(),
        mounts: spec.mounts.iter().map(|it| it.source.clone()).collect(),
        devices: spec.devices.iter().map(device).collect(),
        cgroups: Hierarchy::V2,
    };
    let built = oci::build(spec, &staged, &Account::default()).expect("a specification");
    serde_json::to_value(built).expect("JSON")
}

fn linux(linux: LinuxContainerAdjustment) -> ContainerAdjustment {
    ContainerAdjustment {
        linux: Some(linux),
        ..ContainerAdjustment::default()
    }
}

fn cpu(cpu: LinuxCpu) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        resources: Some(LinuxResources {
            cpu: Some(cpu),
            ..LinuxResources::default()
        }),
        ..LinuxContainerAdjustment::default()
    })
}

fn env(all: &[(&str, &str)]) -> ContainerAdjustment {
    let all = all.iter().map(|(key, value)| KeyValue {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    ContainerAdjustment {
        env: all.collect(),
        ..ContainerAdjustment::default()
    }
}

fn mount(destination: &str, options: &[&str]) -> ContainerAdjustment {
    ContainerAdjustment {
        mounts: vec![nri::Mount {
            destination: destination.to_owned(),
            r#type: "bind".to_owned(),
            source: "/var/lib/kubelet/plugins/p".to_owned(),
            options: options.iter().map(|it| (*it).to_owned()).collect(),
        }],
        ..ContainerAdjustment::default()
    }
}

fn device(path: &str, kind: &str) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        devices: vec![LinuxDevice {
            path: path.to_owned(),
            r#type: kind.to_owned(),
            major: 10,
            minor: 200,
            file_mode: Some(OptionalFileMode { value: 0o640 }),
            uid: None,
            gid: None,
        }],
        ..LinuxContainerAdjustment::default()
    })
}

fn named<V>(name: &str, value: V) -> std::collections::BTreeMap<String, V> {
    [(name.to_owned(), value)].into()
}

fn seccomp_policy(action: &str) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        seccomp_policy: Some(LinuxSeccomp {
            default_action: "SCMP_ACT_ALLOW".to_owned(),
            syscalls: vec![LinuxSyscall {
                names: vec!["mkdir".to_owned()],
                action: action.to_owned(),
                ..LinuxSyscall::default()
            }],
            ..LinuxSeccomp::default()
        }),
        ..LinuxContainerAdjustment::default()
    })
}

fn oom_score(value: i64) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        oom_score_adj: Some(OptionalInt { value }),
        ..LinuxContainerAdjustment::default()
    })
}

fn rlimit(kind: &str) -> ContainerAdjustment {
    ContainerAdjustment {
        rlimits: vec![PosixRlimit {
            r#type: kind.to_owned(),
            hard: 20,
            soft: 10,
        }],
        ..ContainerAdjustment::default()
    }
}

fn namespace(kind: &str, path: &str) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        namespaces: vec![LinuxNamespace {
            r#type: kind.to_owned(),
            path: path.to_owned(),
        }],
        ..LinuxContainerAdjustment::default()
    })
}

fn hook(path: &str) -> ContainerAdjustment {
    ContainerAdjustment {
        hooks: Some(Hooks {
            create_runtime: vec![nri::Hook {
                path: path.to_owned(),
                args: vec!["x".to_owned()],
                ..nri::Hook::default()
            }],
            ..Hooks::default()
        }),
        ..ContainerAdjustment::default()
    }
}

fn of_device(name: &str) -> ContainerAdjustment {
    linux(LinuxContainerAdjustment {
        net_devices: named(
            name,
            LinuxNetDevice {
                name: "eth9".to_owned(),
            },
        ),
        ..LinuxContainerAdjustment::default()
    })
}

#[test]
fn fields_become_parts_of_the_specification() {
    let all = [
        (
            ContainerAdjustment {
                annotations: named("a", "b".to_owned()),
                ..ContainerAdjustment::default()
            },
            "/annotations",
            json!({"a": "b"}),
        ),
        (
            env(&[("A", "2"), ("B", "3")]),
            "/process/env",
            json!(["A=2", "HOME=/", "B=3"]),
        ),
        (
            env(&[("-A", ""), ("-C", "")]),
            "/process/env",
            json!(["HOME=/"]),
        ),
        (
            ContainerAdjustment {
                args: vec!["sh".to_owned(), "-c".to_owned()],
                ..ContainerAdjustment::default()
            },
            "/process/args",
            json!(["sh", "-c"]),
        ),
        (
            hook("/var/lib/kubelet/plugins/p/h"),
            "/hooks/createRuntime/0/path",
            json!("/node/plugins/p/h"),
        ),
        (
            rlimit("RLIMIT_CORE"),
            "/process/rlimits",
            json!([{"type": "RLIMIT_CORE", "soft": 10, "hard": 20}]),
        ),
        (
            mount("/x", &["ro", "nosuid"]),
            "/mounts/1",
            json!({"destination": "/x", "type": "bind", "source": "/node/plugins/p", "options": ["rbind", "ro", "nosuid"]}),
        ),
        // In the place of the volume of the pod.
        (
            mount("/data", &["rro"]),
            "/mounts/0/source",
            json!("/node/plugins/p"),
        ),
        (
            mount("/data/", &["rro"]),
            "/mounts/0/options",
            json!(["rbind", "rro"]),
        ),
        (mount("-/data", &[]), "/mounts/0/destination", json!("/sys")),
        (
            device("/dev/x", "c"),
            "/linux/devices/0",
            json!({"path": "/dev/x", "type": "c", "major": 10, "minor": 200, "fileMode": 0o640, "uid": 0, "gid": 0}),
        ),
        (
            device("/dev/x", "b"),
            "/linux/resources/devices/1",
            json!({"allow": true, "type": "b", "major": 10, "minor": 200, "access": "rwm"}),
        ),
        (
            cpu(LinuxCpu {
                cpus: "0,2-3".to_owned(),
                mems: "0".to_owned(),
                quota: Some(OptionalInt64 { value: 5000 }),
                period: Some(OptionalUInt64 { value: 20_000 }),
                shares: Some(OptionalUInt64 { value: 77 }),
                ..LinuxCpu::default()
            }),
            "/linux/resources/cpu",
            json!({"cpus": "0,2-3", "mems": "0", "quota": 5000, "period": 20_000, "shares": 77}),
        ),
        (
            linux(LinuxContainerAdjustment {
                resources: Some(LinuxResources {
                    devices: vec![LinuxDeviceCgroup {
                        allow: true,
                        r#type: "c".to_owned(),
                        major: Some(OptionalInt64 { value: 5 }),
                        minor: None,
                        access: "r".to_owned(),
                    }],
                    ..LinuxResources::default()
                }),
                ..LinuxContainerAdjustment::default()
            }),
            "/linux/resources/devices/1",
            json!({"allow": true, "type": "c", "major": 5, "access": "r"}),
        ),
        (
            linux(LinuxContainerAdjustment {
                io_priority: Some(LinuxIoPriority {
                    class: 2,
                    priority: 4,
                }),
                ..LinuxContainerAdjustment::default()
            }),
            "/process/ioPriority",
            json!({"class": "IOPRIO_CLASS_BE", "priority": 4}),
        ),
        (
            linux(LinuxContainerAdjustment {
                scheduler: Some(LinuxScheduler {
                    policy: 2,
                    priority: 9,
                    flags: vec![0],
                    ..LinuxScheduler::default()
                }),
                ..LinuxContainerAdjustment::default()
            }),
            "/process/scheduler/policy",
            json!("SCHED_FIFO"),
        ),
        (
            linux(LinuxContainerAdjustment {
                memory_policy: Some(LinuxMemoryPolicy {
                    mode: 2,
                    nodes: "0".to_owned(),
                    flags: vec![0],
                }),
                ..LinuxContainerAdjustment::default()
            }),
            "/linux/memoryPolicy",
            json!({"mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"]}),
        ),
        (
            linux(LinuxContainerAdjustment {
                sysctl: named("net.core.somaxconn", "9".to_owned()),
                ..LinuxContainerAdjustment::default()
            }),
            "/linux/sysctl",
            json!({"net.core.somaxconn": "9"}),
        ),
        (
            namespace("network", "/run/netns/other"),
            "/linux/namespaces/5",
            json!({"type": "network", "path": "/run/netns/other"}),
        ),
    ];
    for (wanted, pointer, expected) in all {
        let spec = adjusted(container(), wanted).expect(pointer);
        let oci = oci(&spec);
        assert_eq!(
            oci.pointer(pointer),
            Some(&expected),
            "{pointer} of {oci:#}"
        );
    }
}

/// What the shim sets by itself is not in the specification.
#[test]
fn fields_become_parts_of_the_description() {
    let spec = adjusted(container(), oom_score(-5)).expect("a score");
    assert_eq!(spec.limits.oom_score_adj, Some(-5));
    let spec = adjusted(container(), seccomp_policy("SCMP_ACT_ERRNO")).expect("a policy");
    let programs = oci::seccomp::compile(&spec.security).expect("a filter");
    assert_eq!(programs.len(), 1);
    let spec = adjusted(container(), namespace("-network", "")).expect("a namespace");
    assert_eq!(spec.network, None);
}

#[test]
fn mounts_are_in_the_order_of_their_depth() {
    let mut spec = container();
    spec.mounts.push(Mount {
        target: "/x/y/z".into(),
        ..Mount::default()
    });
    let spec = adjusted(spec, mount("/x/y", &[])).expect("mounts");
    let targets: Vec<&Path> = spec.mounts.iter().map(|it| it.target.as_path()).collect();
    assert_eq!(
        targets,
        [Path::new("/data"), Path::new("/x/y"), Path::new("/x/y/z")]
    );
}

/// The agent moves them, and not the OCI runtime.
#[test]
fn interfaces_are_added_renamed_and_removed() {
    let device = |host: &str, name: &str| NetDevice {
        host_interface_name: host.to_owned(),
        name: name.to_owned(),
    };
    let check = |wanted, expected: &[NetDevice]| {
        let mut spec = container();
        spec.net_devices = vec![device("eth0", "net1")];
        let spec = adjusted(spec, wanted).expect("interfaces");
        assert_eq!(spec.net_devices, expected);
        assert_eq!(oci(&spec).pointer("/linux/netDevices"), None);
    };
    let none = linux(LinuxContainerAdjustment::default());
    check(none, &[device("eth0", "net1")]);
    check(of_device("eth0"), &[device("eth0", "eth9")]);
    check(
        of_device("eth1"),
        &[device("eth0", "net1"), device("eth1", "eth9")],
    );
    check(of_device("-eth0"), &[]);
}

#[test]
fn what_cannot_be_carried_out_is_refused_with_plugin_and_field() {
    let rdt = linux(LinuxContainerAdjustment {
        rdt: Some(LinuxRdt {
            clos_id: Some(OptionalString {
                value: "info".to_owned(),
            }),
            ..LinuxRdt::default()
        }),
        ..LinuxContainerAdjustment::default()
    });
    let class = linux(LinuxContainerAdjustment {
        resources: Some(LinuxResources {
            blockio_class: Some(OptionalString::default()),
            ..LinuxResources::default()
        }),
        ..LinuxContainerAdjustment::default()
    });
    let cgroup = linux(LinuxContainerAdjustment {
        cgroups_path: "/x".to_owned(),
        ..LinuxContainerAdjustment::default()
    });
    let tmpfs = ContainerAdjustment {
        mounts: vec![nri::Mount {
            destination: "/x".to_owned(),
            r#type: "tmpfs".to_owned(),
            ..nri::Mount::default()
        }],
        ..ContainerAdjustment::default()
    };
    let priority = linux(LinuxContainerAdjustment {
        io_priority: Some(LinuxIoPriority {
            class: 77,
            priority: 0,
        }),
        ..LinuxContainerAdjustment::default()
    });
    for (wanted, what) in [
        (rdt, "RdtClosID"),
        (class, "BlockioClass"),
        (cgroup, "CgroupsPath"),
        (tmpfs, r#"Mounts "/x""#),
        (mount("/x", &["rshared"]), r#"Mounts "/x""#),
        (mount("/x", &["data=1"]), r#"Mounts "/x""#),
        (mount("/x/../..", &[]), r#"Mounts "/x/../..""#),
        (mount("/", &[]), r#"Mounts "/""#),
        (mount("-/proc", &[]), r#"Mounts "/proc""#),
        (device("/dev/null", "c"), r#"Devices "/dev/null""#),
        (device("dev/x", "c"), r#"Devices "dev/x""#),
        (device("/dev/x", "p"), r#"Devices "/dev/x""#),
        (env(&[("A=B", "1")]), r#"Env "A=B""#),
        (env(&[("", "1")]), r#"Env """#),
        (env(&[("A", "1\0")]), r#"Env "A""#),
        (hook("relative"), "OciHooks"),
        (rlimit("RLIMIT_OTHER"), r#"Rlimits "RLIMIT_OTHER""#),
        (oom_score(2000), "OomScoreAdj"),
        (priority, "IoPriority"),
        (seccomp_policy("SCMP_ACT_OTHER"), "SeccompPolicy"),
        (of_device("lo"), r#"LinuxNetDevices "lo""#),
        (of_device("eth0/../x"), r#"LinuxNetDevices "eth0/../x""#),
        (namespace("user", "/proc/1/ns/user"), r#"Namespace "user""#),
        (namespace("-pid", ""), r#"Namespace "pid""#),
        (namespace("network", ""), r#"Namespace "network""#),
    ] {
        let refused = adjusted(container(), wanted).expect_err(what);
        let expected = format!(r#"NRI plugin "05-p" requires {what}: "#);
        assert!(refused.starts_with(&expected), "{refused}");
    }
    let mut shared = container();
    shared.network = None;
    let refused = adjusted(shared, of_device("eth0")).expect_err("refused");
    assert!(
        refused.contains("no network namespace of its own"),
        "{refused}"
    );
}
