//! The families of IP addresses, as the API names them.

use std::net::IpAddr;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpFamily {
    /// Addresses of 32 bits.
    V4,
    /// Addresses of 128 bits.
    V6,
}

impl IpFamily {
    /// The name in Services, EndpointSlices and labels of IPAddresses.
    pub fn name(self) -> &'static str {
        match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        }
    }

    /// The family with this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [IpFamily::V4, IpFamily::V6];
        all.into_iter().find(|family| family.name() == name)
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            IpFamily::V4 => IpFamily::V6,
            IpFamily::V6 => IpFamily::V4,
        }
    }

    /// The family of an address. An IPv4 address inside of an IPv6 one is an IPv4 address: connections go there.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(_) => IpFamily::V4,
            IpAddr::V6(_) => IpFamily::V6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_names() {
        for (family, address) in [
            (IpFamily::V4, "10.1.0.9"),
            (IpFamily::V4, "::ffff:10.1.0.9"),
            (IpFamily::V6, "::10.1.0.9"),
            (IpFamily::V6, "fd00::1"),
        ] {
            assert_eq!(IpFamily::of(address.parse().unwrap()), family, "{address}");
            assert_eq!(IpFamily::named(family.name()), Some(family));
            assert_ne!(family.other(), family);
        }
        assert_eq!(IpFamily::named("ipv4"), None);
    }
}
