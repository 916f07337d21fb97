//! How much is in a volume.
//!
//! Containers change volumes while these are measured: every directory is opened from its parent without following
//! links, so that nothing outside is read.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

/// Limit of nested directories. Deeper ones are not counted, but reported.
const DEEPEST: usize = 200;
/// Limit of counted entries of a volume.
const MOST: u64 = 2_000_000;

/// Bytes on disk below a directory; `None` if a limit is exceeded.
pub(super) fn of(path: &Path) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A directory that does not exist takes no space.
    let Ok(root) = rustix::fs::open(path, flags, Mode::empty()) else {
        return Some(0);
    };
    let (mut bytes, mut entries) = (0, 0);
    count(root, 0, &mut bytes, &mut entries).then_some(bytes)
}

fn count(directory: OwnedFd, depth: usize, bytes: &mut u64, entries: &mut u64) -> bool {
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
        *entries += 1;
        if *entries > MOST {
            return false;
        }
        let Ok(data) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        *bytes = bytes.saturating_add(u64::try_from(data.st_blocks).unwrap_or(0) * 512);
        if FileType::from_raw_mode(data.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(below) = openat(directory.as_fd(), name, flags, Mode::empty())
                && !count(below, depth + 1, bytes, entries)
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
        let empty = of(directory.path()).unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        fs::write(directory.path().join("a/b/c"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).unwrap();
        let used = of(directory.path()).unwrap() - empty;
        assert!((1 << 20..2 << 20).contains(&used), "{used}");
        assert_eq!(of(&directory.path().join("none")), Some(0));
        assert_eq!(of(&directory.path().join("link")), Some(0));
        let mut deep = directory.path().to_owned();
        for _ in 0..=DEEPEST {
            deep.push("d");
        }
        fs::create_dir_all(deep).unwrap();
        assert_eq!(of(directory.path()), None);
    }
}
