//! What several plugins request, one after the other.

use allot_protos::nri::{
    CdiDevice, LinuxCpu, LinuxNamespace, OptionalInt64, OptionalUInt64, PosixRlimit,
};

use super::*;

fn container() -> Container {
    Container {
        id: "c".to_owned(),
        env: vec!["A=1".to_owned(), "B=2".to_owned()],
        mounts: vec![mount("/data")],
        ..Container::default()
    }
}

fn mount(destination: &str) -> Mount {
    Mount {
        destination: destination.to_owned(),
        source: "/srv".to_owned(),
        ..Mount::default()
    }
}

fn env(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// Adds what plugins `0`, `1`, … request.
fn added(wanted: Vec<ContainerAdjustment>) -> Result<(Adjustments, Container), String> {
    let (mut all, mut seen) = (Adjustments::default(), container());
    for (number, wanted) in wanted.into_iter().enumerate() {
        let added = all.add(&mut seen, wanted, &number.to_string());
        added.map_err(|conflict| conflict.to_string())?;
    }
    Ok((all, seen))
}

fn envs(all: &[(&str, &str)]) -> ContainerAdjustment {
    ContainerAdjustment {
        env: all.iter().map(|(key, value)| env(key, value)).collect(),
        ..ContainerAdjustment::default()
    }
}

#[test]
fn each_plugin_sees_what_those_before_it_requested() {
    let (all, seen) = added(vec![
        envs(&[("A", "x"), ("C", "3")]),
        envs(&[("-B", ""), ("D", "4")]),
    ])
    .expect("no conflict");
    assert_eq!(seen.env, ["A=x", "C=3", "D=4"]);
    let names: Vec<&str> = all.all.env.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(names, ["A", "C", "-B", "D"]);
    assert_eq!(all.owners.name("c", Field::Env, Some("B")), "1");
}

#[test]
fn what_was_removed_can_be_set_again() {
    let (all, seen) =
        added(vec![envs(&[("C", "3")]), envs(&[("-C", ""), ("C", "4")])]).expect("no conflict");
    assert_eq!(seen.env, ["A=1", "B=2", "C=4"]);
    assert_eq!(all.all.env, [env("C", "4")]);
    let (all, _) = added(vec![
        ContainerAdjustment {
            mounts: vec![mount("/x")],
            ..ContainerAdjustment::default()
        },
        ContainerAdjustment {
            mounts: vec![mount("-/x"), mount("-/data")],
            ..ContainerAdjustment::default()
        },
    ])
    .expect("no conflict");
    let left: Vec<&str> = all
        .all
        .mounts
        .iter()
        .map(|it| it.destination.as_str())
        .collect();
    assert_eq!(left, ["-/x", "-/data"]);
}

/// Every kind of field: two plugins that set the same are in conflict, and both are named.
#[test]
fn two_plugins_do_not_set_the_same() {
    let linux = |linux| ContainerAdjustment {
        linux: Some(linux),
        ..ContainerAdjustment::default()
    };
    let cpu = |cpu| {
        linux(LinuxContainerAdjustment {
            resources: Some(LinuxResources {
                cpu: Some(cpu),
                ..LinuxResources::default()
            }),
            ..LinuxContainerAdjustment::default()
        })
    };
    let all = [
        (envs(&[("A", "1")]), r#"Env "A""#),
        (
            ContainerAdjustment {
                annotations: [("a".to_owned(), String::new())].into(),
                ..ContainerAdjustment::default()
            },
            r#"Annotations "a""#,
        ),
        (
            ContainerAdjustment {
                mounts: vec![mount("/x")],
                ..ContainerAdjustment::default()
            },
            r#"Mounts "/x""#,
        ),
        (
            ContainerAdjustment {
                args: vec!["a".to_owned()],
                ..ContainerAdjustment::default()
            },
            "Args",
        ),
        (
            ContainerAdjustment {
                rlimits: vec![PosixRlimit {
                    r#type: "RLIMIT_CORE".to_owned(),
                    hard: 1,
                    soft: 1,
                }],
                ..ContainerAdjustment::default()
            },
            r#"Rlimits "RLIMIT_CORE""#,
        ),
        (
            ContainerAdjustment {
                cdi_devices: vec![CdiDevice {
                    name: "v/c=d".to_owned(),
                }],
                ..ContainerAdjustment::default()
            },
            r#"CdiDevices "v/c=d""#,
        ),
        (
            cpu(LinuxCpu {
                cpus: "0".to_owned(),
                ..LinuxCpu::default()
            }),
            "CPUSetCPUs",
        ),
        (
            cpu(LinuxCpu {
                shares: Some(OptionalUInt64 { value: 2 }),
                ..LinuxCpu::default()
            }),
            "CPUShares",
        ),
        (
            linux(LinuxContainerAdjustment {
                namespaces: vec![LinuxNamespace {
                    r#type: "network".to_owned(),
                    path: "/n".to_owned(),
                }],
                ..LinuxContainerAdjustment::default()
            }),
            r#"Namespace "network""#,
        ),
        (
            linux(LinuxContainerAdjustment {
                sysctl: [("net.a".to_owned(), "1".to_owned())].into(),
                ..LinuxContainerAdjustment::default()
            }),
            r#"Sysctl "net.a""#,
        ),
        (
            linux(LinuxContainerAdjustment {
                cgroups_path: "/x".to_owned(),
                ..LinuxContainerAdjustment::default()
            }),
            "CgroupsPath",
        ),
    ];
    for (wanted, what) in all {
        added(vec![wanted.clone()]).expect("one alone");
        let conflict = added(vec![wanted.clone(), wanted]).expect_err(what);
        assert_eq!(
            conflict,
            format!(r#"plugins "1" and "0" both tried to set {what}"#)
        );
    }
}

#[test]
fn hooks_of_all_plugins_run_and_arguments_can_be_replaced_by_force() {
    let hook = |path: &str| ContainerAdjustment {
        hooks: Some(Hooks {
            poststop: vec![allot_protos::nri::Hook {
                path: path.to_owned(),
                ..Default::default()
            }],
            ..Hooks::default()
        }),
        args: vec![String::new(), path.to_owned()],
        ..ContainerAdjustment::default()
    };
    let (all, seen) = added(vec![hook("/a"), hook("/b")]).expect("no conflict");
    assert_eq!(all.all.hooks.expect("hooks").poststop.len(), 2);
    assert_eq!(seen.args, ["/b"]);
    assert_eq!(all.owners.name("c", Field::OciHooks, None), "0,1");
}

#[test]
fn updates_of_several_plugins_are_one() {
    let cpu = |id: &str, cpu, ignore_failure| ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(allot_protos::nri::LinuxContainerUpdate {
            resources: Some(LinuxResources {
                cpu: Some(cpu),
                ..LinuxResources::default()
            }),
        }),
        ignore_failure,
    };
    let cpus = |text: &str| LinuxCpu {
        cpus: text.to_owned(),
        ..LinuxCpu::default()
    };
    let quota = LinuxCpu {
        quota: Some(OptionalInt64 { value: 1 }),
        ..LinuxCpu::default()
    };
    let mut updates = Updates::during_creation("new");
    updates
        .add(&[cpu("a", cpus("0"), true)], "0")
        .expect("added");
    updates.add(&[cpu("a", quota, false)], "1").expect("added");
    let merged = resources_of(&updates.all[0]).cpu.expect("cpu");
    assert!(merged.cpus == "0" && merged.quota.is_some());
    assert_eq!(
        (updates.all.len(), updates.all[0].ignore_failure),
        (1, false)
    );
    // Of two that contradict each other the first one counts, if the second may fail.
    updates
        .add(&[cpu("a", cpus("1"), true)], "2")
        .expect("ignored");
    let error = updates
        .add(&[cpu("a", cpus("1"), false)], "2")
        .expect_err("a conflict");
    assert!(error.to_string().contains("CPUSetCPUs"), "{error}");
    let error = updates
        .add(&[cpu("new", cpus("1"), true)], "2")
        .expect_err("refused");
    assert!(error.to_string().contains("during creation"), "{error}");
    assert_eq!(resources_of(&updates.all[0]).cpu.expect("cpu").cpus, "0");
}

#[test]
fn more_than_a_container_has_is_refused_at_once() {
    let many = ContainerAdjustment {
        env: (0..400_000).map(|it| env(&it.to_string(), "")).collect(),
        ..ContainerAdjustment::default()
    };
    let refused = added(vec![many]).expect_err("refused");
    assert_eq!(
        refused,
        r#"plugin "0" requests 400000 entries, more than 4096"#
    );
    let updates = vec![ContainerUpdate::default(); MOST + 1];
    let refused = Updates::default().add(&updates, "0").expect_err("refused");
    assert!(refused.to_string().contains("more than 4096"), "{refused}");
}
