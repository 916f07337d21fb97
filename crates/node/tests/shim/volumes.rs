//! What containers see of volumes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use allot_node::shim::spec::{ContainerSpec, Mount};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::attacks::{mount, volume};
use super::harness::{Container, RunAs, check, machine};
use super::images::{canary, listing};

/// Mounts of the host, until the end of a test.
struct Mounted(Vec<PathBuf>);

impl Mounted {
    fn add(&mut self, path: PathBuf) {
        rustix::mount::mount("tmpfs", &path, "tmpfs", MountFlags::NODEV, c"size=64k").unwrap();
        self.0.push(path);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// A mount point of the host whose later mounts are seen elsewhere, with a directory `sub`.
fn shared(directory: &Path) -> Mounted {
    let mut mounted = Mounted(Vec::new());
    mounted.add(directory.to_owned());
    rustix::mount::mount_change(directory, MountPropagationFlags::SHARED).unwrap();
    fs::create_dir(directory.join("sub")).unwrap();
    mounted
}

#[tokio::test]
async fn later_mounts_of_the_host_are_seen_where_the_pod_wants_it() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    for (follow, expected) in [(true, "seen\n"), (false, "nothing\n")] {
        let directory = volume();
        let mut mounted = shared(directory.path());
        let script = "touch /v/up; timeout 100 sh -c 'until [ -e /v/go ]; do sleep 0.1; done'; \
            cat /v/sub/word 2>/dev/null || echo nothing";
        let change = |spec: &mut ContainerSpec| {
            spec.mounts = vec![Mount {
                follow,
                ..mount(directory.path(), "/v")
            }];
        };
        let container = Container::start(RunAs::Root, machine, script, change);
        let up = directory.path().join("up");
        allot_testing::wait::until_true("it is up", || up.exists()).await;
        mounted.add(directory.path().join("sub"));
        fs::write(directory.path().join("sub/word"), "seen\n").unwrap();
        fs::write(directory.path().join("go"), "").unwrap();
        assert_eq!(container.end().1, expected);
    }
}

#[test]
fn read_only_volumes_are_so_with_what_is_mounted_below() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    let directory = volume();
    let mut mounted = shared(directory.path());
    mounted.add(directory.path().join("sub"));
    for (shallow, expected) in [(false, "0\n"), (true, "1\n")] {
        let change = |spec: &mut ContainerSpec| {
            spec.mounts = vec![Mount {
                read_only: true,
                shallow,
                ..mount(directory.path(), "/v")
            }];
        };
        let script = "(touch /v/f) 2>/dev/null && echo written; (touch /v/sub/f) 2>/dev/null; ls /v/sub | wc -l";
        let (_, text) = Container::start(RunAs::Root, machine, script, change).end();
        assert_eq!(text, expected, "shallow: {shallow}");
    }
}

#[test]
fn working_directories_in_volumes_are_created() {
    let (volume, outside) = (volume(), canary());
    let before = listing(outside.path());
    symlink(outside.path(), volume.path().join("out")).unwrap();
    let with = |cwd: &str, read_only: bool| {
        let mounted = Mount {
            read_only,
            ..mount(volume.path(), "/v")
        };
        let cwd = cwd.to_owned();
        move |spec: &mut ContainerSpec| {
            spec.mounts = vec![mounted.clone()];
            spec.cwd = Some(cwd.clone());
        }
    };
    check("pwd", with("/v/a/b", false), "/v/a/b\n");
    assert!(volume.path().join("a/b").is_dir());
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        for (cwd, read_only) in [
            ("/v/new", true),
            ("/v/out/made", false),
            ("/v/out/../../x", false),
        ] {
            drop(Container::start(
                user,
                machine,
                "true",
                with(cwd, read_only),
            ));
        }
    }
    assert!(!volume.path().join("new").exists());
    assert_eq!(listing(outside.path()), before);
}
