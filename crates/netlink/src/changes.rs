//! Notifications of the kernel about links and addresses.

use std::io;
use std::os::fd::AsFd;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use tokio::net::UnixDatagram;

/// Multicast groups for changes: links, IPv4 addresses, IPv6 addresses (`RTMGRP_*`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Maximum number of messages that are read before [`Changes::next`] returns.
const BURST: usize = 1024;
/// The kernel dropped messages because the socket's buffer was full.
const ENOBUFS: i32 = 105;

/// A socket that receives a message when a link or an address of the network namespace changes.
#[derive(Debug)]
pub struct Changes {
    /// A datagram socket; the type does not matter for receiving.
    socket: UnixDatagram,
}

impl Changes {
    /// Begins to watch the network namespace of this process.
    ///
    /// # Errors
    /// The kernel does not support the socket.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn watch() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        let socket = std::os::unix::net::UnixDatagram::from(socket.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixDatagram::from_std(socket)?,
        })
    }

    /// Waits until a link or an address may have changed. The messages are not parsed: a change leads to a full query.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn next(&mut self) -> io::Result<()> {
        // What does not fit is dropped.
        let mut message = [0; 16];
        lossless(self.socket.recv(&mut message).await)?;
        for _ in 0..BURST {
            match lossless(self.socket.try_recv(&mut message)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            }
        }
        Ok(())
    }
}

/// A message that the kernel dropped, because the socket's buffer was full, is a change as well.
fn lossless(received: io::Result<usize>) -> io::Result<()> {
    match received {
        Err(error) if error.raw_os_error() != Some(ENOBUFS) => Err(error),
        _ => Ok(()),
    }
}
