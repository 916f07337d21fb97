use super::*;

#[track_caller]
fn check(profile: &str, filters: usize) {
    let security = Security {
        seccomp: Seccomp::Profile(profile.into()),
        ..Security::default()
    };
    let programs = compile(&security).unwrap();
    assert_eq!(programs.len(), filters);
    assert!(programs.iter().all(|program| !program.is_empty()));
}

#[test]
fn profiles_become_one_filter_for_every_action() {
    check(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#, 0);
    check(r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#, 1);
    let mixed = r#"{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        {"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
        {"name": "personality", "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        {"names": ["ptrace"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
    check(mixed, 3);
}

#[test]
fn what_cannot_be_done_is_said() {
    let fails = |profile: &str| {
        let security = Security {
            seccomp: Seccomp::Profile(profile.into()),
            ..Security::default()
        };
        compile(&security).unwrap_err()
    };
    let error = fails(r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#);
    assert_eq!(
        error,
        "seccomp profile: unsupported action \"SCMP_ACT_NOTIFY\""
    );
    assert!(fails("{").starts_with("seccomp profile: "));
}

#[test]
fn capabilities_open_the_default_profile() {
    let rules = |capabilities: &[&str]| {
        let held: Vec<String> = capabilities.iter().map(|it| (*it).to_owned()).collect();
        let all = default::profile().syscalls;
        let refused = all.iter().filter(|entry| counts(entry, &held));
        refused
            .flat_map(|entry| entry.names.clone())
            .collect::<Vec<_>>()
    };
    assert!(rules(&[]).iter().any(|name| name == "mount"));
    assert!(!rules(&["CAP_SYS_ADMIN"]).iter().any(|name| name == "mount"));
    assert!(
        rules(&["CAP_SYS_ADMIN"])
            .iter()
            .any(|name| name == "keyctl")
    );
}
