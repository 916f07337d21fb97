//! The addresses of metadata services of clouds: they give the machine's credentials to every program on it that asks, so a
//! component must not be led to them by an address that a user has written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metadata services of clouds, and similar services for the machine itself only, as networks with the length of the prefix.
/// The usual address, 169.254.169.254, is link-local.
const METADATA_V4: [(Ipv4Addr, u32); 4] = [
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Alibaba Cloud
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    // Azure: WireServer
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Oracle Cloud, of the first generation
    (Ipv4Addr::new(192, 0, 0, 192), 32),
];
const METADATA_V6: [(Ipv6Addr, u32); 5] = [
    // OpenStack and others: fe80::a9fe:a9fe
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    // Amazon: fd00:ec2::254, and ::23 for the credentials of pods
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    // Google: fd20:ce::254
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0), 32),
    // Oracle Cloud: fd00:c1::a9fe:a9fe
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0, 0), 32),
    // Scaleway
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128),
];

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, or by the prefixes of NAT64 and 6to4, whose gateways
/// connect to it.
pub fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let last = |of: Ipv6Addr| {
        let [.., a, b, c, d] = of.octets();
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0x64, 0xff9b, 0 | 1, ..] => Some(last(address)),
        [0x2002, high, low, ..] => {
            let bits = u32::from(high) << 16 | u32::from(low);
            Some(Ipv4Addr::from_bits(bits))
        }
        _ => address.to_ipv4(),
    }
}

/// Whether an address is that of the metadata service of a cloud, or link-local, as most of them are. Nothing that users name has
/// such an address: no request is sent to it on behalf of a pod, a registry or a client of the API.
pub fn is_metadata_service(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => METADATA_V4
            .iter()
            .any(|(network, length)| (it.to_bits() ^ network.to_bits()).leading_zeros() >= *length),
        IpAddr::V6(it) => {
            let listed = METADATA_V6.iter().any(|(network, length)| {
                (it.to_bits() ^ network.to_bits()).leading_zeros() >= *length
            });
            listed || embedded_ipv4(it).is_some_and(|it| is_metadata_service(it.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_in_every_form() {
        let is = |text: &str| is_metadata_service(text.parse().expect("an address"));
        for text in [
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fe80::a9fe:a9fe",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "::ffff:169.254.169.254",
            "::a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(is(text), "{text}");
        }
        for text in [
            "127.0.0.1",
            "10.0.0.1",
            "100.100.100.201",
            "169.253.169.254",
            "::1",
            "fd00::1",
            "fd00:ec3::254",
            "64:ff9b::808:808",
        ] {
            assert!(!is(text), "{text}");
        }
    }
}
