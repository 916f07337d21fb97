//! Root directories from the layers of images, which may have been made by an attacker.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use allot_node::shim::spec::{ContainerSpec, Mount};

use super::harness::{Container, RunAs, check, is_installed, machine};
use super::programs;

/// A directory that every user can read.
pub fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Changes the owner of a layer to the user of containers without root: a layer belongs to the agent that has unpacked it.
fn chown_to_container_user(path: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            chown_to_container_user(&entry.unwrap().path());
        }
    }
}

/// A layer with a shell and a few programs.
fn shell_layer() -> PathBuf {
    static LAYER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let layer = LAYER.get_or_init(|| {
        let directory = open_directory();
        for file in programs::files(&["sh", "cat", "ls", "id", "pwd", "mkdir", "mknod"]) {
            let to = directory.path().join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, &to).unwrap();
        }
        chown_to_container_user(directory.path());
        directory
    });
    layer.path().to_owned()
}

/// A layer with these files.
pub fn layer(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = open_directory();
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    chown_to_container_user(directory.path());
    directory
}

/// Runs a script on layers, the topmost first, above the one with the programs.
pub fn on(layers: &[&Path]) -> impl Fn(&mut ContainerSpec) + use<> {
    layers
        .iter()
        .for_each(|layer| chown_to_container_user(layer));
    let mut lower: Vec<PathBuf> = layers.iter().map(|it| (*it).to_owned()).collect();
    lower.push(shell_layer());
    move |spec| spec.root.lower.clone_from(&lower)
}

#[test]
fn a_container_has_the_files_of_its_image_and_may_change_its_own_copy() {
    let top = layer(&[("etc/word", "from the image\n")]);
    let script = "cat /etc/word; test -e /usr/share/doc || echo nothing of the host; \
                  echo changed > /etc/word; cat /etc/word; test -d /proc/self && test -c /dev/null && echo whole";
    let expected = "from the image\nnothing of the host\nchanged\nwhole\n";
    check(script, on(&[top.path()]), expected);
    let left = fs::read_to_string(top.path().join("etc/word")).unwrap();
    assert_eq!(left, "from the image\n");
}

#[test]
fn many_layers_lie_over_each_other() {
    let layers: Vec<_> = (0..120)
        .map(|number| {
            let (own, text) = (format!("d/{number}"), format!("{number}\n"));
            layer(&[(own.as_str(), ""), ("d/top", text.as_str())])
        })
        .collect();
    let paths: Vec<&Path> = layers.iter().map(tempfile::TempDir::path).collect();
    check("cat /d/top; set -- /d/*; echo $#", on(&paths), "0\n121\n");
}

/// Without overlay mounts, a container has its own copy of the layers.
#[test]
fn a_copy_takes_the_place_of_layers() {
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let copy = layer(&[("etc/word", "from the image\n")]);
        for file in programs::files(&["sh", "cat"]) {
            let to = copy.path().join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, &to).unwrap();
        }
        chown_to_container_user(copy.path());
        let script = "cat /etc/word; echo changed > /etc/word; cat /etc/word; test -e /usr/share/doc || echo alone";
        let change = |spec: &mut ContainerSpec| spec.root.copy = Some(copy.path().to_owned());
        let (_, text) = Container::start(user, machine, script, change).end();
        assert_eq!(text, "from the image\nchanged\nalone\n", "{user:?}");
    }
}

#[test]
fn users_are_those_of_the_image() {
    let passwd = "root:x:0:0::/root:/bin/sh\napp:x:1234:0::/srv:/bin/sh\n";
    let top = layer(&[("etc/passwd", passwd), ("etc/group", "root:x:0:\n")]);
    let change = on(&[top.path()]);
    for (user, expected) in [("app", "1234 /srv\n"), ("77", "77 /\n")] {
        let change = |spec: &mut ContainerSpec| {
            change(spec);
            spec.security.user_name = Some(user.into());
        };
        check("echo $(id -u) $HOME", change, expected);
    }
}

#[test]
fn an_image_can_be_a_read_only_volume() {
    let (below, above) = (
        layer(&[("a", "below\n"), ("sub/x", "x\n")]),
        layer(&[("a", "above\n")]),
    );
    for several in [false, true] {
        let mut layers = vec![below.path().to_owned()];
        if several {
            layers.insert(0, above.path().to_owned());
        }
        let change = |spec: &mut ContainerSpec| {
            let volume = |target: &str, sub_path: Option<&str>| Mount {
                layers: layers.clone(),
                target: target.into(),
                sub_path: sub_path.map(PathBuf::from),
                read_only: true,
                options: vec!["noexec".into()],
                name: "volumeMount".into(),
                ..Mount::default()
            };
            spec.mounts = vec![volume("/mnt/v", None), volume("/mnt/w", Some("sub"))];
        };
        let script = "cat /mnt/v/a /mnt/v/sub/x /mnt/w/x; (echo no > /mnt/v/a) 2> /dev/null || echo read-only";
        let first = if several { "above" } else { "below" };
        check(script, change, &format!("{first}\nx\nx\nread-only\n"));
    }
}

/// A path on the host that no container may reach, whichever user runs it.
pub fn canary() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let passwd = "root:x:0:0::/root:\nevil:x:4242:0::/evil:/bin/sh\n";
    fs::write(directory.path().join("passwd"), passwd).unwrap();
    fs::write(directory.path().join("group"), "root:x:0:\n").unwrap();
    directory
}

/// Everything below a directory, by name.
pub fn listing(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Links of an image at the paths that the set-up uses lead nowhere else, whether the container starts or not.
#[test]
fn links_of_an_image_do_not_lead_its_set_up_to_the_host() {
    let (canary, volume) = (canary(), canary());
    let before = listing(canary.path());
    let outside = canary.path().to_owned();
    let up =
        PathBuf::from("../../../../../../../../../..").join(outside.strip_prefix("/").unwrap());
    for name in ["proc", "sys", "dev", "etc", "data", "run"] {
        for target in [&outside, &up, &PathBuf::from("/proc/1/root")] {
            let top = open_directory();
            symlink(target, top.path().join(name)).unwrap();
            let change = |spec: &mut ContainerSpec| {
                on(&[top.path()])(spec);
                let mount = |target: &str| Mount {
                    source: volume.path().to_owned(),
                    target: target.into(),
                    ..Mount::default()
                };
                spec.mounts = vec![mount("/data/sub"), mount("/etc/sub"), mount("/run/a/b")];
                let file = Mount {
                    source: volume.path().join("passwd"),
                    target: "/data/file".into(),
                    ..Mount::default()
                };
                spec.mounts.push(file);
                spec.cwd = Some("/data/work/deep".into());
            };
            for user in [RunAs::Root, RunAs::Nobody] {
                let Some(machine) = machine(user) else {
                    continue;
                };
                let script = format!("cat {}/passwd 2> /dev/null; echo end", outside.display());
                let container = Container::start(user, machine, &script, change);
                if container.started.is_ok() {
                    let (_, text) = container.end();
                    assert_eq!(text, "end\n", "{user:?}: {name} -> {}", target.display());
                }
                assert_eq!(
                    listing(canary.path()),
                    before,
                    "{user:?}: {name} -> {}",
                    target.display()
                );
            }
        }
    }
}

/// Names of users are not looked up on the host.
#[test]
fn links_of_an_image_do_not_lead_to_users_of_the_host() {
    let canary = canary();
    for link in ["etc", "etc/passwd"] {
        let top = open_directory();
        if link == "etc" {
            symlink(canary.path(), top.path().join("etc")).unwrap();
        } else {
            fs::create_dir(top.path().join("etc")).unwrap();
            symlink(canary.path().join("passwd"), top.path().join(link)).unwrap();
        }
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let change = |spec: &mut ContainerSpec| {
                on(&[top.path()])(spec);
                spec.security.user_name = Some("evil".into());
            };
            let container = Container::start(user, machine, "id -u", change);
            let reason = container.started.clone().unwrap_err();
            assert!(
                reason.contains("unable to find user evil"),
                "{user:?}: {reason}"
            );
        }
    }
}

/// A file that is none does not hold the helper up.
#[test]
fn pipes_in_place_of_files_are_not_read() {
    let top = open_directory();
    fs::create_dir(top.path().join("etc")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(top.path().join("etc/passwd"))
        .status();
    assert!(made.unwrap().success());
    check("id -u", on(&[top.path()]), "0\n");
}

/// The attack (as CVE-2019-14271): a variable `HOME` without a value had the first process of a container, and each further one, look
/// up the home directory by the C library. It loads what `nsswitch.conf` of the image names: code of the image ran before the filter of
/// system calls, with the privileges that installing it takes and with the descriptors of the helper.
#[test]
fn regression_no_library_of_the_image_is_loaded_before_its_program() {
    let top = layer(&[
        ("etc/nsswitch.conf", "passwd: evil\n"),
        ("etc/passwd", "root:x:0:0::/home/of/root:/bin/sh\n"),
        ("tmp/empty", ""),
        (
            "evil.c",
            "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) { open(\"/tmp/loaded\", O_CREAT, 0600); }\n",
        ),
    ]);
    let base = shell_layer();
    let libc = programs::files(&["sh"]);
    let libc = libc.iter().find(|it| it.ends_with("libc.so.6"));
    let (Some(directory), true) = (libc.and_then(|it| it.parent()), is_installed("cc")) else {
        eprintln!("skipped: no C compiler, or another C library");
        return;
    };
    let library = top.path().join(directory.strip_prefix("/").unwrap());
    fs::create_dir_all(&library).unwrap();
    let made = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library.join("libnss_evil.so.2"), top.path().join("evil.c")])
        .status();
    assert!(made.unwrap().success() && base.is_dir());
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let change = |spec: &mut ContainerSpec| {
            on(&[top.path()])(spec);
            spec.env.push("HOME=".into());
        };
        let script = "echo $HOME; ls /tmp; while test ! -e /tmp/end; do :; done; ls /tmp";
        let container = Container::start(user, machine, script, change);
        let home = container.exec("echo $HOME; : > /tmp/end");
        assert_eq!(home, "/home/of/root\n", "{user:?}");
        let (_, text) = container.end();
        assert_eq!(text, "/home/of/root\nempty\nempty\nend\n", "{user:?}");
    }
}

/// A working directory that is a descriptor of the helper's would be a directory of the host.
#[test]
fn descriptors_of_the_helper_are_no_working_directories() {
    let canary = canary();
    let path = canary.path().join("passwd");
    let path = path.strip_prefix("/").unwrap().display().to_string();
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        for number in 3..16 {
            for under in ["", "/..", "/../../.."] {
                let change = |spec: &mut ContainerSpec| {
                    on(&[])(spec);
                    spec.cwd = Some(format!("/proc/self/fd/{number}{under}"));
                };
                let script = format!(
                    "cat ../../../../../../../../../../{path} ./{path} 2> /dev/null; echo end"
                );
                let container = Container::start(user, machine, &script, change);
                if container.started.is_ok() {
                    let (_, text) = container.end();
                    assert_eq!(text, "end\n", "{user:?}: {number}{under}");
                }
            }
        }
    }
}

/// What a layer marks as a device is none.
#[test]
fn devices_in_layers_do_not_work() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let top = open_directory();
    let made = std::process::Command::new("mknod")
        .arg(top.path().join("null"))
        .args(["c", "1", "3"])
        .status();
    assert!(made.unwrap().success());
    let script = "(echo x > /null) 2> /dev/null && echo open || echo refused";
    check(script, on(&[top.path()]), "refused\n");
}

/// The layers of an image are those of all its containers on the node.
#[test]
fn sub_paths_of_an_image_are_not_created() {
    let layer = layer(&[("there/file", "content\n")]);
    let volume = |sub: &str| {
        let mount = Mount {
            layers: vec![layer.path().to_owned()],
            sub_path: Some(sub.into()),
            target: "/v".into(),
            read_only: true,
            ..Mount::default()
        };
        move |spec: &mut ContainerSpec| spec.mounts = vec![mount.clone()]
    };
    check("cat /v/file", volume("there"), "content\n");
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        for sub in ["missing", "there/below/it"] {
            let container = Container::start(user, machine, "true", volume(sub));
            let reason = container.started.as_ref().expect_err(sub);
            assert!(reason.contains("failed to prepare subPath"), "{reason}");
        }
    }
    assert_eq!(fs::read_dir(layer.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(layer.path().join("there")).unwrap().count(), 1);
}
