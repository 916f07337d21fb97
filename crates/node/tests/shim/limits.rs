//! Limits of the kernel, where cgroups can be written.

use allot_node::shim::spec::ContainerSpec;

use super::harness::{As, Container, Machine, machine};

fn with_cgroups() -> Option<Machine> {
    let machine = machine(As::Root).filter(|machine| machine.cgroups);
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
        As::Root,
        machine,
        &format!("exec sh -ec '{script}'"),
        change,
    )
    .end();
    assert!(!text.contains("50000000"), "{text}");
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); exit 3";
    let container = Container::start(As::Root, machine, script, change);
    let (killed, _) = container.end();
    assert_ne!(killed.code, 0);
    assert!(killed.oom_killed, "{killed:?} {exit:?}");
    let (fine, _) = Container::start(As::Root, machine, "exit 3", change).end();
    assert!(!fine.oom_killed);
}

#[test]
fn processes_are_counted() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done; echo all";
    let change = |spec: &mut ContainerSpec| spec.limits.pids = Some(6);
    let (_, text) = Container::start(As::Root, machine, script, change).end();
    assert!(!text.contains("all\n"), "{text}");
}

#[test]
fn programs_see_their_limits_and_leave_no_cgroup() {
    let Some(machine) = with_cgroups() else {
        return;
    };
    let script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; \
        cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max";
    let mut id = String::new();
    let container = Container::start(As::Root, machine, script, |spec| {
        spec.limits.memory = Some(64 << 20);
        spec.limits.cpu_quota = Some(50_000);
        spec.limits.cpu_shares = Some(512);
        id.clone_from(&spec.id);
    });
    let (_, text) = container.end();
    assert_eq!(text, "67108864\n50000\n");
    for parent in [
        "/sys/fs/cgroup/allot",
        "/sys/fs/cgroup/memory/allot",
        "/sys/fs/cgroup/pids/allot",
    ] {
        let left = std::path::Path::new(parent).join(&id);
        assert!(!left.exists(), "{}", left.display());
    }
}

#[test]
fn the_root_directory_is_bounded() {
    let Some(machine) = machine(As::Root) else {
        return;
    };
    let script = "dd if=/dev/zero of=/tmp/f bs=1M count=8 2>&1 | grep -o 'No space left'";
    let change = |spec: &mut ContainerSpec| spec.limits.root = Some(4 << 20);
    let (_, text) = Container::start(As::Root, machine, script, change).end();
    assert_eq!(text, "No space left\n");
}
