//! Connections that the server opens to addresses which clients have written: of nodes, pods and endpoints, and of
//! webhooks.
//!
//! A client that writes such an address must not reach through the server what it cannot reach itself: services on its
//! loopback interface, and the metadata service of a cloud on a link-local address. A name is resolved once, all of its
//! addresses are checked, and the connection goes to one of those addresses, so that a name cannot lead to another one
//! after the check. No redirect is followed anywhere.

use std::io;
use std::net::IpAddr;

use allot_apimachinery::metadata_service::is_metadata_service;
use tokio::net::TcpStream;

pub(crate) mod head;

/// The error for an address that is not dialed; the text is upstream's.
pub(crate) const REFUSED: &str = "address not allowed";

/// What may be dialed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Global unicast addresses, as upstream proxies to.
    Network,
    /// Also the loopback interface, where something else makes sure of what answers there.
    Host,
}

impl Reach {
    /// Whether the address may be dialed.
    pub(crate) fn allows(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let reserved = match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !(reserved
            || ip.is_unspecified()
            || ip.is_multicast()
            || is_metadata_service(ip)
            || self == Reach::Network && ip.is_loopback())
    }
}

/// Whether the address is one of this host, on whichever of its interfaces. To one of its own a host sends from that
/// address itself. Binding a socket would tell less: with `ip_nonlocal_bind` a host can bind any address. If it cannot
/// be determined, it may be one.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        return true;
    }
    match source_to(ip) {
        Ok(source) => source.to_canonical() == ip,
        // Without a route or the family of addresses it is not reached at all.
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::Unsupported
        ),
    }
}

/// The address from which this host would send to another one. Nothing is sent: to connect a UDP socket looks up the route.
///
/// # Errors
/// There is no route to the address, or no socket of its family.
pub fn source_to(ip: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect((ip, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The error if the address is not one that may be dialed.
pub(crate) fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, REFUSED)
}

/// Whether [`connect`] has refused the address.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.to_string() == REFUSED
}

/// Connects to a host, an address or a name.
///
/// # Errors
/// [`refused`] if one of its addresses may not be dialed, and those of the resolver and the network.
pub(crate) async fn connect(host: &str, port: u16, reach: Reach) -> io::Result<TcpStream> {
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if !found.iter().all(|address| reach.allows(address.ip())) {
        return Err(refused());
    }
    let stream = TcpStream::connect(&found[..]).await?;
    // Only a matter of speed.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVED: [&str; 17] = [
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "::",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:0.0.0.0",
        "::ffff:169.254.169.254",
        "::ffff:100.100.100.200",
        "64:ff9b::a9fe:a9fe",
    ];
    const LOOPBACK: [&str; 4] = ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"];

    #[test]
    fn only_global_unicast_addresses_are_dialed() {
        let allows = |reach: Reach, text: &str| reach.allows(text.parse().unwrap());
        for text in ["10.0.0.7", "192.0.2.1", "2001:db8::1", "fd00::1"] {
            assert!(allows(Reach::Network, text), "{text}");
        }
        for text in RESERVED {
            assert!(!allows(Reach::Network, text), "{text}");
            assert!(!allows(Reach::Host, text), "{text}");
        }
        for text in LOOPBACK {
            assert!(!allows(Reach::Network, text), "{text}");
            assert!(allows(Reach::Host, text), "{text}");
        }
    }

    /// A bridge, or the address that others reach the host at, leads to its processes as the loopback interface does.
    #[test]
    fn regression_all_addresses_of_the_host_are_its_own() {
        for text in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_own(text.parse().unwrap()), "{text}");
        }
        // For documentation: no interface has them.
        for text in ["192.0.2.1", "203.0.113.7", "::ffff:192.0.2.1"] {
            assert!(!is_own(text.parse().unwrap()), "{text}");
        }
        // The address from which the host would send to others, if it has a route to them.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_own(own), "{own}");
        }
    }

    /// A name that resolves to the loopback interface is as good as its address.
    #[tokio::test]
    async fn the_addresses_of_names_are_checked() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["localhost", "127.0.0.1"] {
            let error = connect(host, port, Reach::Network).await.unwrap_err();
            assert!(is_refused(&error), "{host}: {error}");
            connect(host, port, Reach::Host).await.unwrap();
        }
    }
}
