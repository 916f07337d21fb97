//! Opening paths of images and containers, whose links lead where their makers want.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// How often the kernel may be unsure about a path. It is when anything in the system is renamed or mounted meanwhile.
const ATTEMPTS: usize = 1000;

/// openat2(2), repeated as long as the kernel asks for it. It returns `EAGAIN` for a path with `..` while directories are
/// renamed or mounted anywhere, because it cannot prove then that the path stayed below `root`.
///
/// # Errors
/// Those of openat2; `EAGAIN` only after a thousand attempts.
pub fn openat2(
    root: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let mut attempts = 1;
    loop {
        match rustix::fs::openat2(&root, path, flags, mode, resolve) {
            Err(Errno::AGAIN) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// While directories were renamed elsewhere, unpacking a layer failed with "Resource temporarily unavailable".
    #[test]
    fn regression_renames_elsewhere_do_not_fail_a_path_with_links() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("root/a")).unwrap();
        std::os::unix::fs::symlink("../../../..", place.path().join("root/up")).unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        std::fs::create_dir(&one).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let root = std::fs::File::open(place.path().join("root")).unwrap();
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let found = (0..2000).try_for_each(|_| {
                openat2(&root, "up/up/a", OFlags::PATH, Mode::empty(), resolve).map(drop)
            });
            ended.store(true, Ordering::Relaxed);
            found.unwrap();
        });
    }
}
