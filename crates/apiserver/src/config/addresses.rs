//! The networks that services get addresses from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use allot_apimachinery::IpFamily;

/// The bits of an address.
fn bits(family: IpFamily) -> u32 {
    match family {
        IpFamily::V4 => 32,
        IpFamily::V6 => 128,
    }
}

/// Networks of IPv6 with more addresses than these bits count are refused, as by kube-apiserver.
const MOST_HOST_BITS: u32 = 64;

/// The fewest addresses, all counted, of the network that has the address of the service `kubernetes`.
const FEWEST: u128 = 8;

/// The addresses of IPv6 that stand for ones of IPv4.
const MAPPED: RangeInclusive<u128> = 0xffff_0000_0000..=0xffff_ffff_ffff;

/// A network, of which services get addresses. It is never listed: with IPv6 it may have 2⁶⁴ addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRange {
    family: IpFamily,
    /// The lowest address.
    network: u128,
    /// The bits in which the addresses differ; at most 64.
    host_bits: u32,
}

impl ServiceRange {
    /// The family of its addresses.
    pub fn family(&self) -> IpFamily {
        self.family
    }

    /// The first address that a service may have.
    pub fn first(&self) -> IpAddr {
        self.address(self.network + 1)
    }

    /// Whether an address is in the network.
    pub fn has(&self, ip: IpAddr) -> bool {
        IpFamily::of(ip) == self.family
            && number(ip) >> self.host_bits == self.network >> self.host_bits
    }

    /// Whether a service may have the address.
    pub fn gives(&self, ip: IpAddr) -> bool {
        self.has(ip) && self.usable().contains(&number(ip))
    }

    /// How many addresses the network has, those included that no service gets.
    pub fn size(&self) -> u128 {
        1 << self.host_bits
    }

    /// What services may have, as numbers: all but the network's own address and, of IPv4, that of its broadcasts.
    pub fn usable(&self) -> RangeInclusive<u128> {
        let kept = match self.family {
            IpFamily::V4 => 2,
            IpFamily::V6 => 1,
        };
        match self.size().checked_sub(kept) {
            None | Some(0) => RangeInclusive::new(1, 0),
            Some(usable) => self.network + 1..=self.network + usable,
        }
    }

    /// The address with a number.
    pub fn address(&self, number: u128) -> IpAddr {
        match (self.family, u32::try_from(number)) {
            (IpFamily::V4, Ok(number)) => Ipv4Addr::from_bits(number).into(),
            _ => Ipv6Addr::from_bits(number).into(),
        }
    }
}

/// An address as a number.
fn number(ip: IpAddr) -> u128 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = bits(self.family) - self.host_bits;
        write!(f, "{}/{length}", self.address(self.network))
    }
}

/// Why a text names no network that services can get addresses from.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// It is no network at all.
    #[error("not a valid cidr")]
    NoNetwork,
    /// It has more addresses than are permitted; with the length of its prefix.
    #[error("shortest allowed prefix length for service CIDR is 64, got {0}")]
    TooLarge(u32),
    /// Some of its addresses stand for ones of IPv4.
    #[error("must not have IPv4-mapped IPv6 addresses")]
    Mapped,
}

impl FromStr for ServiceRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let none = || RangeError::NoNetwork;
        let (address, length) = text.split_once('/').ok_or_else(none)?;
        let address: IpAddr = address.parse().map_err(|_| none())?;
        let digits = length.bytes().all(|it| it.is_ascii_digit());
        let length: u32 = length.parse().ok().filter(|_| digits).ok_or_else(none)?;
        let (family, number) = match address {
            IpAddr::V4(ip) => (IpFamily::V4, u128::from(ip.to_bits())),
            IpAddr::V6(ip) => (IpFamily::V6, ip.to_bits()),
        };
        let host_bits = bits(family).checked_sub(length).ok_or_else(none)?;
        if host_bits > MOST_HOST_BITS {
            return Err(RangeError::TooLarge(length));
        }
        let network = number >> host_bits << host_bits;
        let last = network + ((1 << host_bits) - 1);
        if family == IpFamily::V6 && network <= *MAPPED.end() && *MAPPED.start() <= last {
            return Err(RangeError::Mapped);
        }
        Ok(ServiceRange {
            family,
            network,
            host_bits,
        })
    }
}

/// The networks that the server was started with, as `--service-cluster-ip-range` names them: one, or one of each family.
/// The first is that of services which name no family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceAddresses {
    primary: ServiceRange,
    secondary: Option<ServiceRange>,
}

impl ServiceAddresses {
    /// The network of services which name no family.
    pub fn primary(&self) -> ServiceRange {
        self.primary
    }

    /// The address of the service `kubernetes`.
    pub fn first(&self) -> IpAddr {
        self.primary.first()
    }

    /// The networks, the first of them that of services which name no family.
    pub fn ranges(&self) -> impl Iterator<Item = ServiceRange> {
        std::iter::once(self.primary).chain(self.secondary)
    }

    /// The network of a family.
    pub fn of(&self, family: IpFamily) -> Option<ServiceRange> {
        self.ranges().find(|it| it.family == family)
    }

    /// The family of services which name none.
    pub fn family(&self) -> IpFamily {
        self.primary.family
    }

    /// Whether services may have addresses of both families.
    pub fn is_dual_stack(&self) -> bool {
        self.secondary.is_some()
    }

    /// Whether an address is in one of the networks.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.ranges().any(|it| it.has(ip))
    }
}

impl Default for ServiceAddresses {
    fn default() -> Self {
        ServiceAddresses {
            primary: ServiceRange {
                family: IpFamily::V4,
                network: Ipv4Addr::new(10, 96, 0, 0).to_bits().into(),
                host_bits: 16,
            },
            secondary: None,
        }
    }
}

impl fmt::Display for ServiceAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.primary.fmt(f)?;
        self.secondary.iter().try_for_each(|it| write!(f, ",{it}"))
    }
}

impl FromStr for ServiceAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let network = |at: usize, none: &str| {
            let parsed = parts[at].parse::<ServiceRange>();
            parsed.map_err(|why| match why {
                RangeError::NoNetwork => none.to_owned(),
                other => format!("service-cluster-ip-range[{at}]: {other}"),
            })
        };
        let primary = network(0, "service-cluster-ip-range[0] is not a valid cidr")?;
        if primary.size() < FEWEST {
            return Err(format!(
                "error determining service IP ranges for primary service cidr: the service cluster IP range must be at least \
                 {FEWEST} IP addresses"
            ));
        }
        let secondary = match parts.len() {
            1 => None,
            2 => Some(network(1, "service-cluster-ip-range[1] is not an ip net")?),
            _ => {
                let why = "--service-cluster-ip-range must not contain more than two entries";
                return Err(why.to_owned());
            }
        };
        if secondary.is_some_and(|it| it.family == primary.family) {
            let why = "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family";
            return Err(why.to_owned());
        }
        Ok(ServiceAddresses { primary, secondary })
    }
}

#[cfg(test)]
mod tests;
