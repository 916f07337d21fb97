//! Pseudo-terminals.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// The multiplexer of the host's terminals.
pub(crate) const HOST: &str = "/dev/ptmx";

/// A new pseudo-terminal of the file system that `ptmx` belongs to: master and slave.
///
/// # Errors
/// Errors of the system calls.
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

/// A new pseudo-terminal of a container, so that it has a name inside. The container controls every path of its root
/// directory, so links are not followed, and the opened file is verified.
///
/// # Errors
/// The container has no separate terminals.
pub(crate) fn open_inside(root: &Path) -> std::io::Result<(OwnedFd, OwnedFd)> {
    use allot_images::openat2;
    use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, makedev};
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
/// Errors of the system calls.
pub(super) fn slave(master: &OwnedFd) -> std::io::Result<OwnedFd> {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    Ok(ioctl_tiocgptpeer(master, flags)?)
}

/// Receives the master over a socket.
///
/// # Errors
/// Errors of the system call; the other end was closed without sending one.
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
