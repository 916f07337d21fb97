//! The container's own directories: `/dev`, `/proc` and `/sys`. Device nodes and links are created below `/dev` by path, so that
//! nothing that another process controls may be in the way.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use allot_node::shim::spec::ContainerSpec;

use super::attacks::{mount, volume};
use super::harness::{Container, RunAs, check, machine};
use super::images::{canary, listing, on, open_directory};

/// Why a container does not start, for every kind of user that can have containers here.
#[track_caller]
fn check_refused(users: &[RunAs], change: impl Fn(&mut ContainerSpec), message: &str) {
    for user in users {
        let Some(machine) = machine(*user) else {
            continue;
        };
        let container = Container::start(*user, machine, "true", &change);
        let reason = container.started.as_ref().expect_err("it is refused");
        assert!(reason.contains(message), "{user:?}: {reason}");
    }
}

const BOTH: [RunAs; 2] = [RunAs::Root, RunAs::Nobody];

/// The attack: links, and as root device nodes, on the host; `ptmx` there was removed.
#[test]
fn an_image_whose_dev_is_a_link_is_refused() {
    let canary = canary();
    fs::write(canary.path().join("ptmx"), "mine").unwrap();
    let before = listing(canary.path());
    let top = open_directory();
    symlink(canary.path(), top.path().join("dev")).unwrap();
    // What the link leads to exists in the image, too.
    let inside = top.path().join(canary.path().strip_prefix("/").unwrap());
    fs::create_dir_all(inside).unwrap();
    check_refused(
        &BOTH,
        on(&[top.path()]),
        "/dev of the image is not a directory",
    );
    assert_eq!(listing(canary.path()), before);
    let left = fs::read_to_string(canary.path().join("ptmx")).unwrap();
    assert_eq!(left, "mine");
}

#[test]
fn volumes_do_not_take_the_place_of_dev() {
    let volume = volume();
    for target in ["/dev", "/dev/", "dev", "/./dev", "//dev/."] {
        let change = |spec: &mut ContainerSpec| spec.mounts = vec![mount(volume.path(), target)];
        check_refused(&BOTH, change, "cannot be mounted on");
    }
    // Links of a volume below /dev can lead a further one to /dev.
    symlink("/dev", volume.path().join("link")).unwrap();
    for inside in ["/dev/v/link", "/dev/v/below/link"] {
        let change = |spec: &mut ContainerSpec| {
            spec.mounts = vec![mount(volume.path(), "/dev/v"), mount(volume.path(), inside)];
        };
        check_refused(&BOTH, change, "cannot be mounted on");
    }
    assert_eq!(listing(volume.path()), ["link"]);
    let shm = |spec: &mut ContainerSpec| spec.mounts = vec![mount(volume.path(), "/dev/shm")];
    check(
        "ls /dev/shm; test -c /dev/null && echo whole",
        shm,
        "link\nwhole\n",
    );
}

/// Links lead volumes below the container's own directories, which are mounted later.
#[test]
fn links_do_not_lead_volumes_over_the_containers_own_directories() {
    let (top, first, second) = (open_directory(), volume(), volume());
    for (name, to) in [("p", "proc"), ("d", "/dev"), ("s", "./sys")] {
        fs::create_dir(
            top.path()
                .join(Path::new("/").join(to).strip_prefix("/").unwrap()),
        )
        .unwrap();
        symlink(to, top.path().join(name)).unwrap();
        // In a volume they can be made while the container is set up.
        symlink(Path::new("/").join(to), first.path().join(name)).unwrap();
    }
    fs::write(second.path().join("word"), "").unwrap();
    let image = on(&[top.path()]);
    let change = |spec: &mut ContainerSpec| {
        image(spec);
        spec.mounts = vec![mount(first.path(), "/v")];
        for target in ["/p", "/d", "/s", "/v/p", "/v/d", "/v/s"] {
            spec.mounts.push(mount(second.path(), target));
        }
    };
    let script = "test -d /proc/self && test -c /dev/null && test -d /sys/kernel && echo own; \
        ls /proc/word /dev/word /sys/word 2>/dev/null; true";
    check(script, change, "own\n");
    assert_eq!(listing(second.path()), ["word"]);
    assert_eq!(listing(first.path()), ["d", "p", "s"]);
}

/// A node was created by its path, of which a volume can be a part: a program that has the volume as well could lead it to the host.
#[test]
fn devices_in_volumes_are_refused() {
    let volume = volume();
    let device = |path: &str| allot_cdi::DeviceNode {
        path: path.into(),
        host_path: Some("/dev/null".into()),
        ..allot_cdi::DeviceNode::default()
    };
    for path in ["/dev/v/null", "/dev/v/sub/null", "/dev/../etc/null"] {
        let change = |spec: &mut ContainerSpec| {
            spec.mounts = vec![mount(volume.path(), "/dev/v")];
            spec.devices = vec![device(path)];
        };
        check_refused(
            &[RunAs::Root],
            change,
            "cannot be a device of the container",
        );
    }
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
    // Those that are mounted.
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/opt/../proc/1",
        "/sys/fs",
        "/",
    ] {
        let change = |spec: &mut ContainerSpec| spec.devices = vec![device(path)];
        check_refused(&BOTH, change, "cannot be a device of the container");
    }
    let beside = |spec: &mut ContainerSpec| {
        spec.mounts = vec![mount(volume.path(), "/dev/v")];
        spec.devices = vec![device("/dev/w/null")];
    };
    check("test -c /dev/w/null && echo node", beside, "node\n");
}

/// A driver in a container mounts the host's `/dev`, which a privileged one has already.
#[test]
fn a_privileged_container_mounts_the_devices_of_the_host() {
    let Some(machine) = machine(RunAs::Root) else {
        return;
    };
    // Devices come and go on the host meanwhile; these are what is made below `/dev` otherwise.
    let look = || {
        let names = ["fd", "null", "ptmx", "stderr", "stdin", "stdout", "zero"];
        names.map(|name| {
            let path = Path::new("/dev").join(name);
            (path.exists(), fs::read_link(path).ok())
        })
    };
    let before = look();
    // Every container has these.
    let standard = [
        "console", "full", "null", "ptmx", "random", "tty", "urandom", "zero",
    ];
    let entries = fs::read_dir("/dev").unwrap().flatten();
    let devices = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_char_device()));
    let names = devices.map(|it| it.file_name().to_string_lossy().into_owned());
    let Some(own) = names
        .filter(|name| !standard.contains(&name.as_str()))
        .min()
    else {
        eprintln!("skipped: the host has no further devices");
        return;
    };
    let change = |spec: &mut ContainerSpec| {
        spec.security.privileged = true;
        spec.mounts = vec![mount(Path::new("/dev"), "/dev")];
    };
    let script = format!("test -e '/dev/{own}' && test -c /dev/null && echo devices");
    let (_, text) = Container::start(RunAs::Root, machine, &script, change).end();
    assert_eq!(text, "devices\n");
    assert_eq!(look(), before);
}
