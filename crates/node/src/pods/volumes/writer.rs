//! Replacing the files of a volume all at once, in the layout that a kubelet uses and that programs which reload their
//! configuration watch: the files are in a directory with the time as its name, `..data` links to that directory, and
//! every name that a user sees links into `..data`. Renaming `..data` changes them all.
//!
//! Containers see such volumes read-only. One that may mount (`SYS_ADMIN`, also in a user namespace) can change that, and then
//! exchanges files and directories for links and pipes while they are written. So each step starts from the descriptor of a directory
//! in the volume, follows no link, and waits for nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use allot_images::openat2;
use jiff::Timestamp;
use rustix::fs::{
    Dir, Mode, OFlags, ResolveFlags, mkdirat, openat, readlinkat, renameat, symlinkat,
};
use rustix::io::Errno;

use super::content::{Entries, Entry};
use super::{GROUP, VolumeError, inside};
use crate::error::{AtPath as _, PathError};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Permissions of directories.
const DIRECTORY: u32 = 0o755;
/// Never out of the volume.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Replaces the content of the volume at `root` by `files`; unchanged content is not touched. `group`: the files are given to
/// it before they are seen. A failed write leaves the volume as it was.
pub(super) fn write(root: &Path, files: &Entries, group: Option<u32>) -> Result<(), VolumeError> {
    for name in files.keys() {
        inside(name)?;
        // Such names are the layout's own.
        if name.starts_with("..") {
            return Err(VolumeError::ReservedPath(name.clone()));
        }
    }
    let volume = rustix::fs::open(root, OPEN, Mode::empty());
    let volume = volume.map_err(io::Error::from).at(root)?;
    if !is_current(&volume, files, group) {
        let stamp = Timestamp::now()
            .strftime("..%Y_%m_%d_%H_%M_%S.%N")
            .to_string();
        let written = fill(&volume, root, &stamp, files, group)
            .and_then(|()| replace_link(&volume, root, &stamp).at(root));
        if let Err(problem) = written {
            for path in [root.join(&stamp), root.join(NEW_DATA)] {
                remove(&path).unwrap_or_else(|error| {
                    tracing::warn!(path = %path.display(), %error, "an incomplete write was not removed");
                });
            }
            return Err(problem.into());
        }
    }
    let wanted: BTreeSet<&str> = files.keys().map(|name| first(name)).collect();
    for name in &wanted {
        let target = format!("{DATA}/{name}");
        if read_link(&volume, name).is_ok_and(|found| found == Path::new(&target)) {
            continue;
        }
        remove(&root.join(name)).at(root)?;
        let linked = symlinkat(&target, &volume, *name);
        linked.map_err(io::Error::from).at(root)?;
    }
    // Also what an agent left that ended during a write.
    let current = read_link(&volume, DATA).at(root)?;
    for name in entries(&volume).at(root)? {
        let name = name.at(root)?;
        let keep = name == Path::new(DATA)
            || current == name
            || name.to_str().is_some_and(|name| wanted.contains(name));
        if !keep {
            remove(&root.join(&name)).at(root)?;
        }
    }
    Ok(())
}

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a directory below another one. No part of the path is a link.
fn directory(at: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    Ok(openat2(at, path, OPEN, Mode::empty(), INSIDE)?)
}

fn read_link(at: &OwnedFd, name: &str) -> io::Result<PathBuf> {
    let target = readlinkat(at, name, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(
        target.to_bytes(),
    )))
}

/// The names in a directory, one after the other: a container may have made millions.
fn entries(directory: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<PathBuf>> + use<>> {
    Ok(Dir::read_from(directory)?.filter_map(|entry| match entry {
        Ok(entry) => {
            let name = entry.file_name().to_bytes();
            let is_content = !matches!(name, b"." | b"..");
            is_content.then(|| Ok(PathBuf::from(std::ffi::OsStr::from_bytes(name))))
        }
        Err(error) => Some(Err(io::Error::from(error))),
    }))
}

/// Writes all files into a new directory of the volume. `root` is the path of the volume, for errors.
fn fill(
    volume: &OwnedFd,
    root: &Path,
    stamp: &str,
    files: &Entries,
    group: Option<u32>,
) -> Result<(), PathError> {
    let place = root.join(stamp);
    let all = make_directory(volume, Path::new(stamp), group).at(&place)?;
    for (name, entry) in files {
        let path = Path::new(name);
        let parent = parent(&all, path, group).at(&place.join(path))?;
        let file_name = path.file_name().unwrap_or_default();
        create(&parent, Path::new(file_name), entry, group).at(&place.join(path))?;
    }
    Ok(())
}

/// The directory of a path, with those above it.
fn parent(all: &OwnedFd, path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    let mut at = all.try_clone()?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        at = make_directory(&at, Path::new(part.as_os_str()), group)?;
    }
    Ok(at)
}

/// Creates a directory, unless it is there, and opens it.
fn make_directory(at: &OwnedFd, name: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_raw_mode(DIRECTORY)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = directory(at, name)?;
    give(
        &File::from(made.try_clone()?),
        DIRECTORY,
        (None, group),
        GROUP.0,
    )?;
    Ok(made)
}

/// The part of a path that is visible in the volume's root.
fn first(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

fn create(at: &OwnedFd, name: &Path, entry: &Entry, group: Option<u32>) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(at, name, flags, Mode::from_raw_mode(entry.mode))?);
    file.write_all(&entry.content)?;
    give(&file, entry.mode, (entry.user, group), GROUP.1)
}

/// Gives a file to its user and group, and sets its permissions, independent of the agent's umask. `more` are those that a group has.
fn give(
    file: &File,
    mode: u32,
    (user, group): (Option<u32>, Option<u32>),
    more: u32,
) -> io::Result<()> {
    if user.or(group).is_some() {
        fchown(file, user, group)?;
    }
    let mode = group.map_or(mode, |_| mode | more);
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn replace_link(volume: &OwnedFd, root: &Path, target: &str) -> io::Result<()> {
    remove(&root.join(NEW_DATA))?;
    symlinkat(target, volume, NEW_DATA)?;
    Ok(renameat(volume, NEW_DATA, volume, DATA)?)
}

/// Removes a file or directory of any type; it need not exist.
fn remove(path: &Path) -> io::Result<()> {
    match allot_images::remove_tree(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Whether the volume holds exactly these files, of this group.
fn is_current(volume: &OwnedFd, files: &Entries, group: Option<u32>) -> bool {
    let data = read_link(volume, DATA).and_then(|data| directory(volume, &data));
    let Ok(data) = data else {
        return false;
    };
    let same = |(name, entry): (&String, &Entry)| {
        is_same(&data, Path::new(name), entry, group).unwrap_or(false)
    };
    files.iter().all(same) && has_no_others(&data, files).unwrap_or(false)
}

fn is_same(data: &OwnedFd, path: &Path, entry: &Entry, group: Option<u32>) -> io::Result<bool> {
    // A pipe is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat2(data, path, flags, Mode::empty(), INSIDE)?);
    let found = file.metadata()?;
    let length = entry.content.len() as u64;
    let mode = group.map_or(entry.mode, |_| entry.mode | GROUP.1);
    let fits = found.is_file()
        && found.len() == length
        && found.permissions().mode() & 0o777 == mode
        && group.is_none_or(|group| group == found.gid())
        && entry.user.is_none_or(|user| user == found.uid());
    let mut content = Vec::new();
    if fits {
        file.take(length + 1).read_to_end(&mut content)?;
    }
    Ok(fits && content == entry.content)
}

/// Whether a directory has no more than these files and the directories above them.
fn has_no_others(data: &OwnedFd, files: &Entries) -> io::Result<bool> {
    let known: BTreeSet<&Path> = files
        .keys()
        .flat_map(|name| Path::new(name).ancestors())
        .collect();
    let above: BTreeSet<&Path> = files
        .keys()
        .flat_map(|name| Path::new(name).ancestors().skip(1))
        .collect();
    let top = Path::new("");
    for path in std::iter::once(top).chain(above.into_iter().filter(|path| *path != top)) {
        for name in entries(&directory(data, &Path::new(".").join(path))?)? {
            if !known.contains(path.join(name?).as_path()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn files(of: &[(&str, &str, u32)]) -> Entries {
        let files = of.iter();
        let entry = |(name, content, mode): &(&str, &str, u32)| {
            let entry = Entry {
                content: content.as_bytes().to_vec(),
                mode: *mode,
                user: None,
            };
            ((*name).to_owned(), entry)
        };
        files.map(entry).collect()
    }

    /// The names in the root without the layout's own, and what a reader finds.
    fn check(root: &Path, of: &[(&str, &str, u32)]) {
        write(root, &files(of), None).expect("written");
        for (name, content, mode) in of {
            let path = root.join(name);
            assert_eq!(fs::read_to_string(&path).expect("a file"), *content);
            let found = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(found & 0o777, *mode, "{name}");
        }
        let names = fs::read_dir(root).expect("a directory").flatten();
        let names: BTreeSet<_> = names
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .collect();
        let visible: BTreeSet<_> = of.iter().map(|(name, ..)| first(name).to_owned()).collect();
        let own = names.difference(&visible).count();
        assert_eq!(own, 2, "..data and one directory: {names:?}");
    }

    #[test]
    fn the_files_are_replaced_all_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o400)]);
        let data = fs::read_link(root.join(DATA)).expect("a link");
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o400)]);
        let same = fs::read_link(root.join(DATA)).expect("a link");
        assert_eq!(data, same, "nothing changed, nothing is written");
        check(root, &[("a", "3", 0o644), ("c", "4", 0o600)]);
        check(root, &[("a", "3", 0o600), ("c", "4", 0o600)]);
        check(root, &[]);
    }

    #[test]
    fn plain_files_of_an_earlier_release_become_links() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        fs::create_dir(root.join("sub")).expect("made");
        fs::write(root.join("sub/b"), "old").expect("written");
        fs::write(root.join("a"), "old").expect("written");
        check(root, &[("a", "1", 0o644), ("sub/b", "2", 0o644)]);
    }

    /// A failed write left its directory, once a minute.
    #[test]
    fn regression_a_failed_write_leaves_nothing() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        check(root, &[("a", "1", 0o644)]);
        let names = || {
            let names = fs::read_dir(root).expect("a directory").flatten();
            let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        // A file cannot be a directory as well, and a name can only be so long.
        let long = "x".repeat(300);
        for name in ["a/b", long.as_str()] {
            let all = files(&[("a", "2", 0o644), (name, "3", 0o644)]);
            write(root, &all, None).expect_err(name);
            assert_eq!(names(), before, "{name}");
            assert_eq!(fs::read_to_string(root.join("a")).expect("a file"), "1");
        }
        // What an agent leaves that is killed goes with the next look, also when nothing has changed.
        fs::create_dir(root.join("..2020_01_01_00_00_00.1")).expect("a directory");
        symlink("nowhere", root.join(NEW_DATA)).expect("a link");
        check(root, &[("a", "1", 0o644)]);
        assert_eq!(names(), before);
    }

    /// Files of a group were written again with every look, and were without their group for a moment.
    #[test]
    fn regression_files_of_a_group_are_written_once() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let all = files(&[("a", "1", 0o400), ("sub/b", "2", 0o600)]);
        write(root, &all, Some(1234)).expect("written");
        let data = fs::read_link(root.join(DATA)).expect("a link");
        write(root, &all, Some(1234)).expect("written");
        assert_eq!(fs::read_link(root.join(DATA)).expect("a link"), data);
        for (name, mode) in [("a", 0o440), ("sub/b", 0o640)] {
            let found = fs::metadata(root.join(name)).expect("a file");
            assert_eq!((found.gid(), found.mode() & 0o777), (1234, mode), "{name}");
        }
        write(root, &all, Some(77)).expect("written");
        assert_eq!(fs::metadata(root.join("a")).expect("a file").gid(), 77);
    }

    /// The attack: any user in a container read a token that is for one of them.
    #[test]
    fn tokens_are_for_the_user_of_the_pod() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: not root");
            return;
        }
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let mut all = files(&[("token", "1", 0o600)]);
        let found = || {
            let found = fs::metadata(root.join("token")).expect("a file");
            (found.uid(), found.gid(), found.mode() & 0o777)
        };
        for (user, group, mode) in [
            (None, None, 0o600),
            (Some(7), None, 0o600),
            (Some(7), Some(8), 0o640),
        ] {
            all.values_mut().for_each(|entry| entry.user = user);
            write(root, &all, group).expect("written");
            assert_eq!(found(), (user.unwrap_or(0), group.unwrap_or(0), mode));
        }
        let data = fs::read_link(root.join(DATA)).expect("a link");
        write(root, &all, Some(8)).expect("written");
        assert_eq!(fs::read_link(root.join(DATA)).expect("a link"), data);
    }

    #[test]
    fn paths_stay_inside() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["../x", "/x", "", "a/../../x", "..data", "..x/y"] {
            let written = write(root.path(), &files(&[(name, "", 0o644)]), None);
            assert!(written.is_err(), "{name:?}");
        }
    }

    /// The attack: a container that may mount makes its volume writable, and puts a pipe in the place of a file. The agent waited for
    /// a process that writes into it.
    #[test]
    fn regression_pipes_and_links_in_place_of_files_are_replaced() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("a"), "1").expect("a file");
        let all = [("a", "1", 0o644), ("sub/b", "2", 0o400)];
        check(root, &all);
        let at = |name: &str| root.join(DATA).join(name);
        fs::remove_file(at("a")).expect("removed");
        let mode = Mode::from_raw_mode(0o644);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("a"), kind, mode, 0).expect("a pipe");
        check(root, &all);
        assert!(fs::metadata(at("a")).expect("a file").is_file());
        for (link, target) in [
            (root.join(DATA), outside.path()),
            (at("a"), &outside.path().join("a")),
            (at("sub"), outside.path()),
            (root.join(NEW_DATA), outside.path()),
        ] {
            remove(&link).expect("removed");
            symlink(target, &link).expect("a link");
            check(root, &all);
            assert!(
                fs::read_link(&link).ok().as_deref() != Some(target),
                "{link:?}"
            );
        }
        let mut deep = at("deep");
        for _ in 0..500 {
            deep.push("d");
        }
        fs::create_dir_all(deep).expect("directories");
        check(root, &all);
        let left = fs::read_dir(outside.path()).expect("a directory").count();
        assert_eq!(left, 1, "nothing was written outside");
    }

    /// The attack: the new directory is exchanged for a link to the host while files are written. They were created there.
    #[test]
    fn regression_a_directory_that_is_exchanged_for_a_link_leads_nowhere() {
        let root = tempfile::tempdir().expect("a directory");
        let (root, outside) = (root.path(), tempfile::tempdir().expect("a directory"));
        let place = root.join("volume");
        fs::create_dir(&place).expect("a directory");
        let trap = root.join("trap");
        symlink(outside.path(), &trap).expect("a link");
        let ended = std::sync::atomic::AtomicBool::new(false);
        let exchange = || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                for entry in fs::read_dir(&place).expect("a directory").flatten() {
                    let is_new = entry.file_name().as_bytes().starts_with(b"..2");
                    if is_new && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        let path = entry.path();
                        // Back and forth: it may have been removed meanwhile.
                        let _ = renameat_with(CWD, &path, CWD, &trap, RenameFlags::EXCHANGE);
                        let _ = renameat_with(CWD, &trap, CWD, &path, RenameFlags::EXCHANGE);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(exchange);
            for number in 0..400 {
                let content = number.to_string();
                let all = ["a", "b", "c", "d/e", "d/f"].map(|name| (name, content.as_str(), 0o644));
                // What happens to its own volume is up to the container.
                let _ = write(&place, &files(&all), None);
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let left = fs::read_dir(outside.path()).expect("a directory").count();
        assert_eq!(left, 0, "files were written outside of the volume");
    }
}
