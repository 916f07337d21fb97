//! Pseudo-terminals.

use std::os::fd::OwnedFd;
use std::path::Path;

/// Where terminals of this host come from.
pub(crate) const HOST: &str = "/dev/ptmx";

/// A new pseudo-terminal of the file system that `ptmx` belongs to: master and slave.
///
/// # Errors
/// Those of the system calls.
pub(crate) fn open(ptmx: &Path) -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, unlockpt};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open(ptmx, flags, Mode::empty())?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}
