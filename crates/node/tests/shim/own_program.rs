//! What a container can do to the program of its helper, of which its first process is a fork (as CVE-2019-5736).

use super::harness::check;

/// The attack: a container of the agent's user, or one that may trace processes (`SYS_PTRACE`), reaches the program of the helper as
/// `/proc/1/exe`. The mode of the file on the host was changed, also to one that runs with root's privileges; its content
/// was safe only as long as the kernel refuses to write to programs that run.
#[test]
fn regression_the_program_of_the_helper_cannot_be_changed() {
    let script = "for attack in 'chmod 4755' 'chmod 0' 'chown 0:0' 'touch -c'; do \
        $attack /proc/1/exe 2>&1; done | sed 's/.*: //'; ( : > /proc/1/exe ) 2>&1 | sed 's/.*: //'";
    let refused = "Read-only file system\n".repeat(5);
    check(
        script,
        |spec| spec.security.capabilities.push("CAP_SYS_PTRACE".into()),
        &refused,
    );
}
