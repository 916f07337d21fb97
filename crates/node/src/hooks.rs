//! Paths of hooks from drivers that know the directories of a kubelet.

use std::path::{Path, PathBuf};

use allot_cdi::Hook;

use crate::config::Config;

/// When hooks run whose programs are files of the container. Those of all others are files of the node.
pub(crate) const START: &str = "startContainer";

/// Seconds that a hook has. Hooks that hang hold the container up; without a word they get as long as a start may take.
pub(crate) fn timeout(hook: &Hook) -> i64 {
    hook.timeout.filter(|it| *it > 0).unwrap_or(20)
}

/// A hook with the paths that its files have on this node. A driver in a container knows its own directory by the kubelet's
/// name, and tells the program in it where its other files are: arguments below the directory of that driver are mapped.
/// Arguments of programs elsewhere belong to other software, and stay as they are.
pub(crate) fn own(config: &Config, mut hook: Hook) -> Hook {
    if hook.hook_name == START {
        return hook;
    }
    let own = |path: &Path| config.own_path(path).to_string_lossy().into_owned();
    let program = PathBuf::from(&hook.path);
    hook.path = own(&program);
    let Some(directory) = driver_directory(&program) else {
        return hook;
    };
    for argument in &mut hook.args {
        if Path::new(&*argument).starts_with(directory) {
            *argument = own(Path::new(&*argument));
        }
    }
    hook
}

/// The directory of the driver that a program is in: `…/plugins/NAME`.
fn driver_directory(program: &Path) -> Option<&Path> {
    let is_directory = |path: &&Path| path.parent().is_some_and(|it| it.ends_with("plugins"));
    program.parent()?.ancestors().find(is_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, arguments: &[&str], expected: &[&str]) {
        let config = Config::new("n", "/data/n");
        let hook = Hook {
            path: path.to_owned(),
            args: arguments.iter().map(|it| (*it).to_owned()).collect(),
            ..Hook::default()
        };
        let own = own(&config, hook);
        let all: Vec<&str> = std::iter::once(&own.path)
            .chain(&own.args)
            .map(String::as_str)
            .collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn regression_hooks_inside_of_a_container_are_programs_of_the_container() {
        let hook = Hook {
            hook_name: START.to_owned(),
            path: "/var/lib/kubelet/plugins/net.allot.dev/hook".to_owned(),
            args: vec!["/var/lib/kubelet/plugins/net.allot.dev/p.json".to_owned()],
            ..Hook::default()
        };
        assert_eq!(own(&Config::new("n", "/data/n"), hook.clone()), hook);
    }

    #[test]
    fn regression_arguments_of_other_hooks_stay_as_they_are() {
        let (plan, other) = (
            "/var/lib/kubelet/plugins/net.allot.dev/p.json",
            "/var/lib/kubelet/plugins/gpu/x",
        );
        check(
            "/var/lib/kubelet/plugins/net.allot.dev/hook",
            &[
                "hook",
                "--plan",
                plan,
                other,
                "/var/lib/kubelet/pods",
                "/etc/cdi/a.json",
            ],
            &[
                "/data/n/plugins/net.allot.dev/hook",
                "hook",
                "--plan",
                "/data/n/plugins/net.allot.dev/p.json",
                other,
                "/var/lib/kubelet/pods",
                "/etc/cdi/a.json",
            ],
        );
        check(
            "/usr/bin/nvidia-ctk",
            &["/usr/bin/nvidia-ctk", plan],
            &["/usr/bin/nvidia-ctk", "/usr/bin/nvidia-ctk", plan],
        );
        check(
            "/var/lib/kubelet/plugins/hook",
            &[plan],
            &["/data/n/plugins/hook", plan],
        );
    }
}
