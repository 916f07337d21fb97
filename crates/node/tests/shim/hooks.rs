//! Hooks that drivers add to containers.

use allot_cdi::Hook;
use allot_node::shim::spec::ContainerSpec;

use super::harness::{As, Container, machine};

/// A hook that runs a script, outside of the container as those of network drivers do.
fn hook(script: &str) -> Hook {
    Hook {
        hook_name: "createRuntime".to_owned(),
        path: "/bin/sh".to_owned(),
        args: ["sh", "-c", script].map(str::to_owned).into(),
        ..Hook::default()
    }
}

/// The event of the pod had the exit code of the hook, and the reason was in a file of the agent.
#[test]
fn regression_a_hook_that_fails_says_why() {
    for user in [As::Root, As::Nobody] {
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
