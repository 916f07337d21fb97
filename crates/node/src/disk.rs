//! How much is in a directory.
//!
//! Containers change volumes while these are measured: every directory is opened from its parent without following
//! links, so that nothing outside is read.

use std::iter::Sum;
use std::ops::Add;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};

/// Limit of nested directories. Deeper ones are not counted, but reported.
const DEEPEST: usize = 200;
/// Limit of counted entries of a directory.
const MOST: u64 = 2_000_000;

/// What is used of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Used {
    /// More than anything may hold, of what is too large to be counted.
    const TOO_MUCH: Self = Self {
        bytes: u64::MAX,
        inodes: u64::MAX,
    };
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

impl Sum for Used {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// What is used below a directory. A directory with more entries than can be counted uses more than any limit.
pub(crate) fn of(path: &Path) -> Used {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A directory that does not exist takes no space.
    let Ok(root) = rustix::fs::open(path, flags, Mode::empty()) else {
        return Used::default();
    };
    let mut used = Used::default();
    match count(root, 0, &mut used) {
        true => used,
        false => Used::TOO_MUCH,
    }
}

/// What a file uses; nothing if it does not exist. A link is not followed.
pub(crate) fn of_file(path: &Path) -> Used {
    let found = rustix::fs::lstat(path);
    found.map_or_else(
        |_| Used::default(),
        |data| Used {
            bytes: bytes(&data),
            inodes: 1,
        },
    )
}

/// Bytes on the disk.
fn bytes(data: &Stat) -> u64 {
    u64::try_from(data.st_blocks).unwrap_or(0) * 512
}

/// Adds what is used below a directory; false if a limit is exceeded.
fn count(directory: OwnedFd, depth: usize, used: &mut Used) -> bool {
    if depth > DEEPEST {
        return false;
    }
    let Ok(list) = Dir::read_from(&directory) else {
        return true;
    };
    for entry in list.flatten() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        used.inodes += 1;
        if used.inodes > MOST {
            return false;
        }
        let Ok(data) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        used.bytes = used.bytes.saturating_add(bytes(&data));
        if FileType::from_raw_mode(data.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(below) = openat(directory.as_fd(), name, flags, Mode::empty())
                && !count(below, depth + 1, used)
            {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_count_and_links_do_not_lead_out() {
        let directory = tempfile::tempdir().unwrap();
        let empty = of(directory.path());
        assert_eq!(empty.inodes, 0);
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/c"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).unwrap();
        let used = of(directory.path());
        let bytes = used.bytes - empty.bytes;
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        // Two directories, a file and a link.
        assert_eq!(used.inodes, 4);
        assert_eq!(of(&directory.path().join("none")), Used::default());
        assert_eq!(of(&directory.path().join("link")), Used::default());
        let mut deep = directory.path().to_owned();
        for _ in 0..=DEEPEST {
            deep.push("d");
        }
        fs::create_dir_all(deep).unwrap();
        assert_eq!(of(directory.path()), Used::TOO_MUCH);
    }
}
