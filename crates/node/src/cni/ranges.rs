//! The addresses of a cluster's bridge: an IPv4 network, an IPv6 network if one is configured, and the parts of the nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

/// Most bits between the network and the part of a node, as with kube-controller-manager.
const MOST_BITS: u8 = 16;

/// Which addresses pods have on a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    /// The IPv4 network; one that is free on the machine when absent.
    pub(super) v4: Option<Ipv4Net>,
    /// The IPv6 network.
    pub(super) v6: Option<Ipv6Net>,
    /// Length of the prefix of a node's part, for IPv4 and IPv6.
    pub(super) nodes: (u8, u8),
}

impl Default for Ranges {
    /// IPv4 only, of a network that is free.
    fn default() -> Self {
        Self {
            v4: None,
            v6: None,
            nodes: (24, 64),
        }
    }
}

/// Why networks cannot be those of pods.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Two networks of one family, or more than two.
    #[error("expected one IPv4 network, or one IPv4 and one IPv6 network")]
    Families,
    /// Only IPv6: pods reach the API server by IPv4.
    #[error("pods with IPv6 addresses only are not possible: name an IPv4 network besides")]
    OnlyIpv6,
    /// An address with bits beyond the prefix.
    #[error("{0} has bits set beyond the prefix length")]
    Bits(IpNet),
    /// A network that no pod can have addresses of.
    #[error("{0} is of the loopback interface, of the link, or for several receivers")]
    Unusable(IpNet),
    /// Too small or too large for the parts of nodes.
    #[error(
        "{network}: the part of a node, of /{node}, must be within it, have at least two addresses of pods, and not be more than {MOST_BITS} bits longer"
    )]
    Size {
        /// The network.
        network: IpNet,
        /// Length of the prefix of a node's part.
        node: u8,
    },
}

impl Ranges {
    /// The networks that kube-controller-manager's flags `--cluster-cidr`, `--node-cidr-mask-size-ipv4` and
    /// `--node-cidr-mask-size-ipv6` name.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn new(networks: &[IpNet], nodes: (u8, u8)) -> Result<Self, RangeError> {
        let mut ranges = Self {
            nodes,
            ..Self::default()
        };
        for network in networks {
            match network {
                IpNet::V4(it) if ranges.v4.is_none() => ranges.v4 = Some(*it),
                IpNet::V6(it) if ranges.v6.is_none() => ranges.v6 = Some(*it),
                _ => return Err(RangeError::Families),
            }
            check(*network, nodes)?;
        }
        match (ranges.v4, ranges.v6) {
            (None, Some(_)) => Err(RangeError::OnlyIpv6),
            // The parts of nodes must fit into the network that is chosen, too.
            (None, None) => check(any_v4().into(), nodes).map(|()| ranges),
            (Some(_), _) => Ok(ranges),
        }
    }

    /// An IPv6 network besides the IPv4 network that is free.
    #[must_use]
    pub fn with_ipv6(mut self, network: Ipv6Net) -> Self {
        self.v6 = Some(network);
        self
    }
}

/// A network of the size of those that are chosen, to check lengths of prefixes.
pub(super) fn any_v4() -> Ipv4Net {
    candidate(u8::MAX)
}

/// The network of a number, of which one is chosen.
pub(super) fn candidate(number: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, number, 0, 0), 16)
}

fn check(network: IpNet, nodes: (u8, u8)) -> Result<(), RangeError> {
    if network.trunc() != network {
        return Err(RangeError::Bits(network));
    }
    let address = network.addr();
    let (node, most) = match address {
        IpAddr::V4(_) => (nodes.0, 30),
        IpAddr::V6(_) => (nodes.1, 126),
    };
    let of_link = match address {
        IpAddr::V4(it) => it.is_link_local() || it.is_unspecified(),
        IpAddr::V6(it) => it.is_unicast_link_local() || it.is_unspecified(),
    };
    if address.is_loopback() || address.is_multicast() || of_link {
        return Err(RangeError::Unusable(network));
    }
    let length = network.prefix_len();
    if node < length || node > most || node - length > MOST_BITS {
        return Err(RangeError::Size { network, node });
    }
    Ok(())
}

/// The address of the host on the bridge: the first one.
pub(super) fn gateway_v4(network: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from_bits(network.network().to_bits() | 1)
}

fn gateway_v6(network: Ipv6Net) -> Ipv6Addr {
    Ipv6Addr::from_bits(network.network().to_bits() | 1)
}

/// The part of a node, and its range in the configuration of the plugin `host-local`; `None` if there are fewer parts.
pub(super) fn part_v4(network: Ipv4Net, length: u8, index: u32) -> Option<(IpNet, Value)> {
    let parts = 1_u32 << u32::from(length.checked_sub(network.prefix_len())?);
    let shift = 32 - u32::from(length);
    let first = network.network().to_bits() | (index < parts).then_some(index << shift)?;
    let part = Ipv4Net::new(Ipv4Addr::from_bits(first), length).ok()?;
    let gateway = gateway_v4(network);
    // The first address of the first node is the host's; the last one of a part is for all of it.
    let begin = first + if part.contains(&gateway) { 2 } else { 1 };
    let end = part.broadcast().to_bits() - 1;
    let range = json!({
        "subnet": network.to_string(),
        "rangeStart": Ipv4Addr::from_bits(begin),
        "rangeEnd": Ipv4Addr::from_bits(end),
        "gateway": gateway,
    });
    Some((part.into(), range))
}

/// [`part_v4`] of an IPv6 network.
pub(super) fn part_v6(network: Ipv6Net, length: u8, index: u32) -> Option<(IpNet, Value)> {
    let parts = 1_u32 << u32::from(length.checked_sub(network.prefix_len())?);
    let shift = 128 - u32::from(length);
    let number = u128::from((index < parts).then_some(index)?);
    let first = network.network().to_bits() | number << shift;
    let part = Ipv6Net::new(Ipv6Addr::from_bits(first), length).ok()?;
    let gateway = gateway_v6(network);
    let begin = first + if part.contains(&gateway) { 2 } else { 1 };
    let range = json!({
        "subnet": network.to_string(),
        "rangeStart": Ipv6Addr::from_bits(begin),
        "rangeEnd": part.broadcast(),
        "gateway": gateway,
    });
    Some((part.into(), range))
}

/// Whether a route of the machine, in the form of `/proc/net/route`, overlaps with a network. Default routes do not count, also
/// those that are written as two halves of all addresses.
pub(super) fn is_used_v4(routes: &str, network: Ipv4Net) -> bool {
    let own = network.network().to_bits();
    let own_mask = network.netmask().to_bits();
    routes.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // In the byte order of the machine.
        let number = |index: usize| {
            let text = fields.get(index)?;
            u32::from_str_radix(text, 16).ok().map(u32::from_be)
        };
        let (Some(destination), Some(mask)) = (number(1), number(7)) else {
            return false;
        };
        mask.count_ones() >= 8 && (destination ^ own) & mask & own_mask == 0
    })
}

/// [`is_used_v4`] of an IPv6 network, in the form of `/proc/net/ipv6_route`. Routes by the bridge itself do not count, and
/// neither do those to the machine's own addresses, which older kernels show by the loopback interface.
pub(super) fn is_used_v6(routes: &str, network: Ipv6Net, bridge: &str) -> bool {
    let own = network.network().to_bits();
    routes.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(destination), Some(length)) = (fields.first(), fields.get(1)) else {
            return false;
        };
        let destination = u128::from_str_radix(destination, 16).ok();
        let length = u32::from_str_radix(length, 16).ok();
        let (Some(destination), Some(length)) = (destination, length) else {
            return false;
        };
        let common = length.min(network.prefix_len().into());
        let same = (destination ^ own).leading_zeros() >= common;
        let device = fields.last().copied().unwrap_or_default();
        length >= 8 && same && device != bridge && device != "lo"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect(text)
    }

    #[test]
    fn networks_are_those_of_kube_controller_manager() {
        let of = |networks: &[&str], nodes: (u8, u8)| {
            let networks: Vec<IpNet> = networks.iter().map(|it| parse(it)).collect();
            Ranges::new(&networks, nodes)
        };
        assert_eq!(of(&[], (24, 64)), Ok(Ranges::default()));
        let both = of(&["fd00:10::/48", "10.9.0.0/16"], (24, 64)).expect("ranges");
        assert_eq!(both.v4, Some(parse("10.9.0.0/16")));
        assert_eq!(both.v6, Some(parse("fd00:10::/48")));
        for (networks, nodes, expected) in [
            (vec!["fd00:10::/48"], (24, 64), "IPv6 addresses only"),
            (vec!["10.9.0.0/16", "10.8.0.0/16"], (24, 64), "one IPv4"),
            (vec!["10.9.1.0/16"], (24, 64), "beyond the prefix"),
            (vec!["127.0.0.0/16"], (24, 64), "loopback"),
            (vec!["169.254.0.0/16"], (24, 64), "of the link"),
            (vec!["224.0.0.0/16"], (24, 64), "several receivers"),
            (vec!["10.9.0.0/16", "fe80::/48"], (24, 64), "of the link"),
            (vec!["10.9.0.0/25"], (24, 64), "must be within it"),
            (vec!["10.9.0.0/16"], (31, 64), "at least two"),
            (vec![], (15, 64), "must be within it"),
            (vec!["10.0.0.0/8"], (25, 64), "more than 16 bits"),
            (
                vec!["10.9.0.0/16", "fd00::/40"],
                (24, 64),
                "more than 16 bits",
            ),
        ] {
            let error = of(&networks, nodes).expect_err("an error").to_string();
            assert!(error.contains(expected), "{networks:?}: {error}");
        }
    }

    #[test]
    fn nodes_have_parts() {
        let four: Ipv4Net = parse("10.9.0.0/22");
        let part = |index| {
            part_v4(four, 24, index).map(|(part, range)| {
                (
                    part.to_string(),
                    range["rangeStart"].clone(),
                    range["rangeEnd"].clone(),
                )
            })
        };
        let expected =
            |part: &str, begin: &str, end: &str| Some((part.to_owned(), json!(begin), json!(end)));
        assert_eq!(part(0), expected("10.9.0.0/24", "10.9.0.2", "10.9.0.254"));
        assert_eq!(part(3), expected("10.9.3.0/24", "10.9.3.1", "10.9.3.254"));
        assert_eq!(part(4), None);
        let six: Ipv6Net = parse("fd00:9::/48");
        let part = |index| {
            part_v6(six, 64, index).map(|(part, range)| {
                (
                    part.to_string(),
                    range["rangeStart"].clone(),
                    range["rangeEnd"].clone(),
                )
            })
        };
        let end = "fd00:9::ffff:ffff:ffff:ffff";
        assert_eq!(part(0), expected("fd00:9::/64", "fd00:9::2", end));
        let end = "fd00:9:0:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(
            part(65_535),
            expected("fd00:9:0:ffff::/64", "fd00:9:0:ffff::1", end)
        );
        assert_eq!(part(65_536), None);
    }

    #[test]
    fn networks_that_the_machine_has_are_left_alone() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000C90A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
            eth1\t0301CB0A\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            damaged\n";
        let used =
            |routes: &str, network: u8| is_used_v4(routes, parse(&format!("10.{network}.0.0/16")));
        if cfg!(target_endian = "little") {
            assert!(used(routes, 201));
            assert!(!used(routes, 202));
            assert!(used(routes, 203));
            let all = "h\ne\t0000000A\t0\t0\t0\t0\t0\t000000FF\n";
            assert!(used(all, 254));
            let half = "h\ne\t00000000\t0\t0\t0\t0\t0\t00000080\n";
            assert!(!used(half, 254));
        }
        let route = |destination: &str, length: &str, device: &str| {
            let none = "0".repeat(32);
            format!(
                "{destination} {length} {none} 00 {none} 00000100 00000001 00000000 00000001 {device:>8}\n"
            )
        };
        let network: Ipv6Net = parse("fd00:9::/48");
        for (destination, length, device, expected) in [
            ("fd000009000000010000000000000000", "40", "eth0", true),
            ("fd000009000000010000000000000000", "40", "b", false),
            ("fd000009000000000000000000000001", "80", "lo", false),
            ("fd000000000000000000000000000000", "08", "eth0", true),
            ("fd000010000000000000000000000000", "20", "eth0", false),
            ("00000000000000000000000000000000", "00", "eth0", false),
            ("x", "40", "eth0", false),
        ] {
            let line = route(destination, length, device);
            assert_eq!(is_used_v6(&line, network, "b"), expected, "{line}");
        }
    }
}
