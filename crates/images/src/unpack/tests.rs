//! Layers of every kind, and hostile ones.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use super::*;
use crate::fixtures::{Layer, gzip, zstd};

mod bounds;
mod random;
mod tricks;

/// A directory to unpack into, next to one that layers should not reach.
struct EntryLocation {
    directory: tempfile::TempDir,
    whiteouts: Whiteouts,
    limits: Limits,
    ownership: Ownership,
}

impl EntryLocation {
    fn new(whiteouts: Whiteouts) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["root", "trash", "outside"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("outside/file"), "untouched").unwrap();
        Self {
            directory,
            whiteouts,
            limits: Limits::default(),
            ownership: Ownership::of_process(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn unpack_all(&self, layers: &[Vec<u8>]) -> Result<Report> {
        let cancel = AtomicBool::new(false);
        let options = Options {
            limits: self.limits.clone(),
            ownership: self.ownership,
            whiteouts: self.whiteouts,
        };
        let trash = self.directory.path().join("trash");
        let mut unpacker = Unpacker::new(&self.path(""), &trash, options, &cancel)?;
        let mut last = Report::default();
        for layer in layers {
            last = unpacker.layer(layer.as_slice())?;
        }
        Ok(last)
    }

    fn unpack(&self, layer: Layer) -> Result<Report> {
        self.unpack_all(&[layer.tar()])
    }

    /// Nothing was written, removed or changed beside the root.
    fn check_outside(&self) {
        let names = |path: PathBuf| {
            let names = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        assert_eq!(
            names(self.directory.path().to_owned()),
            ["outside", "root", "trash"]
        );
        let outside = self.directory.path().join("outside");
        assert_eq!(names(outside.clone()), ["file"]);
        assert_eq!(
            fs::read_to_string(outside.join("file")).unwrap(),
            "untouched"
        );
        let mode = fs::metadata(outside.join("file"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o644);
    }
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn files_directories_and_links_are_made() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let layer = Layer::new()
        .entry(b'5', "dir/", "", 0o750, b"")
        .entry(b'0', "dir/program", "", 0o755, b"code")
        .file("/absolute", "inside")
        .file("./made/on/the/way", "deep")
        .symlink("link", "/etc/target")
        .hard_link("hard", "dir/program")
        .entry(b'6', "fifo", "", 0o600, b"");
    let plain = layer.tar();
    for packed in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let report = place.unpack_all(&[packed]).unwrap();
        assert_eq!(report.diff_id, Some(Digest::of(&plain)));
        assert_eq!((report.entries, report.bytes), (7, 14));
    }
    assert_eq!(read(place.path("made/on/the/way")), "deep");
    assert_eq!(read(place.path("absolute")), "inside");
    assert_eq!(
        fs::read_link(place.path("link")).unwrap().to_str(),
        Some("/etc/target")
    );
    let program = fs::metadata(place.path("dir/program")).unwrap();
    assert_eq!(program.permissions().mode() & 0o7777, 0o755);
    assert_eq!(program.mtime(), 1);
    assert_eq!(
        fs::metadata(place.path("hard")).unwrap().ino(),
        program.ino()
    );
    assert_eq!(
        fs::metadata(place.path("dir"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o750
    );
    assert!(
        fs::metadata(place.path("fifo"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
}

/// Each of these layers tries to leave the root, or is malformed. All fail, and nothing outside changes.
#[test]
fn what_leaves_the_root_is_refused() {
    let cases: Vec<(&str, Layer)> = vec![
        ("parent", Layer::new().file("../outside/file", "x")),
        (
            "parent in the middle",
            Layer::new().file("a/../../outside/file", "x"),
        ),
        ("parent at the end", Layer::new().directory("a/..")),
        (
            "parent after a link",
            Layer::new()
                .symlink("a", "/")
                .file("a/../outside/file", "x"),
        ),
        (
            "hard link out",
            Layer::new().hard_link("a", "../outside/file"),
        ),
        (
            "hard link to nothing",
            Layer::new().hard_link("a", "/outside/file"),
        ),
        ("hard link to itself", Layer::new().hard_link("a", "a")),
        (
            "hard link to a directory",
            Layer::new().directory("d").hard_link("a", "d"),
        ),
        ("hard link to the root", Layer::new().hard_link("a", "/")),
        (
            "hard link to a whiteout",
            Layer::new().file(".wh.a", "").hard_link("b", "a"),
        ),
        (
            "hard link to a whiteout's name",
            Layer::new().hard_link("b", ".wh.a"),
        ),
        ("whiteout of here", Layer::new().file(".wh..", "")),
        ("whiteout of the parent", Layer::new().file(".wh...", "")),
        ("whiteout of nothing", Layer::new().file("a/.wh.", "")),
        ("through a whiteout", Layer::new().file(".wh.a/b", "")),
        (
            "file as a directory",
            Layer::new().file("a", "").file("a/b", ""),
        ),
        (
            "link to nowhere as a directory",
            Layer::new().symlink("a", "/none").file("a/b", ""),
        ),
        (
            "links in a circle",
            Layer::new()
                .symlink("a", "b")
                .symlink("b", "a")
                .file("a/c", ""),
        ),
        ("empty link", Layer::new().symlink("a", "")),
        (
            "unknown type",
            Layer::new().entry(b'Q', "a", "", 0o644, b""),
        ),
        (
            "long name",
            Layer::new()
                .extended("path", &"n".repeat(256))
                .file("a", ""),
        ),
        (
            "long path",
            Layer::new()
                .extended("path", &"n/".repeat(3000))
                .file("a", ""),
        ),
    ];
    for (what, layer) in cases {
        let tar = layer.tar();
        for whiteouts in [Whiteouts::Overlay, Whiteouts::Apply] {
            if whiteouts == Whiteouts::Apply && what == "hard link to a whiteout" {
                continue;
            }
            let place = EntryLocation::new(whiteouts);
            let error = place.unpack_all(std::slice::from_ref(&tar));
            assert!(
                matches!(error, Err(Error::Layer { .. })),
                "{what}: {error:?}"
            );
            place.check_outside();
        }
    }
}

#[test]
fn links_lead_inside_of_the_root() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let outside = place.directory.path().join("outside");
    let outside = outside.to_str().unwrap();
    let layer = Layer::new()
        .directory("etc")
        .symlink("absolute", "/etc")
        .symlink("relative", "../../../../../../etc")
        .file("absolute/a", "1")
        .file("relative/b", "2")
        // The same path exists outside: it is created inside.
        .extended("linkpath", outside)
        .symlink("out", "")
        .directory(&outside[1..])
        .file("out/file", "inside")
        // A link as the last component is replaced, not followed.
        .extended("linkpath", &format!("{outside}/file"))
        .symlink("last", "")
        .file("last", "replaced")
        // A directory over a link is a new directory.
        .symlink("over", "/etc")
        .directory("over")
        .file("over/c", "3")
        // A hard link to a link is one to the link.
        .extended("linkpath", &format!("{outside}/file"))
        .symlink("soft", "")
        .hard_link("hard", "soft")
        .file("hard", "own");
    place.unpack(layer).unwrap();
    place.check_outside();
    assert_eq!(
        (read(place.path("etc/a")), read(place.path("etc/b"))),
        ("1".to_owned(), "2".to_owned())
    );
    assert_eq!(
        read(place.path(&format!("{}/file", &outside[1..]))),
        "inside"
    );
    assert_eq!(
        (read(place.path("last")), read(place.path("hard"))),
        ("replaced".to_owned(), "own".to_owned())
    );
    assert!(!place.path("etc/c").exists() && place.path("over/c").exists());
    assert!(
        fs::symlink_metadata(place.path("soft"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn devices_are_left_out_and_set_ids_follow_the_owner() {
    let layer = || {
        Layer::new()
            .entry(b'3', "dev/null", "", 0o666, b"")
            .entry(b'4', "dev/sda", "", 0o666, b"")
            .entry(b'0', "su", "", 0o6755, b"")
    };
    let mut place = EntryLocation::new(Whiteouts::Overlay);
    place.ownership = Ownership::Mine;
    let report = place.unpack(layer()).unwrap();
    assert_eq!((report.devices, report.set_ids), (2, 1));
    assert!(!place.path("dev/null").exists());
    assert_eq!(
        fs::metadata(place.path("su")).unwrap().mode() & 0o7777,
        0o755
    );
    if Ownership::of_process() == Ownership::Keep {
        let place = EntryLocation::new(Whiteouts::Overlay);
        let report = place.unpack(layer()).unwrap();
        assert_eq!((report.devices, report.set_ids), (2, 0));
        assert_eq!(
            fs::metadata(place.path("su")).unwrap().mode() & 0o7777,
            0o6755
        );
    }
}

#[test]
fn attributes_that_overlayfs_reads_are_left_out() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let layer = Layer::new()
        .extended("SCHILY.xattr.trusted.overlay.redirect", "/etc")
        .directory("a")
        .extended("SCHILY.xattr.user.overlay.opaque", "y")
        .directory("b")
        .extended("SCHILY.xattr.user.note", "kept")
        .file("c", "");
    let report = place.unpack(layer).unwrap();
    assert_eq!(report.xattrs, 2);
    for (path, name, there) in [
        ("a", "trusted.overlay.redirect", false),
        ("b", "user.overlay.opaque", false),
        ("c", "user.note", true),
    ] {
        let mut value = [0; 16];
        let found = rustix::fs::getxattr(place.path(path), name, &mut value[..]);
        assert_eq!(found.is_ok(), there, "{path} {name}");
    }
}

#[test]
fn whiteouts_become_marks() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let layer = Layer::new()
        .file("etc/.wh.gone", "")
        .directory("new")
        .file("new/.wh..wh..opq", "")
        .file("new/file", "")
        // In either order the layer's own files stay.
        .file("kept", "")
        .file(".wh.kept", "")
        .file(".wh.later", "")
        .file("later", "")
        .directory("both")
        .file("both/own", "")
        .file(".wh.both", "")
        .file(".wh.dir", "")
        .directory("dir")
        .file(".wh..wh.plnk/1", "");
    let report = place.unpack(layer).unwrap();
    let space = if report.user_xattrs {
        "user"
    } else {
        "trusted"
    };
    let is_mark = |name: &str| {
        let data = fs::symlink_metadata(place.path(name)).unwrap();
        data.file_type().is_char_device() && data.rdev() == 0
    };
    let is_opaque = |name: &str| {
        let mut value = [0; 4];
        let key = format!("{space}.overlay.opaque");
        rustix::fs::getxattr(place.path(name), key, &mut value[..]) == Ok(1)
    };
    assert!(is_mark("etc/gone"));
    assert!(!is_mark("kept") && !is_mark("later"));
    assert!(is_opaque("new") && is_opaque("both") && is_opaque("dir") && !is_opaque("etc"));
    assert!(place.path("both/own").exists() && !place.path(".wh..wh.plnk").exists());
}

#[test]
fn whiteouts_are_applied_to_lower_layers_only() {
    let place = EntryLocation::new(Whiteouts::Apply);
    let lower = Layer::new()
        .file("gone", "")
        .file("tree/a/b", "")
        .file("opaque/old/x", "")
        .file("opaque/both/old", "")
        .file("mixed/old", "")
        .file("replaced/dir", "")
        .symlink("alias", "opaque");
    let upper = Layer::new()
        .file(".wh.gone", "")
        .file(".wh.tree", "")
        .file("opaque/new", "")
        .file("opaque/both/new", "")
        .file("alias/.wh..wh..opq", "")
        .directory("mixed")
        .file("mixed/new", "")
        .file(".wh.mixed", "")
        .file("replaced", "file")
        .file(".wh.none", "")
        .file("none/.wh.none", "");
    place.unpack_all(&[lower.tar(), upper.tar()]).unwrap();
    for (name, there) in [
        ("gone", false),
        ("tree", false),
        ("opaque/old", false),
        ("opaque/new", true),
        ("opaque/both/old", false),
        ("opaque/both/new", true),
        ("mixed/old", false),
        ("mixed/new", true),
        ("none", false),
    ] {
        assert_eq!(place.path(name).exists(), there, "{name}");
    }
    assert_eq!(read(place.path("replaced")), "file");
    assert_eq!(
        fs::read_dir(place.directory.path().join("trash"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn later_entries_replace_earlier_ones() {
    let place = EntryLocation::new(Whiteouts::Overlay);
    let layer = Layer::new()
        .file("a", "first")
        .hard_link("b", "a")
        .file("a", "second")
        .file("d/x", "")
        .file("d", "file")
        .file("e", "")
        .directory("e")
        .file("e/y", "");
    place.unpack(layer).unwrap();
    assert_eq!(
        (read(place.path("a")), read(place.path("b"))),
        ("second".to_owned(), "first".to_owned())
    );
    assert_eq!(read(place.path("d")), "file");
    assert!(place.path("e/y").exists());
}
