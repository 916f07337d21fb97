//! The kernel's keyrings.

use allot_testing::wait::{until, until_true};

use super::harness::{Container, RunAs, is_installed, machine};

/// A Python program with the C library as `c`.
fn python(program: &str) -> String {
    format!("python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); {program}'")
}

/// Prints the number of the session's keyring (KEYCTL_GET_KEYRING_ID of KEY_SPEC_SESSION_KEYRING).
fn ask() -> String {
    python(&format!("print(c.syscall({}, 0, -3, 0))", libc::SYS_keyctl))
}

/// The attack: containers had the keyring of the session in which the agent was started, and read the keys in it.
#[test]
fn keys_of_the_hosts_session_are_not_there() {
    if !is_installed("python3") {
        return;
    }
    let ask = ask();
    let output = std::process::Command::new("sh")
        .args(["-c", &ask])
        .output()
        .unwrap();
    let hosts = String::from_utf8(output.stdout).unwrap();
    if hosts.trim().parse::<i32>().is_ok_and(|number| number <= 0) {
        eprintln!("skipped: no keyrings");
        return;
    }
    // It ends when the further program is through.
    let script = format!("{ask}; until [ -e /tmp/end ]; do sleep 0.1; done");
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let container = Container::start(user, machine, &script, |_| {});
        let further = container.exec(&format!("{ask}; touch /tmp/end"));
        let (_, first) = container.end();
        for own in [first, further] {
            assert!(own.trim().parse::<i32>().is_ok(), "{user:?}: {own}");
            assert_ne!(own.trim(), hosts.trim(), "{user:?}");
        }
    }
}

/// Gives this thread, and what it starts, a session keyring.
fn join_session() -> bool {
    let name = std::ptr::null::<libc::c_char>();
    // SAFETY: KEYCTL_JOIN_SESSION_KEYRING takes a null pointer for a new keyring, and touches no memory.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, 1, name) };
    joined > 0
}

/// The attack: a container without a seccomp profile takes all keys that the agent's user may have, and no other container
/// starts, or it starts with the keyring of the agent's session.
#[tokio::test]
async fn a_container_that_takes_all_keys_keeps_no_other_from_starting() {
    if !is_installed("python3") {
        return;
    }
    let Some(machine) = machine(RunAs::UnsharedUser) else {
        return;
    };
    // A process without one gets one in excess of the quota.
    if !join_session() {
        eprintln!("skipped: no keyrings");
        return;
    }
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/keys/{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    // So that the number of keys is what is used up, and not the number of bytes of their content.
    let (Some(keys @ ..=5000), Some(bytes)) = (limit("maxkeys"), limit("maxbytes")) else {
        eprintln!("skipped: too many keys are permitted");
        return;
    };
    if keys * 16 > bytes {
        eprintln!("skipped: {bytes} bytes for {keys} keys");
        return;
    }
    let add = |name: &str| {
        let call = libc::SYS_add_key;
        format!("c.syscall({call}, b\"user\", {name}, b\"x\", 1, -3)")
    };
    // It ends when the others are through.
    let fill = python(&format!(
        "any({} < 0 for n in range(10000)); print(ctypes.get_errno())",
        add("str(n).encode()")
    ));
    let script = format!("{fill}; until [ -e /tmp/end ]; do sleep 0.1; done");
    let greedy = until("keys of earlier containers are gone", || async {
        let container = Container::start(RunAs::UnsharedUser, machine, &script, |_| {});
        // A program that is there before has a key, which is free again when it ends.
        until_true("all keys are taken", || !container.log().is_empty()).await;
        match container.log().trim() == libc::EPERM.to_string() {
            true => Err("it was refused keyrings itself"),
            false => Ok(container),
        }
    })
    .await;
    let look = format!(
        "{}; {}",
        ask(),
        python(&format!("print({})", add("b\"k\"")))
    );
    // A further program, an ordinary container and a privileged one.
    let further = greedy.exec(&look);
    let run = |privileged: bool| {
        let change = |spec: &mut allot_node::shim::spec::ContainerSpec| {
            spec.security.privileged = privileged;
        };
        Container::start(RunAs::UnsharedUser, machine, &look, change)
            .end()
            .1
    };
    let others = [further, run(false), run(true)];
    greedy.exec("touch /tmp/end");
    let (_, text) = greedy.end();
    assert_eq!(text.trim(), libc::EDQUOT.to_string());
    for other in others {
        assert_eq!(other, "-1\n-1\n");
    }
}
