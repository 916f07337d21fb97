//! The address of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use allot_apiserver::source_to;

use crate::bounds;

/// A documentation address, which no machine has: only the default route leads to it.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));

/// The address of a node, and where it listens. Without `--node-ip` the address is that of `--listen` if it is one of a machine,
/// else that of this machine.
pub fn addresses(node_ip: Option<IpAddr>, listen: Option<SocketAddr>) -> (IpAddr, SocketAddr) {
    let own = listen.filter(|it| is_of_machine(it.ip()));
    let ip = node_ip.or(own.map(|it| it.ip()));
    let ip = ip.unwrap_or_else(own_address);
    (ip, listen.unwrap_or((ip, 0).into()))
}

fn is_of_machine(ip: IpAddr) -> bool {
    bounds::node_ip(&ip.to_string()).is_ok()
}

/// The address that other machines know this one by, as a kubelet chooses it: of IPv4, that of the default route's interface. Without
/// a default route it is that of any other interface, and loopback only if there is no other.
fn own_address() -> IpAddr {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let up = interfaces.iter().filter(|it| it.is_oper_up());
    choose(source_to(ELSEWHERE).ok(), up.map(|it| it.addr.ip()))
}

fn choose(of_route: Option<IpAddr>, all: impl Iterator<Item = IpAddr>) -> IpAddr {
    let mut possible = of_route.into_iter().chain(all);
    let found = possible.find(|ip| is_of_machine(*ip) && !ip.is_loopback());
    found.unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_node_is_reached_where_it_listens() {
        let check = |node_ip: Option<&str>, listen: Option<&str>, expected: (&str, &str)| {
            let listen = listen.map(|it| it.parse().expect("an address with a port"));
            let (ip, listen) = addresses(node_ip.map(parse), listen);
            assert_eq!((&*ip.to_string(), &*listen.to_string()), expected);
        };
        check(Some("192.0.2.2"), None, ("192.0.2.2", "192.0.2.2:0"));
        check(None, Some("192.0.2.2:1"), ("192.0.2.2", "192.0.2.2:1"));
        check(None, Some("127.0.0.1:1"), ("127.0.0.1", "127.0.0.1:1"));
        let all = (Some("192.0.2.3"), Some("0.0.0.0:1"));
        check(all.0, all.1, ("192.0.2.3", "0.0.0.0:1"));
        let own = own_address().to_string();
        check(None, None, (&own, &format!("{own}:0")));
        check(None, Some("0.0.0.0:1"), (&own, "0.0.0.0:1"));
        check(None, Some("[::]:1"), (&own, "[::]:1"));
    }

    /// Endpoints and EndpointSlices refuse loopback addresses: pods on such a node are reached by no service.
    #[test]
    fn regression_a_node_has_a_loopback_address_only_if_there_is_no_other() {
        let check = |of_route: Option<&str>, all: &[&str], expected: &str| {
            let chosen = choose(of_route.map(parse), all.iter().map(|it| parse(it)));
            assert_eq!(chosen, parse(expected), "{of_route:?}, {all:?}");
        };
        let machine = [
            "127.0.0.1",
            "169.254.7.7",
            "fd00::2",
            "10.0.0.2",
            "10.1.0.2",
        ];
        check(Some("10.1.0.2"), &machine, "10.1.0.2");
        check(None, &machine, "10.0.0.2");
        // Some machines route everything to a proxy of their own.
        check(Some("127.0.0.1"), &machine, "10.0.0.2");
        check(None, &["127.0.0.1", "::1"], "127.0.0.1");
        check(None, &[], "127.0.0.1");
    }
}
