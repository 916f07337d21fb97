//! Removing trees that others filled.
//!
//! A container can nest directories far deeper than a path is long, and take the permissions of its own directories away. The
//! standard library removes a tree with one call and one descriptor for each level, which ends in an overflow of the stack, and
//! with it the process. Here, directories are moved up to the top of the tree before they are emptied: two descriptors are
//! enough for any depth.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Prefix of the names under which directories are moved up.
const MOVED: &str = ".removed-";

/// After this, what another process adds as fast as it is removed is left.
const LONGEST: Duration = Duration::from_secs(600);

/// Removes a file, or a directory with everything below it, without following links. What another process keeps adding for ten
/// minutes remains, and is an error.
///
/// # Errors
///
/// Errors of the file system; what could be removed before is gone. [`io::ErrorKind::NotFound`] if there is nothing at the path.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.is_dir() {
        return std::fs::remove_file(path);
    }
    let top = open(rustix::fs::CWD, path)?;
    let mut removal = Removal {
        top: top.as_fd(),
        moved: 0,
        until: Instant::now() + LONGEST,
    };
    loop {
        // Those that were moved up in an earlier attempt, or by the calls below.
        let directories = removal.empty(top.as_fd())?;
        if directories.is_empty() {
            match std::fs::remove_dir(path) {
                // Entries can be passed over while others are removed.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    removal.check_time()?;
                }
                done => return done,
            }
        }
        for name in directories {
            removal.check_time()?;
            let directory = open(top.as_fd(), &name)?;
            removal.empty(directory.as_fd())?;
            match rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR) {
                // It was filled again, and is emptied in the next pass.
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The removal of one tree.
struct Removal<'a> {
    top: BorrowedFd<'a>,
    /// How many directories were moved up.
    moved: u64,
    until: Instant,
}

/// Opens a directory for its entries. An owner without root may have taken the permissions of its own directory away.
fn open(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let all = Mode::RWXU;
    let parent = parent.as_fd();
    let opened = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // Through the descriptor: the name may be a link by now.
            let found = rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
            change(found.as_fd(), all)?;
            rustix::fs::openat(parent, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode);
    if !mode.contains(all) {
        // Also to be moved it must be writable.
        rustix::fs::fchmod(&opened, mode | all)?;
    }
    Ok(opened)
}

/// Changes permissions of what is open without the right to read it.
fn change(found: BorrowedFd<'_>, mode: Mode) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(rustix::fs::chmod(path, mode)?)
}

impl Removal<'_> {
    fn check_time(&self) -> io::Result<()> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "another process fills the directory while it is removed",
            )),
        }
    }

    /// Removes everything in a directory but directories with content. Those are moved into the top of the tree; if it is the top
    /// itself, their names are returned.
    fn empty(&mut self, directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
        /// Names that are kept at once.
        const MOST: usize = 10_000;
        let is_top = directory.as_raw_fd() == self.top.as_raw_fd();
        let mut directories = Vec::new();
        // Entries can be passed over while others are removed.
        loop {
            self.check_time()?;
            let mut removed = false;
            for entry in Dir::read_from(directory)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                if entry.file_type() != FileType::Directory {
                    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {
                            removed = true;
                            continue;
                        }
                        // Not every file system says what its entries are.
                        Err(Errno::ISDIR | Errno::PERM) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => removed = true,
                    Err(Errno::NOTEMPTY | Errno::EXIST) if is_top => {
                        directories.push(name.to_owned());
                        if directories.len() >= MOST {
                            return Ok(directories);
                        }
                    }
                    Err(Errno::NOTEMPTY | Errno::EXIST) => {
                        self.move_up(directory, name)?;
                        removed = true;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if is_top || !removed {
                return Ok(directories);
            }
        }
    }

    /// Moves a directory into the top of the tree, under a name that is free there or that of an empty directory.
    fn move_up(&mut self, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let mut opened = false;
        loop {
            let new = format!("{MOVED}{}", self.moved);
            self.moved += 1;
            match rustix::fs::renameat(directory, name, self.top, new) {
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => self.check_time()?,
                // To be moved, it must be writable by its owner.
                Err(Errno::ACCESS) if !opened => {
                    drop(open(directory, name)?);
                    opened = true;
                }
                done => return Ok(done?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// As a container does it: no path is that long.
    fn dig(directory: &Path, levels: usize) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(directory, flags, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&at, "a", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "a", flags, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn directories_nest_as_deep_as_they_like() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir(&tree).unwrap();
        dig(&tree, 20_000);
        // With the small stack of a thread.
        let path = tree.clone();
        let removing = std::thread::Builder::new().stack_size(128 << 10);
        let removing = removing.spawn(move || remove_tree(&path)).unwrap();
        removing.join().unwrap().unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn everything_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (tree, other) = (place.path().join("tree"), place.path().join("other"));
        fs::create_dir_all(other.join("kept")).unwrap();
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join(".removed-0/x")).unwrap();
        fs::write(tree.join("a/b/.removed-0"), "").unwrap();
        symlink(&other, tree.join("a/link")).unwrap();
        symlink(&other, tree.join("link")).unwrap();
        for number in 0..1000 {
            fs::create_dir_all(tree.join(format!("a/many/{number}/below"))).unwrap();
            fs::write(tree.join(format!("a/b/{number}")), "").unwrap();
        }
        for closed in ["a/b/c", "a/b", "a/many/7"] {
            fs::set_permissions(tree.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(other.join("kept").is_dir());
        symlink(&other, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(other.join("kept").is_dir(), "the link alone is removed");
        let missing = remove_tree(&tree).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
