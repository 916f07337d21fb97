//! Programs that enter a container: what is on its way in shows nothing of the host, and has no more than the container's own.

use std::time::{Duration, Instant};

use allot_node::shim::spec::Seccomp;

use super::attacks::{mount, volume};
use super::harness::{Container, RunAs, is_installed, machine};

/// Looks at every other process for files of the host and for capabilities beyond its own.
const LOOK: &str = r#"
import os, sys
def held(p):
    for line in open(f"/proc/{p}/status"):
        if line.startswith("CapPrm"): return int(line.split()[1], 16)
own = held("self")
me = os.getpid()
print("looking")
while not os.path.exists("/tmp/enough"):
    for p in os.listdir("/proc"):
        if not p.isdigit() or int(p) in (1, me): continue
        try:
            for way in "root", "cwd":
                if os.path.exists(f"/proc/{p}/{way}TOKEN"): print("files of the host by", way)
        except OSError: pass
        try:
            more = held(p) & ~own
            if more: print(f"capabilities {more:x}")
        except OSError: pass
print("enough")
"#;

/// The attack: a container that may trace processes (`SYS_PTRACE`) runs a probe by exec, and looks at the process meanwhile. It read
/// the host's files through `/proc/PID/root`, and could take over the process with all of its capabilities.
#[test]
fn regression_a_program_that_enters_a_container_shows_nothing_of_the_host() {
    if !is_installed("python3") {
        return;
    }
    let secret = volume();
    let token = secret.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let program = LOOK.replace("TOKEN", &token.display().to_string());
    let script = format!("exec /usr/bin/python3 -u -c '{program}'");
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        for seccomp in [Seccomp::Unconfined, Seccomp::RuntimeDefault] {
            let container = Container::start(user, machine, &script, |spec| {
                spec.security.capabilities.push("CAP_SYS_PTRACE".into());
                spec.security.seccomp = seccomp.clone();
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            while !container.log().contains("looking") {
                assert!(Instant::now() < deadline, "{}", container.log());
                std::thread::yield_now();
            }
            for _ in 0..15 {
                assert_eq!(container.exec("echo there"), "there\n");
            }
            container.exec("touch /tmp/enough");
            let (_, log) = container.end();
            assert_eq!(log, "looking\nenough\n", "{user:?} {seccomp:?}");
        }
    }
}

/// The attack (CVE-2024-21626): a container exchanges its working directory for a link to a descriptor that a process on its way in has
/// of the host.
#[test]
fn a_further_program_does_not_start_in_a_directory_of_the_host() {
    let secret = volume();
    let token = secret.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let token = token.strip_prefix("/").unwrap().display().to_string();
    let look =
        format!("cat ../../../../../../../../../../{token} ./{token} 2> /dev/null; echo end");
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let shared = volume();
        let place = shared.path().join("work");
        std::fs::create_dir(&place).unwrap();
        let script = "while test ! -e /shared/enough; do sleep 0.1; done";
        let container = Container::start(user, machine, script, |spec| {
            spec.mounts.push(mount(shared.path(), "/shared"));
            spec.cwd = Some("/shared/work".into());
        });
        assert_eq!(container.exec("pwd"), "/shared/work\n");
        std::fs::remove_dir(&place).unwrap();
        for number in 3..32 {
            for under in ["", "/../../.."] {
                let target = format!("/proc/self/fd/{number}{under}");
                std::os::unix::fs::symlink(&target, &place).unwrap();
                let text = container.exec(&look);
                assert!(!text.contains("secret"), "{user:?}: {target}: {text}");
                std::fs::remove_file(&place).unwrap();
            }
        }
        std::fs::write(shared.path().join("enough"), "").unwrap();
        container.end();
    }
}
