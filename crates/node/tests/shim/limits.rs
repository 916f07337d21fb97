//! Limits of the kernel, where cgroups can be written.

use std::fs;
use std::path::{Path, PathBuf};

use allot_node::shim::spec::{ContainerSpec, Isolation};

use allot_testing::wait::until_true;

use super::harness::{Container, Machine, RunAs, is_installed, machine, program_of};

fn with_cgroups() -> Option<Machine> {
    let machine = machine(RunAs::Root).filter(|machine| machine.cgroups);
    if machine.is_none() {
        eprintln!("skipped: cgroups cannot be written");
    }
    machine
}

#[test]
fn too_much_memory_is_the_end_and_is_named() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    // Without swap, a file in memory counts.
    let script = "head -c 60000000 /dev/zero | tail -c 50000000 | wc -c; echo survived";
    let change = |spec: &mut ContainerSpec| spec.limits.memory = Some(16 << 20);
    let (exit, text) = Container::start(
        RunAs::Root,
        machine,
        &format!("exec sh -ec '{script}'"),
        change,
    )
    .end();
    assert!(!text.contains("50000000"), "{text}");
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); exit 3";
    let container = Container::start(RunAs::Root, machine, script, change);
    let (killed, _) = container.end();
    assert_ne!(killed.code, 0);
    assert!(killed.oom_killed, "{killed:?} {exit:?}");
    let (fine, _) = Container::start(RunAs::Root, machine, "exit 3", change).end();
    assert!(!fine.oom_killed);
}

#[test]
fn processes_are_counted() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done; echo all";
    let change = |spec: &mut ContainerSpec| spec.limits.pids = Some(6);
    let (_, text) = Container::start(RunAs::Root, machine, script, change).end();
    assert!(!text.contains("all\n"), "{text}");
}

/// Two containers that each have fewer processes than their pod may have.
#[tokio::test]
async fn containers_of_a_pod_share_its_processes() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let name = format!("pod-shared-{}", std::process::id());
    let change = |spec: &mut ContainerSpec| {
        spec.limits.pod.pids = Some(30);
        spec.pod_cgroup = Some(name.clone());
    };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 1000 & done; echo all; \
        until [ -e /tmp/go ]; do sleep 0.1; done";
    let first = Container::start(RunAs::Root, machine, script, change);
    assert!(first.started.is_ok(), "{:?}", first.started);
    until_true("the first has its processes", || first.log() == "all\n").await;
    let (_, text) = Container::start(RunAs::Root, machine, script, change).end();
    assert!(!text.contains("all\n"), "{text}");
    first.exec("touch /tmp/go");
    let (exit, _) = first.end();
    assert_eq!(exit.code, 0);
    // It goes with the last container.
    for controller in ["pids", "memory", "cpu", "freezer", ""] {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        let directory = root.join("allot").join(&name);
        assert!(!directory.exists(), "{}", directory.display());
    }
}

/// Where cgroups cannot be written, the kernel counts them for the user.
#[test]
fn processes_of_users_are_counted_without_cgroups() {
    let Some(machine) = machine(RunAs::Counted) else {
        return;
    };
    let script = "for i in $(seq 40); do sleep 100 & done; echo all";
    let run = |pids: i64| {
        let change = |spec: &mut ContainerSpec| spec.limits.pids = Some(pids);
        Container::start(RunAs::Counted, machine, script, change)
            .end()
            .1
    };
    assert!(!run(16).contains("all\n"));
    assert_eq!(run(200), "all\n");
}

/// The attack: programs in several containers fork until the agent's user has no process left, and the agent cannot start any.
#[tokio::test]
async fn containers_together_leave_processes_to_their_user() {
    let Some(machine) = machine(RunAs::FewProcesses).filter(|_| is_installed("python3")) else {
        return;
    };
    let bomb = "exec python3 -c '
import os, time
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    print(\"no limit\", flush=True)
except OSError:
    print(\"full\", flush=True)
time.sleep(1000)'";
    let mut bombs = Vec::new();
    for _ in 0..2 {
        let container = Container::start(RunAs::FewProcesses, machine, bomb, |_| {});
        assert!(container.started.is_ok(), "{:?}", container.started);
        until_true("the bomb is through", || !container.log().is_empty()).await;
        assert_eq!(container.log(), "full\n");
        bombs.push(container);
    }
    let others = program_of(RunAs::FewProcesses, Path::new("/bin/sh"))
        .args(["-c", "sleep 0 & sleep 0 & wait; echo room"])
        .output()
        .expect("a program");
    assert_eq!(String::from_utf8_lossy(&others.stdout), "room\n");
}

/// With one limit for each container, two of them had all processes of the machine.
#[test]
fn regression_containers_together_leave_processes_to_the_machine() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let change = |spec: &mut ContainerSpec| spec.limits.pids = Some(1000);
    Container::start(RunAs::Root, machine, "true", change).end();
    let files =
        ["/sys/fs/cgroup/allot", "/sys/fs/cgroup/pids/allot"].map(|it| format!("{it}/pids.max"));
    let found = files.iter().find_map(|file| fs::read_to_string(file).ok());
    let Some(together) = found else {
        eprintln!("skipped: processes are not counted");
        return;
    };
    let all = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    let [together, all] = [together, all].map(|text| text.trim().parse::<u64>().expect(&text));
    assert!(together <= all / 4 * 3, "{together} of {all}");
}

/// The attack: in the first version of cgroups, root of a container lifted its own limits in a user namespace. What it makes
/// there kept its cgroup, and the hooks of its devices from being run.
#[test]
fn limits_cannot_be_lifted_in_a_user_namespace() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let second = |line: &str| line.contains(" /sys/fs/cgroup cgroup2 ");
    if table
        .lines()
        .any(|line| second(line) && !line.contains("nsdelegate"))
    {
        eprintln!("skipped: cgroups of the second version without nsdelegate");
        return;
    }
    let lift = "unshare -UrmC sh -c 'for k in pids memory; do mkdir /tmp/$k; \
        mount -t cgroup -o $k none /tmp/$k || mount -t cgroup2 none /tmp/$k; mkdir /tmp/$k/below; \
        for f in pids.max memory.max; do echo max > /tmp/$k/$f; done; \
        echo -1 > /tmp/$k/memory.limit_in_bytes; done' 2>/dev/null;";
    let mut id = String::new();
    let mut run = |script: &str| {
        let script = format!("{lift} {script}");
        let change = |spec: &mut ContainerSpec| {
            spec.limits.pids = Some(20);
            spec.limits.memory = Some(32 << 20);
            spec.security.capabilities.push("CAP_SETFCAP".into());
            id.clone_from(&spec.id);
        };
        let ended = Container::start(RunAs::Root, machine, &script, change).end();
        check_no_cgroup(&id);
        ended
    };
    let (_, text) = run("for i in $(seq 40); do sleep 100 & done; echo all");
    assert!(!text.contains("all\n"), "{text}");
    // The first line is a heading.
    if fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1) {
        eprintln!("skipped: too much memory is swapped out");
        return;
    }
    let (exit, text) = run("x=$(head -c 90000000 /dev/zero | tr '\\0' x); echo all; exit 3");
    assert!(exit.oom_killed, "{exit:?} {text}");
}

/// In the PID namespace of the host, processes that fork as fast as they can were killed one by one, and never all.
#[test]
fn processes_that_fork_without_end_end_with_their_container() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    if !Path::new("/usr/bin/perl").exists() {
        eprintln!("skipped: no perl");
        return;
    }
    // Each child takes the place of its parent. Their number is bounded, for the sake of the machine.
    let bomb = "$SIG{CHLD} = 'IGNORE'; while (1) { my $p = fork; if (defined $p && $p) { exit if rand() < 0.5; } else { setpgrp; } }";
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8; do perl -e \"{}\" & done; exit 7",
        bomb.replace('$', "\\$")
    );
    let mut id = String::new();
    let change = |spec: &mut ContainerSpec| {
        spec.security.host_pid = true;
        spec.limits.pids = Some(48);
        id.clone_from(&spec.id);
    };
    let (exit, _) = Container::start(RunAs::Root, machine, &script, change).end();
    assert_eq!(exit.code, 7);
    check_no_cgroup(&id);
}

/// A cgroup can only be removed when none of its processes is left.
#[track_caller]
fn check_no_cgroup(id: &str) {
    for parent in [
        "/sys/fs/cgroup/allot",
        "/sys/fs/cgroup/memory/allot",
        "/sys/fs/cgroup/pids/allot",
    ] {
        let left = Path::new(parent).join(id);
        assert!(!left.exists(), "{}", left.display());
    }
}

#[test]
fn programs_see_their_limits_and_leave_no_cgroup() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; \
        cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max";
    let mut id = String::new();
    let container = Container::start(RunAs::Root, machine, script, |spec| {
        spec.limits.memory = Some(64 << 20);
        spec.limits.cpu_quota = Some(50_000);
        spec.limits.cpu_shares = Some(512);
        id.clone_from(&spec.id);
    });
    let (_, text) = container.end();
    assert_eq!(text, "67108864\n50000\n");
    check_no_cgroup(&id);
}

#[test]
fn the_root_directory_is_bounded() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    let script = "dd if=/dev/zero of=/tmp/f bs=1M count=8 2>&1 | grep -o 'No space left'";
    let change = |spec: &mut ContainerSpec| spec.limits.root = Some(4 << 20);
    let (_, text) = Container::start(RunAs::Root, machine, script, change).end();
    assert_eq!(text, "No space left\n");
}

/// A small file system, until the end of a test.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap_or(&self.0));
    }
}

/// It was reported as killed, and the log ended in the middle of a line.
#[test]
fn regression_a_log_that_fills_the_disk_does_not_hide_the_end() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    let mut disk = None;
    // As many pieces as a long line is split into.
    let script = "head -c 3276800 /dev/zero | tr '\\0' x; exit 7";
    let container = Container::start(RunAs::Root, machine, script, |spec| {
        let directory = spec
            .log
            .parent()
            .and_then(Path::parent)
            .expect("a directory");
        let flags = rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("tmpfs", directory, "tmpfs", flags, c"size=1m")
            .expect("a file system");
        disk = Some(Disk(directory.to_owned()));
    });
    let (exit, text) = container.end();
    assert_eq!(exit.code, 7);
    assert!(!text.is_empty());
    for line in text.lines() {
        assert_eq!(line.len(), 16 * 1024);
    }
    drop(disk);
}

/// A part of the second version's hierarchy in which no controller is switched on, as an agent may be given one.
#[test]
fn regression_a_hierarchy_without_controllers_limits_nothing() {
    if machine(RunAs::Root).is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = r#"
        cd "$1"
        mkdir mounted trial
        mount -t cgroup2 none mounted || exit 77
        part="mounted/allot-test-$$"
        mkdir -p "$part/below" || exit 77
        mount --bind "$part/below" /sys/fs/cgroup || exit 77
        "$2" probe "$1/trial"
        umount /sys/fs/cgroup
        find "$part" -depth -type d -exec rmdir {} \;
    "#;
    let mut command = program_of(RunAs::Root, Path::new("/usr/bin/unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
    let shim = env!("CARGO_BIN_EXE_allot-node-shim");
    let output = command.arg("sh").arg(directory.path()).arg(shim).output();
    let output = output.expect("a probe");
    if output.status.code() == Some(77) {
        eprintln!("skipped: the second version of cgroups cannot be mounted");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let found: Machine = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!(
            "{error}: {said} {}",
            String::from_utf8_lossy(&output.stderr)
        )
    });
    assert_eq!(found.isolation, Isolation::Namespaces, "{said}");
    assert!(!found.cgroups, "{said}");
}
