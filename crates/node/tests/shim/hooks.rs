//! Hooks that drivers add to containers.

use allot_cdi::Hook;
use allot_node::shim::spec::{ContainerSpec, Seccomp};

use super::harness::{Container, RunAs, check, machine};

/// A hook that runs a script, outside of the container as those of network drivers do.
fn hook(script: &str) -> Hook {
    at("createRuntime", script)
}

fn at(point: &str, script: &str) -> Hook {
    Hook {
        hook_name: point.to_owned(),
        path: "/bin/sh".to_owned(),
        args: ["sh", "-c", script].map(str::to_owned).into(),
        ..Hook::default()
    }
}

/// The event of the pod had the exit code of the hook, and the reason was in a file of the agent.
#[test]
fn regression_a_hook_that_fails_says_why() {
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let refused = |script: &str| {
            let change = |spec: &mut ContainerSpec| spec.hooks = vec![hook(script)];
            let container = Container::start(user, machine, "true", change);
            container.started.as_ref().expect_err("it fails").clone()
        };
        let reason = refused("echo the switch >&2; echo has no port >&2; exit 3");
        let said = reason.ends_with(": the switch; has no port");
        assert!(said && reason.contains("code: 3"), "{user:?}: {reason}");
        let reason = refused("exit 3");
        assert!(reason.contains("code: 3"), "{user:?}: {reason}");
        // The attack: more than fits into anything.
        let flood = "i=0; while [ $i -lt 2000 ]; do printf '\\033[2J%0100d' $i >&2; i=$((i+1)); done; echo last >&2; exit 1";
        let reason = refused(flood);
        assert!(
            reason.ends_with("last") && reason.len() < 1024,
            "{user:?}: {reason}"
        );
        assert!(
            !reason.contains(|c: char| c.is_control()),
            "{user:?}: {reason}"
        );
    }
}

/// What the hooks of GPU drivers do: they find the files of the container by the state that they are given, with all of its
/// mounts, before its program has them.
#[test]
fn a_hook_in_the_namespaces_of_a_container_changes_its_files() {
    let script = "set -e; state=$(cat); bundle=${state#*'\"bundle\":\"'}; bundle=${bundle%%'\"'*}
        root=$(cat \"$bundle/config.json\"); root=${root#*'\"root\":{'}; root=${root#*'\"path\":\"'}; root=${root%%'\"'*}
        test -c \"$root/dev/null\"; ln -s null \"$root/dev/linked\"";
    let hooks = |spec: &mut ContainerSpec| spec.hooks = vec![at("createContainer", script)];
    check("readlink /dev/linked", hooks, "null\n");
}

/// The attack: the image has the program that a hook names. It had the privileges that installing the filter of system calls
/// takes, and no filter.
#[test]
fn regression_a_hook_of_the_image_is_confined_like_its_program() {
    let shown =
        "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp|Uid|Gid):' /proc/self/status";
    let of_the_node = Seccomp::Profile(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#.to_owned());
    for seccomp in [Seccomp::RuntimeDefault, of_the_node, Seccomp::Unconfined] {
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let container = Container::start(user, machine, shown, |spec| {
                spec.security.seccomp = seccomp.clone();
                spec.hooks = vec![at("startContainer", shown)];
            });
            let (exit, text) = container.end();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((exit.code, lines.len()), (0, 18), "{user:?}: {text}");
            assert_eq!(lines[..9], lines[9..], "{user:?}");
        }
    }
}

#[test]
fn a_hook_inside_of_a_container_has_its_variables_and_precedes_its_program() {
    // Lines of the two streams are in no order.
    let with = |env: &[&str], scripts: &[&str]| {
        let hooks = scripts.iter().map(|script| Hook {
            env: env.iter().map(|it| (*it).to_owned()).collect(),
            ..at("startContainer", &format!("{script} >> /dev/shm/said"))
        });
        let hooks: Vec<Hook> = hooks.collect();
        move |spec: &mut ContainerSpec| {
            spec.env.push("GREETING=hello".to_owned());
            spec.hooks.clone_from(&hooks);
        }
    };
    let told =
        "read -r state; case $state in *'\"status\":\"created\"'*) echo $GREETING $PATH;; esac";
    check(
        "cat /dev/shm/said",
        with(&[], &[told, "echo second"]),
        "hello /usr/sbin:/usr/bin:/sbin:/bin\nsecond\n",
    );
    let own = with(&["GREETING=own"], &["echo $GREETING"]);
    check("cat /dev/shm/said", own, "own\n");
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let refused = |hook: Hook| {
            let change = |spec: &mut ContainerSpec| spec.hooks = vec![hook];
            let container = Container::start(user, machine, "echo started", change);
            assert!(!container.log().contains("started"), "{user:?}");
            container.started.as_ref().expect_err("it fails").clone()
        };
        let reason = refused(at("startContainer", "exit 3"));
        let said = reason.ends_with("startContainer hook \"/bin/sh\": exit code 3");
        assert!(said, "{user:?}: {reason}");
        let hanging = Hook {
            timeout: Some(1),
            ..at("startContainer", "exec sleep 1000")
        };
        let reason = refused(hanging);
        assert!(
            reason.ends_with("did not end within 1s"),
            "{user:?}: {reason}"
        );
        let absent = Hook {
            path: "/no/such/program".to_owned(),
            ..at("startContainer", "")
        };
        assert!(refused(absent).ends_with("exit code 127"), "{user:?}");
    }
}
