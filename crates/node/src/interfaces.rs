//! Network interfaces, by requests to the kernel.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

mod moved;

pub(crate) use moved::{MoveError, check, move_into};

/// A socket for requests about interfaces. They apply to the network namespace in which it was opened.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// `SIOCBRADDBR`, `SIOCBRDELBR`, `SIOCSIFFLAGS`, `SIOCSIFADDR` and `SIOCSIFNETMASK`: their types differ between C libraries.
    const ADD_BRIDGE: libc::c_ulong = 0x89a0;
    const DELETE_BRIDGE: libc::c_ulong = 0x89a1;
    const SET_FLAGS: libc::c_ulong = 0x8914;
    const SET_ADDRESS: libc::c_ulong = 0x8916;
    const SET_MASK: libc::c_ulong = 0x891c;

    /// A socket in the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(Self(socket.into()))
    }

    /// Creates a bridge; fails with `AlreadyExists` if there is an interface of that name.
    pub(crate) fn add_bridge(&self, name: &str) -> io::Result<()> {
        self.of_name(Self::ADD_BRIDGE, name)
    }

    /// Sets a bridge down, and removes it.
    pub(crate) fn remove_bridge(&self, name: &str) -> io::Result<()> {
        self.set_flags(name, 0)?;
        self.of_name(Self::DELETE_BRIDGE, name)
    }

    /// Sets an interface up, and none of its other flags.
    pub(crate) fn set_up(&self, name: &str) -> io::Result<()> {
        self.set_flags(name, libc::IFF_UP as libc::c_short)
    }

    /// Gives an interface its address, in place of the one that it has.
    pub(crate) fn set_address(&self, name: &str, ip: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
        self.with(name, Self::SET_ADDRESS, |request| {
            request.ifr_ifru.ifru_addr = address(ip);
        })?;
        self.with(name, Self::SET_MASK, |request| {
            request.ifr_ifru.ifru_netmask = address(mask);
        })
    }

    fn set_flags(&self, name: &str, flags: libc::c_short) -> io::Result<()> {
        self.with(name, Self::SET_FLAGS, |request| {
            request.ifr_ifru.ifru_flags = flags;
        })
    }

    fn of_name(&self, request: libc::c_ulong, name: &str) -> io::Result<()> {
        let name = std::ffi::CString::new(name)?;
        // SAFETY: the kernel reads a name that ends with NUL, which outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, name.as_ptr()) };
        outcome(done)
    }

    fn with(
        &self,
        name: &str,
        code: libc::c_ulong,
        fill: impl FnOnce(&mut libc::ifreq),
    ) -> io::Result<()> {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        fill(&mut request);
        // SAFETY: the kernel reads a request of this type, which outlives the call.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), code as _, &raw const request) };
        outcome(done)
    }
}

fn outcome(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An address of IPv4 in the kernel's form: family, port, and four bytes.
fn address(ip: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
    address.sa_family = libc::AF_INET as libc::sa_family_t;
    for (to, from) in address.sa_data[2..6].iter_mut().zip(ip.octets()) {
        *to = from as libc::c_char;
    }
    address
}
