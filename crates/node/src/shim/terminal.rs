//! Pseudo-terminals.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// Where terminals of this host come from.
pub(crate) const HOST: &str = "/dev/ptmx";

/// A new pseudo-terminal of the file system that `ptmx` belongs to: master and slave.
///
/// # Errors
/// Those of the system calls.
pub(crate) fn open(ptmx: &Path) -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{grantpt, unlockpt};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open(ptmx, flags, Mode::empty())?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = slave(&master)?;
    Ok((master, slave))
}

/// A new pseudo-terminal of a container, so that it has a name inside. The container decides what is at any path of
/// its root directory, so that only the real thing is opened: links lead nowhere else, and what is found is looked at.
///
/// # Errors
/// The container has no terminals of its own.
pub(crate) fn open_inside(root: &Path) -> std::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, makedev, openat2};
    /// `DEVPTS_SUPER_MAGIC`.
    const DEVPTS: u64 = 0x1cd1;
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat2(&root, "dev/pts/ptmx", flags, Mode::empty(), inside)?;
    let real = fstat(&found)?.st_rdev == makedev(5, 2) && fstatfs(&found)?.f_type as u64 == DEVPTS;
    if !real {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    open(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())))
}

/// The other side of a terminal whose master this is.
///
/// # Errors
/// Those of the system calls.
pub(super) fn slave(master: &OwnedFd) -> std::io::Result<OwnedFd> {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    Ok(ioctl_tiocgptpeer(master, flags)?)
}

/// Takes the master that came over a socket.
///
/// # Errors
/// Those of the system call; the other end is closed and nothing came.
pub(super) fn receive(socket: &OwnedFd) -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, buffers, &mut message, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = message.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    files
        .next()
        .ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}
