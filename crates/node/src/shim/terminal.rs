//! Pseudo-terminals.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Where terminals of this host come from.
pub(crate) const HOST: &str = "/dev/ptmx";

/// Where terminals of a container come from, seen from inside.
pub(super) const OWN: &str = "/dev/pts/ptmx";

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

/// Gives a master to the process at the other end of a socket.
///
/// # Errors
/// Those of the system call.
pub(super) fn send(socket: &OwnedFd, master: &OwnedFd) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let masters = [master.as_fd()];
    message.push(SendAncillaryMessage::ScmRights(&masters));
    // A message of nothing is none.
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(b"t")],
        &mut message,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Takes what [`send`] gave.
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
