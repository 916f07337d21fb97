//! Addresses and ranges in fields with lax validation in the past: leading zeros, IPv4 inside of IPv6, ranges with bits
//! beyond their length. New objects must not have them; an object may keep existing ones. Valid but not canonical
//! values cause a warning.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use serde_json::Value;

/// Error for an invalid address.
pub const IP_TEXT: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// Error for an invalid range of addresses.
pub const CIDR_TEXT: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const IP_ZEROS: &str = "must not have leading 0s";
const IP_MAPPED: &str = "must not be an IPv4-mapped IPv6 address";
const CIDR_ZEROS: &str = "must not have leading 0s in IP or prefix length";
const CIDR_MAPPED: &str = "must not have an IPv4-mapped IPv6 address";
const CIDR_BITS: &str = "must not have bits set beyond the prefix length";

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// An IPv4 address in which numbers may begin with zeros.
fn sloppy_v4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u8> = text
        .split('.')
        .map(|part| u8::try_from(number(part)?).ok())
        .collect::<Option<_>>()?;
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(parts).ok()?))
}

/// An address as old clients write it.
pub fn sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    match text.rsplit_once(':') {
        None => sloppy_v4(text).map(IpAddr::V4),
        Some((front, back)) => {
            let plain = format!("{front}:{}", sloppy_v4(back)?);
            plain.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    }
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(it) if it.to_ipv4_mapped().is_some())
}

/// A range as old clients write it: its address, and the length of its prefix.
pub(crate) fn sloppy_range(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let (address, length) = (sloppy(address)?, number(length)?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// The first address of a range.
fn first(address: IpAddr, length: u32) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask))
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask))
        }
    }
}

/// A range as Go prints it.
fn printed(address: IpAddr, length: u32) -> String {
    let first = first(address, length);
    match first.to_canonical() {
        IpAddr::V4(it) if first.is_ipv6() && length >= 96 => format!("{it}/{}", length - 96),
        _ => format!("{first}/{length}"),
    }
}

/// The error of an address.
pub fn address_text(text: &str) -> Option<&'static str> {
    let address = match sloppy(text) {
        None => return Some(IP_TEXT),
        Some(address) => address,
    };
    if text.parse::<IpAddr>().is_err() {
        return Some(IP_ZEROS);
    }
    is_mapped(&address).then_some(IP_MAPPED)
}

/// The error of a range.
pub fn range_text(text: &str) -> Option<&'static str> {
    let (address, length) = match sloppy_range(text) {
        None => return Some(CIDR_TEXT),
        Some(range) => range,
    };
    let (written, digits) = text.split_once('/').unwrap_or_default();
    if written.parse::<IpAddr>().is_err() || length.to_string() != digits {
        return Some(CIDR_ZEROS);
    }
    if is_mapped(&address) {
        return Some(CIDR_MAPPED);
    }
    (first(address, length) != address).then_some(CIDR_BITS)
}

/// Whether the text is an address, however it is written.
pub(crate) fn is_address(text: &str) -> bool {
    sloppy(text).is_some()
}

/// Checks an address.
pub(crate) fn address(text: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(address_text(text).map(|why| Error::invalid(path, text, why)));
}

/// Checks a range of addresses.
pub(crate) fn range(text: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(range_text(text).map(|why| Error::invalid(path, text, why)));
}

/// Lets an object keep values that were valid before.
pub(crate) fn forgive(errors: &mut ErrorList, old: &Value) {
    const NEW: [&str; 5] = [IP_ZEROS, IP_MAPPED, CIDR_ZEROS, CIDR_MAPPED, CIDR_BITS];
    // Collected for the first error that asks: most objects have none, and each may have thousands.
    let known = std::cell::OnceCell::new();
    errors.retain(|error| {
        let had = match &error.bad_value {
            BadValue::Text(text) if NEW.contains(&&*error.detail) => known
                .get_or_init(|| {
                    let mut known = HashSet::new();
                    collect(old, &mut known);
                    known
                })
                .contains(text.as_str()),
            _ => false,
        };
        !had
    });
}

/// All texts in a value.
fn collect<'a>(value: &'a Value, texts: &mut HashSet<&'a str>) {
    match value {
        Value::String(text) => {
            texts.insert(text);
        }
        Value::Array(items) => items.iter().for_each(|it| collect(it, texts)),
        Value::Object(map) => map.values().for_each(|it| collect(it, texts)),
        _ => {}
    }
}

/// Warns of an address that should be written in another way.
pub fn address_warning(path: &str, text: &str) -> Option<String> {
    let address = sloppy(text)?;
    if text.parse::<IpAddr>().is_err() || is_mapped(&address) {
        let plain = address.to_canonical();
        return Some(format!(
            "{path}: non-standard IP address {text:?} is invalid: use \"{plain}\""
        ));
    }
    (address.is_ipv6() && address.to_string() != text).then(|| {
        format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"
        )
    })
}

/// Warns of a range that should be written in another way.
pub fn range_warnings(path: &str, text: &str) -> Vec<String> {
    let Some((address, length)) = sloppy_range(text) else {
        return Vec::new();
    };
    let range = printed(address, length);
    let mut found = Vec::new();
    if first(address, length) != address {
        let plain = address.to_canonical();
        let whole = if address.is_ipv4() { 32 } else { 128 };
        found.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {range:?} or \"{plain}/{whole}\"?)"
        ));
    }
    if is_mapped(&address) || range_text(text) == Some(CIDR_ZEROS) {
        found.push(format!(
            "{path}: non-standard CIDR value {text:?} is invalid: use {range:?}"
        ));
    }
    if found.is_empty() && address.is_ipv6() && range != text {
        found.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({range:?})"
        ));
    }
    found
}
