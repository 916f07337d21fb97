//! Programs and attacks under the default profile for system calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use allot_node::shim::spec::{ContainerSpec, Mount, Seccomp};

use super::attacks::{mount, volume};
use super::harness::{Container, RunAs, check, is_installed, machine};

fn default_profile(spec: &mut ContainerSpec) {
    spec.security.seccomp = Seccomp::RuntimeDefault;
}

#[test]
fn shells_run_under_the_default_seccomp_profile() {
    let script = "seq 3 | while read n; do (echo $n | tr 123 abc) & wait; done; \
        mkdir -p /tmp/a/b && ln -s b /tmp/a/c && mv /tmp/a/c /tmp/a/d && ls /tmp/a; \
        (timeout 60 sh -c 'kill -TERM $$'; echo $?) 2>/dev/null; mkfifo /tmp/p; (echo through > /tmp/p &); cat /tmp/p; nice true && echo nice";
    check(
        script,
        default_profile,
        "a\nb\nc\nb\nd\n143\nthrough\nnice\n",
    );
    // Permitted with the capability alone.
    let chroot = |spec: &mut ContainerSpec| {
        default_profile(spec);
        spec.security.capabilities.push("CAP_SYS_CHROOT".into());
    };
    check("chroot / echo changed", chroot, "changed\n");
}

#[test]
fn threads_sockets_and_children_of_python_run() {
    if !is_installed("python3") {
        return;
    }
    let script = r#"
import mmap, multiprocessing, os, select, socket, subprocess, tempfile, threading
total = []
threads = [threading.Thread(target=lambda n=n: total.append(n)) for n in range(20)]
[it.start() for it in threads]
[it.join() for it in threads]
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
poll = select.epoll()
poll.register(client, select.EPOLLIN)
peer.sendall(b"word")
assert poll.poll(60)
a, b = socket.socketpair()
shared = mmap.mmap(-1, 4096)
with tempfile.TemporaryFile() as file:
    file.write(b"x")
out = subprocess.run(["echo", "child"], capture_output=True, text=True).stdout
with multiprocessing.get_context("fork").Pool(2) as pool:
    squares = pool.map(abs, [-1, -2])
print(sum(total), client.recv(4).decode(), out.strip(), squares, os.getpriority(os.PRIO_PROCESS, 0))
"#;
    let change = |spec: &mut ContainerSpec| {
        default_profile(spec);
        spec.args = ["python3", "-c", script].map(str::to_owned).into();
    };
    check("", change, "190 word child [1, 2] 0\n");
}

/// The runtime of Go makes its own system calls, and has no C library that falls back.
#[test]
fn programs_of_go_run() {
    let directory = volume();
    let source = r#"package main

import (
	"fmt"
	"net"
	"os/exec"
	"sync"
)

func main() {
	var wait sync.WaitGroup
	var lock sync.Mutex
	sum := 0
	for n := 0; n < 100; n++ {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			lock.Lock()
			sum += n
			lock.Unlock()
		}(n)
	}
	wait.Wait()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go net.Dial("tcp", listener.Addr().String())
	if _, err := listener.Accept(); err != nil {
		panic(err)
	}
	out, err := exec.Command("echo", "child").Output()
	fmt.Print(sum, " ", string(out), err, "\n")
}
"#;
    fs::write(directory.path().join("main.go"), source).unwrap();
    let built = Command::new("go")
        .args(["build", "-o", "program", "main.go"])
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .current_dir(directory.path())
        .output();
    match built {
        Ok(built) if built.status.success() => {}
        Ok(built) => {
            let text = String::from_utf8_lossy(&built.stderr).into_owned();
            eprintln!("skipped: go does not build here: {text}");
            return;
        }
        Err(error) => {
            eprintln!("skipped: no go: {error}");
            return;
        }
    }
    let program = directory.path().join("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let change = |spec: &mut ContainerSpec| {
        default_profile(spec);
        spec.mounts = vec![mount(&program, "/program")];
        spec.args = vec!["/program".into()];
    };
    check("", change, "4950 child\n<nil>\n");
}

/// Calls by their numbers, as programs make them that go around the C library.
#[test]
fn attacks_by_system_calls_are_refused() {
    if !is_installed("perl") {
        return;
    }
    let (refused, missing) = (libc::EPERM, libc::ENOSYS);
    let user = i64::from(libc::CLONE_NEWUSER);
    let all: &[(&str, i64, &[i64], i32)] = &[
        ("keyctl", libc::SYS_keyctl, &[0, -3, 1], refused),
        ("add_key", libc::SYS_add_key, &[0, 0, 0, 0, -3], refused),
        ("request_key", libc::SYS_request_key, &[0, 0, 0, 0], refused),
        ("unshare", libc::SYS_unshare, &[user], refused),
        ("unshare time", libc::SYS_unshare, &[0x80], refused),
        ("clone", libc::SYS_clone, &[user, 0, 0, 0, 0], refused),
        (
            "clone, upper bits",
            libc::SYS_clone,
            &[user | 1 << 40, 0, 0, 0, 0],
            refused,
        ),
        ("clone3", libc::SYS_clone3, &[0, 0], missing),
        ("mount", libc::SYS_mount, &[0, 0, 0, 0, 0], refused),
        ("fsopen", libc::SYS_fsopen, &[0, 0], refused),
        ("open_tree", libc::SYS_open_tree, &[-1, 0, 1], refused),
        ("bpf", libc::SYS_bpf, &[0, 0, 0], refused),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            &[0, 0, 0, 0, 0],
            refused,
        ),
        ("userfaultfd", libc::SYS_userfaultfd, &[1], refused),
        ("io_uring_setup", libc::SYS_io_uring_setup, &[1, 0], refused),
        (
            "open_by_handle_at",
            libc::SYS_open_by_handle_at,
            &[-1, 0, 0],
            refused,
        ),
        ("personality", libc::SYS_personality, &[0x4_0000], refused),
        ("kexec_load", libc::SYS_kexec_load, &[0, 0, 0, 0], refused),
        ("newer", 5000, &[], missing),
        (
            "getpid of x32",
            0x4000_0000 | libc::SYS_getpid,
            &[],
            missing,
        ),
        (
            "mount of x32",
            0x4000_0000 | libc::SYS_mount,
            &[0, 0, 0, 0, 0],
            missing,
        ),
        // These are permitted; the last one names no process.
        ("personality", libc::SYS_personality, &[0xffff_ffff], 0),
        (
            "ptrace",
            libc::SYS_ptrace,
            &[libc::PTRACE_CONT.into(), 0x7fff_ffff, 0, 0],
            libc::ESRCH,
        ),
    ];
    let (mut calls, mut expected) = (String::new(), String::new());
    for (name, number, args, error) in all {
        let args: String = args.iter().map(|arg| format!(", {arg}")).collect();
        calls.push_str(&format!(
            "$! = 0; $r = syscall({number}{args}); print qq({name}: ), $r < 0 ? $!+0 : 0, qq(\\n);"
        ));
        expected.push_str(&format!("{name}: {error}\n"));
    }
    let change = |spec: &mut ContainerSpec| {
        default_profile(spec);
        spec.args = ["perl", "-e", &calls].map(str::to_owned).into();
    };
    check("", change, &expected);
}

/// The second of two filters could not be installed when the first refused the call that installs them.
#[test]
fn regression_profiles_may_refuse_to_install_filters() {
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["prctl", "seccomp"], "action": "SCMP_ACT_ERRNO"},
        {"names": ["ptrace"], "action": "SCMP_ACT_KILL"}]}"#;
    let change = |spec: &mut ContainerSpec| {
        spec.security.seccomp = Seccomp::Profile(profile.into());
    };
    check("echo started", change, "started\n");
}

/// A program of 64-bit code that calls the kernel as a 32-bit one, and ends with 0 if that is possible.
#[cfg(target_arch = "x86_64")]
fn by_the_entry_of_32_bits() -> Vec<u8> {
    // getpid by number 20; exit_group(0).
    const CODE: [u8; 16] = [
        0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05,
    ];
    const BASE: u64 = 0x40_0000;
    /// Of the two headers.
    const START: u64 = 64 + 56;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, all: &[u16]| {
        file.extend(all.iter().flat_map(|it| it.to_le_bytes()));
    };
    // An executable for x86-64, of version 1.
    half(&mut file, &[2, 62, 1, 0]);
    for word in [BASE + START, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    half(&mut file, &[0, 0, 64, 56, 1, 64, 0, 0]);
    // One segment, of the whole file, readable and executable.
    half(&mut file, &[1, 0, 5, 0]);
    let size = START + CODE.len() as u64;
    for word in [0, BASE, BASE, size, size, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.extend(CODE);
    file
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_entry_for_32_bits_is_the_end_of_a_program() {
    let directory = volume();
    let program = directory.path().join("program");
    fs::write(&program, by_the_entry_of_32_bits()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let run = |seccomp: Seccomp| {
            let change = |spec: &mut ContainerSpec| {
                spec.mounts = vec![Mount {
                    read_only: true,
                    ..mount(&program, "/program")
                }];
                spec.args = vec!["/program".into()];
                spec.security.seccomp = seccomp;
            };
            Container::start(user, machine, "", change).end().0.code
        };
        let without = run(Seccomp::Unconfined);
        let with = run(Seccomp::RuntimeDefault);
        // Some kernels do not have it at all.
        let fault = 128 + libc::SIGSEGV;
        let ends = [(0, 128 + libc::SIGSYS), (fault, fault)];
        assert!(
            ends.contains(&(without, with)),
            "{user:?}: {without} {with}"
        );
    }
}
