//! Addresses that a registry may redirect to: those of other servers, and neither this machine's own nor that of the metadata
//! service of a cloud.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;
use url::{Host, Url};

/// An address at which no other machine serves: of the loopback interface, of all interfaces, or of the link only, where clouds
/// serve credentials of the machine.
fn is_own(address: IpAddr) -> bool {
    /// A metadata service whose address is not of the link.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address {
        IpAddr::V4(it) => it.is_loopback() || it.is_unspecified() || it.is_link_local(),
        IpAddr::V6(it) => match it.to_ipv4() {
            // Also `::` and `::1`.
            Some(inner) => it.is_loopback() || is_own(inner.into()),
            None => it.is_unicast_link_local() || it == METADATA,
        },
    }
}

fn is_own_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether a URL names this machine. A name can still resolve to such an address: see [`Resolver`].
pub(super) fn leads_here(url: &Url) -> bool {
    match url.host() {
        None => true,
        Some(Host::Domain(name)) => is_own_name(name),
        Some(Host::Ipv4(address)) => is_own(address.into()),
        Some(Host::Ipv6(address)) => is_own(address.into()),
    }
}

/// Resolves host names. Other names than that of the registry do not resolve to addresses of this machine, unless the registry
/// is on it.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    inner: GaiResolver,
    /// The host of the registry.
    own: String,
    here: bool,
}

impl Resolver {
    /// For a registry at an address.
    pub(super) fn new(registry: &Url) -> Self {
        Self {
            inner: GaiResolver::new(),
            own: registry.host_str().unwrap_or_default().to_owned(),
            here: leads_here(registry),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let any = self.here || name.as_str() == self.own;
        let found = self.inner.call(name);
        async move {
            let mut all: Vec<SocketAddr> = found.await?.collect();
            all.retain(|address| any || !is_own(address.ip()));
            match all.is_empty() {
                true => Err(io::Error::other(
                    "the name resolves only to addresses of this machine",
                )),
                false => Ok(all.into_iter()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known_in_every_form() {
        let url = |host: &str| Url::parse(&format!("http://{host}/x")).unwrap();
        for host in [
            "localhost:5000",
            "LOCALHOST.",
            "a.localhost",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0.0.0.0",
            "0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::7f00:1]",
            "169.254.169.254",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
            "[fd00:ec2::254]",
        ] {
            assert!(leads_here(&url(host)), "{host}");
        }
        for host in [
            "example.com",
            "10.0.0.1",
            "192.168.1.1",
            "[fd00::1]",
            "localhost.example.com",
            "8.8.8.8",
        ] {
            assert!(!leads_here(&url(host)), "{host}");
        }
    }

    #[tokio::test]
    async fn names_that_a_registry_names_do_not_resolve_to_this_machine() {
        let look = |registry: &str| {
            let mut resolver = Resolver::new(&Url::parse(registry).unwrap());
            resolver.call("localhost".parse().unwrap())
        };
        assert!(look("https://registry.example.com").await.is_err());
        assert!(look("http://127.0.0.1:5000").await.is_ok());
        assert!(look("http://localhost:5000").await.is_ok());
    }
}
