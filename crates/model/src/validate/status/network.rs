//! Addresses of network interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::quote::quote;

/// Checks an address with its prefix length, as `10.9.8.7/24`: it must be valid and in canonical form.
pub(super) fn interface_address(value: &str, path: &Path) -> ErrorList {
    let Some((address, prefix)) = parse_sloppy(value) else {
        let text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return ErrorList::from([Error::invalid(path, value, text)]);
    };
    let canonical = canonical(address, prefix);
    if value == canonical {
        return ErrorList::new();
    }
    ErrorList::from([Error::invalid(
        path,
        value,
        format!("must be in canonical form ({})", quote(&canonical)),
    )])
}

/// Reads an address and its prefix length; IPv4 octets may have leading zeros, as upstream tolerates for old data.
fn parse_sloppy(value: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = value.split_once('/')?;
    let address = match address.contains(':') {
        true => IpAddr::V6(parse_v6(address)?),
        false => IpAddr::V4(parse_v4(address)?),
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix: u32 = prefix.parse().ok()?;
    (prefix <= bits).then_some((address, u8::try_from(prefix).ok()?))
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() {
            0
        } else {
            digits.parse().ok()?
        };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    // An embedded IPv4 address may have leading zeros, too.
    if let Some((head, tail)) = text.rsplit_once(':')
        && tail.contains('.')
    {
        let tail = parse_v4(tail)?;
        return format!("{head}:{tail}").parse().ok();
    }
    text.parse().ok()
}

fn canonical(address: IpAddr, prefix: u8) -> String {
    match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if prefix > 32 => format!("{v4}/{}", prefix.saturating_sub(96)),
            Some(v4) => format!("{v4}/{prefix}"),
            None => format!("{}/{prefix}", go_ipv6(v6)),
        },
        IpAddr::V4(v4) => format!("{v4}/{prefix}"),
    }
}

/// RFC 5952 without the dotted form that Rust uses for IPv4-compatible addresses.
fn go_ipv6(address: Ipv6Addr) -> String {
    let text = address.to_string();
    if !text.contains('.') {
        return text;
    }
    let segments = address.segments();
    format!("::{:x}:{:x}", segments[6], segments[7])
}
