//! Links, addresses and routes of Linux network namespaces, by route netlink.
//!
//! A [`Netlink`] is one socket: its requests are sent one after the other and wait for the kernel's answer. A socket stays
//! bound to the namespace in which it was opened. [`Netlink::inside`] opens one in another namespace on a short-lived thread, so that
//! no other code of the process ever runs in that namespace. [`Changes`] waits for notifications of the kernel.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

mod address;
mod changes;
mod link;
mod route;
#[cfg(test)]
mod tests;

pub use address::{Address, LinkAddress};
pub use changes::Changes;
pub use link::{Kind, Link, mac_text, parse_mac};
pub use netlink_packet_route::link::{IpVlanMode, MacVlanMode};
pub use route::{Route, Uplink};

/// The kernel replies immediately; a socket without a reply for this long is considered broken.
const DEADLINE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// Maximum number of replies to one request; a machine has fewer links, addresses and routes.
const ANSWERS: usize = 1 << 20;

/// A route netlink socket.
///
/// All its methods block for at most ten seconds without a reply of the kernel, and fail with `TimedOut` then.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel does not support the socket.
    pub fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Opens a socket in another network namespace, given by its file (`/proc/PID/ns/net`).
    ///
    /// # Errors
    /// The process is not permitted to enter the namespace.
    pub fn inside(namespace: &File) -> io::Result<Self> {
        let namespace = namespace.try_clone()?;
        let opened = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Self::here()
        });
        let ended = opened.join();
        ended.map_err(|_| io::Error::other("the thread in the namespace ended"))?
    }

    /// Sends a request with flags, and returns the messages in the kernel's reply.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
            if retry_on_intr(|| poll(&mut watched, Some(&DEADLINE)))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (received, _) = self.socket.recv_from_full()?;
            let mut rest = &received[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(16)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => {
                            return Err(io::Error::from_raw_os_error(code.get().wrapping_neg()));
                        }
                    },
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    _ => {}
                }
                if answers.len() > ANSWERS {
                    return Err(io::Error::other("the answer has no end"));
                }
            }
        }
    }

    /// Asks for all objects of the type of the message.
    fn list(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(message, NLM_F_DUMP)
    }

    /// Sends a request for a change, with flags, and waits until the kernel has made it.
    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags).map(drop)
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
