//! The security context, field by field: what it is set to, and what is seen inside.

use allot_node::shim::spec::{ContainerSpec, Seccomp};

use super::harness::{Container, RunAs, check, machine};

/// Like [`check`], for root only: an ordinary user has one user and one group.
#[track_caller]
fn as_root(script: &str, change: impl Fn(&mut ContainerSpec), expected: &str) {
    if let Some(machine) = machine(RunAs::Root) {
        let (exit, text) = Container::start(RunAs::Root, machine, script, change).end();
        assert_eq!(text, expected, "exit code {}", exit.code);
    }
}

const CAPS: &str = "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status | tr '\\t\\n' '  '; echo";

fn caps(value: &str) -> String {
    format!("CapPrm: {value} CapEff: {value} CapBnd: {value} \n")
}

#[test]
fn users_and_groups() {
    check("id -u; id -g", |_| {}, "0\n0\n");
    check(
        "id -u; id -g; touch /tmp/f && stat -c %u:%g /tmp/f",
        |spec| {
            spec.security.user = Some(1234);
            spec.security.group = Some(55);
        },
        "1234\n55\n1234:55\n",
    );
    let groups = |spec: &mut ContainerSpec| {
        spec.security.user = Some(1234);
        spec.security.groups = vec![77, 66];
    };
    as_root("id -G", groups, "0 66 77\n");
    // The attack: a program that changed to another group was let into files that are closed to its first one.
    let primary = |spec: &mut ContainerSpec| {
        spec.security.user = Some(1234);
        spec.security.group = Some(55);
        spec.security.merge_groups = true;
    };
    as_root("grep Groups /proc/self/status", primary, "Groups:\t55 \n");
    let named = |spec: &mut ContainerSpec| spec.security.user_name = Some("nobody".into());
    as_root("id -un", named, "nobody\n");
    as_root("echo $HOME", named, "/nonexistent\n");
    check("echo $HOME", |_| {}, "/root\n");
    check("echo $HOME", |spec| spec.env.push("HOME=/x".into()), "/x\n");
}

#[test]
fn capabilities() {
    check(CAPS, |_| {}, &caps("00000000000001eb"));
    check(
        CAPS,
        |spec| spec.security.capabilities.clear(),
        &caps("0000000000000000"),
    );
    let one = |spec: &mut ContainerSpec| spec.security.capabilities = vec!["CAP_NET_RAW".into()];
    check(CAPS, one, &caps("0000000000002000"));
    let user = |spec: &mut ContainerSpec| spec.security.user = Some(1000);
    let script = "grep CapEff /proc/self/status";
    check(script, user, "CapEff:\t0000000000000000\n");
}

#[test]
fn privilege_escalation() {
    let status = "grep NoNewPrivs /proc/self/status";
    check(status, |_| {}, "NoNewPrivs:\t0\n");
    let never = |spec: &mut ContainerSpec| spec.security.no_new_privileges = true;
    check(status, never, "NoNewPrivs:\t1\n");
    let setuid = "cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; \
        setpriv --reuid=1000 --clear-groups /tmp/id | grep -o 'euid=0' || echo same";
    as_root(setuid, |_| {}, "euid=0\n");
    as_root(setuid, never, "same\n");
}

#[test]
fn read_only_root() {
    let script =
        "touch /f /etc/f /usr/f /var/f 2>&1 | grep -c 'Read-only'; touch /dev/shm/f && echo shm";
    check(
        script,
        |spec| spec.security.read_only_root = true,
        "4\nshm\n",
    );
    check(
        "touch /f /etc/f /var/f && echo writable",
        |_| {},
        "writable\n",
    );
    // The host's programs stay as they are.
    check("touch /usr/f 2>&1 | grep -c 'Read-only'", |_| {}, "1\n");
}

#[test]
fn system_calls() {
    let script =
        "grep '^Seccomp:' /proc/self/status; unshare -U true 2>/dev/null && echo unshare; true";
    let with =
        |seccomp: Seccomp| move |spec: &mut ContainerSpec| spec.security.seccomp = seccomp.clone();
    check(
        "grep '^Seccomp:' /proc/self/status",
        with(Seccomp::Unconfined),
        "Seccomp:\t0\n",
    );
    check(script, with(Seccomp::RuntimeDefault), "Seccomp:\t2\n");
    let never = |spec: &mut ContainerSpec| {
        spec.security.seccomp = Seccomp::RuntimeDefault;
        spec.security.no_new_privileges = true;
    };
    check(script, never, "Seccomp:\t2\n");
    // Installing a filter without no_new_privs takes a capability, which is given up again.
    check(
        CAPS,
        with(Seccomp::RuntimeDefault),
        &caps("00000000000001eb"),
    );
    let user = |spec: &mut ContainerSpec| {
        spec.security.seccomp = Seccomp::RuntimeDefault;
        spec.security.user = Some(1000);
    };
    check(
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t\\n' '  '; echo",
        user,
        "CapEff: 0000000000000000 NoNewPrivs: 0 Seccomp: 2 \n",
    );
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}"#;
    check(
        "mkdir /tmp/d 2>&1 | grep -o 'No space left'",
        with(Seccomp::Profile(profile.into())),
        "No space left\n",
    );
}

/// The attack: beside a program with a profile of its own, the first process kept the right to do everything, and no filter: a
/// program that may trace others was not bound by either.
#[test]
fn the_first_process_has_no_more_than_its_program() {
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["keyctl"], "action": "SCMP_ACT_ERRNO"}]}"#;
    // With CAP_KILL, and nothing else. It still passes signals on, and collects orphans.
    let script = "sed -n 's/^\\(CapPrm\\|CapEff\\|NoNewPrivs\\|Seccomp\\):[[:space:]]*/\\1 /p' /proc/1/status; \
        (sleep 0 &) ; trap 'echo told; exit 5' TERM; kill -TERM 1; while :; do sleep 1; done";
    let expected =
        "CapPrm 0000000000000020\nCapEff 0000000000000020\nNoNewPrivs 1\nSeccomp 2\ntold\n";
    let change = |spec: &mut ContainerSpec| {
        spec.security.capabilities.push("CAP_SYS_PTRACE".into());
        spec.security.seccomp = Seccomp::Profile(profile.into());
    };
    check(script, change, expected);
}

#[test]
fn parts_of_proc() {
    let script = "grep -c -E ' /proc/(sys|kcore|keys|bus|irq) ' /proc/mounts";
    let count = |unmasked: bool| {
        let machine = machine(RunAs::Root)?;
        let change = |spec: &mut ContainerSpec| spec.security.unmasked = unmasked;
        Some(
            Container::start(RunAs::Root, machine, script, change)
                .end()
                .1,
        )
    };
    if let (Some(masked), Some(unmasked)) = (count(false), count(true)) {
        assert_ne!(masked, "0\n");
        assert_eq!(unmasked, "0\n");
    }
}

#[test]
fn kernel_parameters_of_namespaces() {
    let change = |spec: &mut ContainerSpec| {
        let parameter = ("kernel.shm_rmid_forced".to_owned(), "1".to_owned());
        spec.security.sysctls = [parameter].into();
    };
    as_root("cat /proc/sys/kernel/shm_rmid_forced", change, "1\n");
}

#[test]
fn namespaces_of_the_host() {
    let script = "[ $(ls /proc | grep -c '^[0-9]') -gt 8 ] && echo host; true";
    as_root(script, |spec| spec.security.host_pid = true, "host\n");
    if let Some(machine) = machine(RunAs::Root) {
        let container =
            Container::start(RunAs::Root, machine, "readlink /proc/self/ns/ipc", |spec| {
                spec.security.host_ipc = true;
            });
        let own = std::fs::read_link("/proc/self/ns/ipc").unwrap();
        assert_eq!(container.end().1.trim(), own.to_string_lossy());
    }
}

#[test]
fn a_privileged_container_can_mount_and_has_the_devices_of_the_host() {
    let all = |spec: &mut ContainerSpec| {
        spec.security.privileged = true;
        spec.security.capabilities = vec!["CAP_SYS_ADMIN".into(), "CAP_MKNOD".into()];
    };
    as_root(
        "mount -t tmpfs x /mnt && echo mounts; [ $(ls /dev | wc -l) -gt 14 ] && echo devices",
        all,
        "mounts\ndevices\n",
    );
}

#[test]
fn variables_keep_their_order() {
    let change = |spec: &mut ContainerSpec| {
        spec.args = vec!["env".into()];
        spec.env
            .extend(["Z=1", "A=2", "M=3", "HOME=/"].map(str::to_owned));
    };
    check(
        "",
        change,
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin\nZ=1\nA=2\nM=3\nHOME=/\n",
    );
}

#[test]
fn later_programs_are_confined_like_the_first() {
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let container = Container::start(user, machine, "echo up; sleep 6543", |spec| {
            spec.security.user = Some(1234);
            spec.security.no_new_privileges = true;
            spec.security.seccomp = Seccomp::RuntimeDefault;
        });
        if let Err(reason) = &container.started {
            panic!("{reason}");
        }
        let script = "id -u; hostname; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t\\n' '  '; \
            ls /proc | grep -c '^1$'; cat /proc/1/comm | wc -l; ls -d /root/.kube 2>/dev/null";
        let expected = "1234\ninside\nCapBnd: 00000000000001eb NoNewPrivs: 1 Seccomp: 2 1\n1\n";
        assert_eq!(container.exec(script), expected, "{user:?}");
        let missing = container.exec("exec no-such-program");
        assert!(missing.contains("not found"), "{missing}");
    }
}

/// The kernel reads 32 bits of the family of a socket, a filter sees 64.
#[test]
fn system_calls_are_refused_by_what_the_kernel_reads() {
    if !std::path::Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: no perl");
        return;
    }
    let number = libc::SYS_socket;
    let families = [libc::AF_VSOCK, libc::AF_ALG].map(i64::from);
    for family in families.into_iter().flat_map(|it| [it, it | 1 << 32]) {
        let script = format!("perl -e 'syscall({number}, {family}, 1, 0); print $!+0, qq(\\n)'");
        let change = |spec: &mut ContainerSpec| spec.security.seccomp = Seccomp::RuntimeDefault;
        check(&script, change, "1\n");
    }
}
