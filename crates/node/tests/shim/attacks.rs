//! Ways out of a container.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use allot_node::shim::spec::{ContainerSpec, Mount};

use super::harness::{Container, RunAs, check, machine};

pub fn mount(source: &Path, target: &str) -> Mount {
    Mount {
        source: source.to_owned(),
        target: target.into(),
        name: "volumeMount \"v\" of container \"c\"".into(),
        ..Mount::default()
    }
}

/// A directory that every user can use.
pub fn volume() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

#[test]
fn nothing_of_the_host_is_visible_but_programs() {
    let secret = volume();
    fs::write(secret.path().join("token"), "secret").unwrap();
    let path = secret.path().join("token");
    let script = format!(
        "cat {path}; for d in /root /home /tmp /run/lock /var/lib /var/tmp /mnt /opt /srv; do ls -A $d; done 2>&1 | grep -v denied; \
         ls -A /; ls /etc/shadow /etc/ssh /etc/kubernetes /boot /proc/1/root/work; ls /usr/bin/env",
        path = path.display()
    );
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let (_, text) = Container::start(user, machine, &script, |_| {}).end();
        assert!(!text.contains("secret\n"), "{text}");
        assert!(text.contains("/usr/bin/env\n"), "{text}");
        for name in ["shadow", "ssh", "kubernetes", "boot"] {
            assert!(
                text.contains(&format!("{name}': No such file")),
                "{name}: {text}"
            );
        }
        let visible: Vec<&str> = text.lines().filter(|line| !line.contains(':')).collect();
        let known = [
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "libexec",
            "mnt",
            "nix",
            "opt",
            "proc",
            "root",
            "run",
            "sbin",
            "srv",
            "sys",
            "tmp",
            "usr",
            "var",
            "/usr/bin/env",
        ];
        assert!(
            visible.iter().all(|name| known.contains(name)),
            "{visible:?}"
        );
    }
}

#[test]
fn paths_of_the_set_up_lead_nowhere() {
    // Where the helper of older versions had the host, and where this one has its own things.
    let volume = volume();
    symlink("/", volume.path().join("link")).unwrap();
    fs::write(volume.path().join("file"), "").unwrap();
    for target in [
        "/.allot-host/x",
        "/.allot-host",
        "/oldroot/y",
        "/proc/1/root/z",
        "/../../w",
        "/mnt/link/v",
    ] {
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let script = "ls -d /.allot-host/etc /oldroot/etc /etc/shadow 2>/dev/null; true";
            let container = Container::start(user, machine, script, |spec| {
                spec.mounts = vec![
                    mount(volume.path(), "/mnt"),
                    mount(&volume.path().join("file"), target),
                ];
            });
            if container.started.is_ok() {
                let (_, text) = container.end();
                assert_eq!(text, "", "{target}");
            }
            for path in ["/.allot-host", "/oldroot", "/w", "/v", "/z"] {
                assert!(
                    !Path::new(path).exists(),
                    "{target} made {path} on the host"
                );
            }
        }
    }
}

#[test]
fn links_in_a_volume_do_not_lead_mounts_out_of_the_container() {
    let volume = volume();
    let host = super::attacks::volume();
    symlink(host.path(), volume.path().join("out")).unwrap();
    symlink("../../../../../..", volume.path().join("up")).unwrap();
    let file = volume.path().join("file");
    fs::write(&file, "").unwrap();
    // As a termination log, or a mount below a volume that the container has prepared.
    let inside = host.path().join("made");
    for target in [
        "/data/out/made".to_owned(),
        format!("/data/up{}", inside.display()),
        "/data/out".to_owned(),
    ] {
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let container = Container::start(user, machine, "true", |spec| {
                spec.mounts = vec![mount(volume.path(), "/data"), mount(&file, &target)];
            });
            drop(container);
            assert_eq!(
                fs::read_dir(host.path()).unwrap().count(),
                0,
                "{target} as {user:?}"
            );
        }
    }
}

#[test]
fn sub_paths_stay_inside_of_the_volume() {
    let volume = volume();
    fs::create_dir(volume.path().join("real")).unwrap();
    fs::write(volume.path().join("real").join("f"), "inside\n").unwrap();
    symlink("real", volume.path().join("good")).unwrap();
    for (name, to) in [
        ("abs", "/etc"),
        ("up", "../.."),
        ("proc", "/proc/self/root"),
        ("dangling", "/nowhere"),
    ] {
        symlink(to, volume.path().join(name)).unwrap();
    }
    let with = |sub: &str| {
        let mount = Mount {
            sub_path: Some(PathBuf::from(sub)),
            ..mount(volume.path(), "/v")
        };
        move |spec: &mut ContainerSpec| spec.mounts = vec![mount.clone()]
    };
    check("cat /v/f", with("real"), "inside\n");
    check("cat /v/f", with("good"), "inside\n");
    symlink(".", volume.path().join("same")).unwrap();
    check("[ -d /v ] && echo made", with("same/below/links"), "made\n");
    check("[ -w /v ] && echo writable", with("new/deep"), "writable\n");
    for sub in [
        "abs",
        "up",
        "proc",
        "dangling",
        "abs/new",
        "up/x",
        "real/../../..",
    ] {
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let container = Container::start(user, machine, "ls /v", with(sub));
            let reason = container.started.as_ref().expect_err(sub);
            let text = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
            assert!(reason.contains(text), "{sub}: {reason}");
        }
    }
}

#[test]
fn a_directory_that_is_exchanged_with_a_link_meanwhile_leads_nowhere_else() {
    let volume = volume();
    let (directory, link) = (volume.path().join("d"), volume.path().join("l"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("marker"), "").unwrap();
    symlink("/etc", &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &directory, cwd, &link, exchange).unwrap();
            }
        });
        if let Some(machine) = machine(RunAs::Root) {
            for _ in 0..20 {
                let container = Container::start(RunAs::Root, machine, "ls /v", |spec| {
                    spec.mounts = vec![Mount {
                        sub_path: Some("d".into()),
                        ..mount(volume.path(), "/v")
                    }];
                });
                if container.started.is_ok() {
                    assert_eq!(container.end().1, "marker\n");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn mounts_cannot_be_taken_away_or_changed() {
    let script = "for m in /sys /proc/sys /usr /etc /proc/kcore /dev; do umount $m 2>/dev/null && echo umount $m; \
        mount -o remount,bind,rw $m 2>/dev/null && echo remount $m; done; \
        mount -t tmpfs x /mnt 2>/dev/null && echo mount; mount --bind /usr /mnt 2>/dev/null && echo bind; \
        chroot / true 2>/dev/null && echo chroot; true";
    check(script, |_| {}, "");
}

#[test]
fn the_kernel_of_the_host_cannot_be_changed() {
    let script = "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/drop_caches /sys/kernel/mm/ksm/run; do \
        ( : > $f ) 2>/dev/null && echo $f; done; \
        for d in $(find /sys/fs/cgroup -maxdepth 2 -type d); do mkdir $d/x 2>/dev/null && echo $d; done; \
        find /sys -maxdepth 3 -type f -writable 2>/dev/null | head -1 | while read f; do ( : > $f ) 2>/dev/null && echo $f; done; \
        head -c1 /proc/kcore 2>/dev/null | wc -c; true";
    check(script, |_| {}, "0\n");
}

#[test]
fn devices_that_were_not_given_cannot_be_opened() {
    let script = "mknod /tmp/n c 1 11 2>/dev/null && echo mknod; mknod /dev/n b 254 0 2>/dev/null && echo mknod; \
        ls /dev | sort | tr '\\n' ' '; for f in /dev/kvm /dev/fuse /dev/loop-control /dev/mem; do [ -e $f ] && echo $f; done; \
        echo x > /dev/null && head -c 4 /dev/zero | wc -c";
    let devices =
        "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero 4\n";
    check(script, |_| {}, devices);
}

#[test]
fn nodes_of_the_host_do_not_work_through_a_volume() {
    let script = "for f in kmsg kvm fuse loop-control mem vda; do [ -e /host/$f ] && ( : < /host/$f ) 2>/dev/null && echo $f; done; true";
    let change = |spec: &mut ContainerSpec| {
        let options = vec!["rnodev".to_owned()];
        spec.mounts = vec![Mount {
            options,
            ..mount(Path::new("/dev"), "/host")
        }];
    };
    check(script, change, "");
}

#[test]
fn the_first_process_has_nothing_of_the_helper() {
    let script = "ls /proc/1/root/.allot-host /proc/1/root/work 2>/dev/null; ( tr '\\0' '\\n' < /proc/1/environ ) 2>/dev/null; \
        for f in /proc/1/fd/*; do case ${f##*/} in 0|1|2|'*') ;; *) readlink $f;; esac; done; \
        ( : >> /proc/1/exe ) 2>/dev/null && echo exe; kill -9 1 2>/dev/null; echo alive";
    check(script, |_| {}, "alive\n");
}

#[test]
fn processes_of_the_host_are_not_there() {
    check(
        "ls /proc | grep -c '^[0-9]' | sed 's/^[1-9]$/few/'",
        |_| {},
        "few\n",
    );
    check(
        "hostname; hostname other 2>/dev/null; hostname",
        |_| {},
        "inside\ninside\n",
    );
}

#[tokio::test]
async fn the_end_of_the_helper_is_the_end_of_the_container() {
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let script = "sleep 7654 & (setsid sleep 7654 &) ; echo up; sleep 7654";
        let container = Container::start(user, machine, script, |_| {});
        let state = container.started.clone().expect("started");
        allot_testing::wait::until_true(&format!("{user:?}: it is up"), || {
            !container.log().is_empty()
        })
        .await;
        let init = rustix::process::Pid::from_raw(state.pid).unwrap();
        let over = rustix::process::pidfd_open(init, rustix::process::PidfdFlags::empty()).unwrap();
        drop(container);
        let mut watched = [rustix::event::PollFd::new(
            &over,
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::event::Timespec {
            tv_sec: 120,
            tv_nsec: 0,
        };
        let ended = rustix::event::poll(&mut watched, Some(&patience)).unwrap();
        assert_eq!(ended, 1, "{user:?}: the container goes on");
    }
}

/// A process that stays behind in the PID namespace of the host, and writes without end.
#[test]
fn what_a_program_leaves_behind_does_not_keep_its_container() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    let script = "setsid yes & echo up; exit 7";
    let change = |spec: &mut ContainerSpec| spec.security.host_pid = true;
    let (exit, _) = Container::start(RunAs::Root, machine, script, change).end();
    assert_eq!(exit.code, 7);
}

/// Without cgroups nothing but their parents tells which processes of the host's namespace are a container's.
#[test]
fn what_a_program_leaves_behind_ends_without_cgroups() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    // What is put in their place there is meant for cgroups that cannot be written.
    if machine.cgroups && Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        eprintln!("skipped: cgroups of the second version");
        return;
    }
    // No other process has this number in its arguments.
    let mark = format!("1000{}", std::process::id());
    let script = format!("(setsid sleep {mark} &); setsid sh -c 'sleep {mark}; true' & exit 7");
    let change = |spec: &mut ContainerSpec| {
        spec.security.host_pid = true;
        spec.cgroups = false;
    };
    let (exit, _) = Container::start(RunAs::Root, machine, &script, change).end();
    assert_eq!(exit.code, 7);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let left = processes.filter(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|argument| argument == mark.as_bytes())
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn nothing_takes_the_place_of_proc() {
    let volume = volume();
    fs::write(volume.path().join("file"), "own\n").unwrap();
    for target in [
        "/proc",
        "/proc/",
        "/proc/self/attr",
        "/proc/sys",
        "/./proc/1",
    ] {
        for user in [RunAs::Root, RunAs::Nobody] {
            let Some(machine) = machine(user) else {
                continue;
            };
            let change =
                |spec: &mut ContainerSpec| spec.mounts = vec![mount(volume.path(), target)];
            let container = Container::start(user, machine, "true", change);
            let reason = container.started.as_ref().expect_err(target);
            assert!(
                reason.contains("cannot be mounted on"),
                "{target}: {reason}"
            );
        }
    }
    let file = volume.path().join("file");
    check(
        "cat /proc/uptime",
        |spec| spec.mounts = vec![mount(&file, "/proc/uptime")],
        "own\n",
    );
}
