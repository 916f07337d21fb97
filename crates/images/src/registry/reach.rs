//! Addresses that are not contacted for an image: those of a cloud's metadata service never, because it gives the machine's
//! credentials to programs on it; and this machine's own only for a registry on it. Pods name registries, and registries name
//! the targets of redirects and token servers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use allot_apimachinery::metadata_service::{embedded_ipv4, is_metadata_service};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;
use url::{Host, Url};

/// An address at which no other machine serves: of the loopback interface, of all interfaces, or of a metadata service.
fn is_own(address: IpAddr) -> bool {
    let here = match address {
        IpAddr::V4(it) => it.is_loopback() || it.is_unspecified(),
        IpAddr::V6(it) => {
            // Also `::`.
            it.is_loopback() || embedded_ipv4(it).is_some_and(|it| is_own(it.into()))
        }
    };
    here || is_metadata_service(address)
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

/// Whether the host of a URL is the address of a metadata service. A name can still resolve to one: see [`Resolver`].
pub(super) fn names_metadata(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_metadata_service(address.into()),
        Some(Host::Ipv6(address)) => is_metadata_service(address.into()),
        Some(Host::Domain(_)) | None => false,
    }
}

/// Resolves host names again for each connection. No name resolves to a metadata service, and other names than that of the
/// registry do not resolve to addresses of this machine, unless the registry is on it.
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

    /// The addresses of a name that may be connected to.
    fn permitted(&self, name: &str, mut all: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let any = self.here || name == self.own;
        all.retain(|address| match any {
            true => !is_metadata_service(address.ip()),
            false => !is_own(address.ip()),
        });
        match all.is_empty() {
            true => Err(io::Error::other(
                "the name resolves only to addresses of this machine or of a metadata service",
            )),
            false => Ok(all),
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
        let (this, asked) = (self.clone(), name.as_str().to_owned());
        let found = self.inner.call(name);
        async move {
            let all = this.permitted(&asked, found.await?.collect())?;
            Ok(all.into_iter())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: [&str; 20] = [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.0.23",
        "0xa9fea9fe",
        "2852039166",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "[::ffff:169.254.169.254]",
        "[::ffff:100.100.100.200]",
        "[::168.63.129.16]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[fe80::a9fe:a9fe]",
        "[fd00:ec2::254]",
        "[fd00:ec2::23]",
        "[fd20:ce::254]",
        "[fd00:c1::a9fe:a9fe]",
        "[fd00:42::42]",
    ];

    /// Resolves every name to the same addresses, as a name server of an attacker does.
    async fn rebound(registry: &str, addresses: &[IpAddr]) -> io::Result<Vec<SocketAddr>> {
        let resolver = Resolver::new(&Url::parse(registry).unwrap());
        let all = addresses.iter().map(|it| SocketAddr::new(*it, 0)).collect();
        resolver.permitted("registry.example.com", all)
    }

    /// The attack: a pod names a registry, or a registry the target of a redirect, whose name resolves to the metadata service.
    #[tokio::test]
    async fn no_name_resolves_to_a_metadata_service() {
        let parse = |host: &str| match Url::parse(&format!("http://{host}/")).unwrap().host() {
            Some(Host::Ipv4(it)) => IpAddr::from(it),
            Some(Host::Ipv6(it)) => it.into(),
            other => panic!("{other:?}"),
        };
        let elsewhere: IpAddr = "192.0.2.7".parse().unwrap();
        for host in METADATA {
            let address = parse(host);
            for registry in [
                "https://registry.example.com",
                "https://other.example.com",
                "http://127.0.0.1:5000",
            ] {
                assert!(rebound(registry, &[address]).await.is_err(), "{host}");
                let left = rebound(registry, &[address, elsewhere]).await.unwrap();
                assert_eq!(left, [SocketAddr::new(elsewhere, 0)], "{host}");
            }
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_form() {
        let url = |host: &str| Url::parse(&format!("http://{host}/x")).unwrap();
        for host in METADATA {
            assert!(
                names_metadata(&url(host)) && leads_here(&url(host)),
                "{host}"
            );
        }
        for host in [
            "127.0.0.1",
            "[::1]",
            "100.100.100.201",
            "168.63.129.17",
            "169.253.169.254",
            "[64:ff9b::808:808]",
            "[2002:808:808::1]",
            "[fd00:ec3::254]",
            "[2001:db8::1]",
        ] {
            assert!(!names_metadata(&url(host)), "{host}");
        }
    }

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
