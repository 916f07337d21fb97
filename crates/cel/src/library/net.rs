//! IP addresses and networks.

use std::{net::IpAddr, sync::Arc};

use allot_apimachinery::quote::quote;

use super::{Args, Outcome, text};
use crate::{
    library::Function,
    value::{Extension, Fault, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "ip" => |args| match &args[0] {
            Value::Extension(extension) => match **extension {
                Extension::Cidr(address, _) => Ok(value(Extension::Ip(address))),
                _ => Err(Fault::NoOverload),
            },
            other => Ok(value(Extension::Ip(
                parse_ip(text(other)?).map_err(|error| Fault::new(error.to_string()))?,
            ))),
        },
        "isIP" => |args| Ok(Value::Bool(parse_ip(text(&args[0])?).is_ok())),
        "ip.isCanonical" => |args| {
            let text = text(&args[0])?;
            let address = parse_ip(text).map_err(|error| Fault::new(error.to_string()))?;
            Ok(Value::Bool(address.to_string() == text))
        },
        "family" => |args| Ok(Value::Int(if ip(&args[0])?.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| Ok(Value::Bool(ip(&args[0])?.is_unspecified())),
        "isLoopback" => |args| Ok(Value::Bool(ip(&args[0])?.is_loopback())),
        "isLinkLocalMulticast" => |args| Ok(Value::Bool(is_link_local_multicast(ip(&args[0])?))),
        "isLinkLocalUnicast" => |args| Ok(Value::Bool(is_link_local_unicast(ip(&args[0])?))),
        "isGlobalUnicast" => |args| Ok(Value::Bool(is_global_unicast(ip(&args[0])?))),
        "cidr" => |args| match parse_cidr(text(&args[0])?) {
            Ok((address, prefix)) => Ok(value(Extension::Cidr(address, prefix))),
            Err(error) => Err(Fault::new(format!(
                "network address parse error during conversion from string: {error}"
            ))),
        },
        "isCIDR" => |args| Ok(Value::Bool(parse_cidr(text(&args[0])?).is_ok())),
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "prefixLength" => |args| Ok(Value::Int(i64::from(cidr(&args[0])?.1))),
        "masked" => |args| {
            let (address, prefix) = cidr(&args[0])?;
            Ok(value(Extension::Cidr(mask(address, prefix), prefix)))
        },
        _ => return None,
    })
}

fn value<'a>(extension: Extension) -> Value<'a> {
    Value::Extension(Arc::new(extension))
}

fn ip(value: &Value<'_>) -> Result<IpAddr, Fault> {
    match value {
        Value::Extension(extension) => match **extension {
            Extension::Ip(address) => Ok(address),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

fn cidr(value: &Value<'_>) -> Result<(IpAddr, u8), Fault> {
    match value {
        Value::Extension(extension) => match **extension {
            Extension::Cidr(address, prefix) => Ok((address, prefix)),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

fn contains_ip<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (network, prefix) = cidr(&args[0])?;
    let address = match &args[1] {
        // The error of the address is lost upstream, too.
        Value::String(text) => parse_ip(text).map_err(|_| Fault::new("no such overload"))?,
        other => ip(other)?,
    };
    Ok(Value::Bool(contains(network, prefix, address)))
}

fn contains_cidr<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (network, prefix) = cidr(&args[0])?;
    let (other, other_prefix) = match &args[1] {
        Value::String(text) => parse_cidr(text).map_err(|error| {
            Fault::new(format!(
                "network address parse error during conversion from string: {error}"
            ))
        })?,
        other => cidr(other)?,
    };
    Ok(Value::Bool(
        prefix <= other_prefix && contains(network, prefix, other),
    ))
}

fn contains(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && mask(network, prefix) == mask(address, prefix)
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((u32::from(v4) & bits).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((u128::from(v6) & bits).to_be_bytes())
        }
    }
}

/// Why a text is not an IP address that Kubernetes accepts; the texts are those of its CEL library.
#[derive(Debug, thiserror::Error)]
enum IpError {
    #[error(
        "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): {}",
        ip_problem(.0),
        quoted = quote(.0)
    )]
    Syntax(String),
    #[error("IP address {} with zone value is not allowed", quote(.0))]
    Zone(String),
    #[error("IPv4-mapped IPv6 address {} is not allowed", quote(.0))]
    Mapped(String),
}

/// Why a text is not a network that Kubernetes accepts; the texts are those of its CEL library.
#[derive(Debug, thiserror::Error)]
enum CidrError {
    #[error(
        "network address parse error during conversion from string: netip.ParsePrefix({}): {problem}",
        quote(text)
    )]
    Syntax { text: String, problem: String },
    #[error("IPv4-mapped IPv6 address {} is not allowed", quote(.0))]
    Mapped(String),
}

/// Reads an address without zone that is not IPv4 in IPv6.
fn parse_ip(text: &str) -> Result<IpAddr, IpError> {
    let (bare, zone) = text
        .split_once('%')
        .map_or((text, None), |(bare, zone)| (bare, Some(zone)));
    let address = match (bare.parse::<IpAddr>(), zone) {
        (Ok(address), None) => address,
        (Ok(IpAddr::V6(_)), Some(zone)) if !zone.is_empty() => {
            return Err(IpError::Zone(text.to_owned()));
        }
        _ => return Err(IpError::Syntax(text.to_owned())),
    };
    if is_mapped(address) {
        return Err(IpError::Mapped(text.to_owned()));
    }
    Ok(address)
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// The error of Go's parser for an invalid address.
fn ip_problem(text: &str) -> String {
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        None => "unable to parse IP".to_owned(),
        Some(b'%') => "missing IPv6 address".to_owned(),
        Some(b'.') => ipv4_problem(text),
        _ => ipv6_problem(text),
    }
}

fn ipv4_problem(text: &str) -> String {
    let mut fields = 0;
    let mut value = 0_u32;
    let mut digits = 0;
    for (at, c) in text.char_indices() {
        match c {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".to_owned();
                }
                value = value * 10 + (c as u32 - '0' as u32);
                digits += 1;
                if value > 255 {
                    return "IPv4 field has value >255".to_owned();
                }
            }
            '.' => {
                let previous_dot = at > 0 && text.as_bytes()[at - 1] == b'.';
                if at == 0 || at == text.len() - 1 || previous_dot {
                    return format!(
                        "IPv4 field must have at least one digit (at {})",
                        quote(&text[at..])
                    );
                }
                if fields == 3 {
                    return "IPv4 address too long".to_owned();
                }
                fields += 1;
                value = 0;
                digits = 0;
            }
            _ => return format!("unexpected character (at {})", quote(&text[at..])),
        }
    }
    "IPv4 address too short".to_owned()
}

fn ipv6_problem(text: &str) -> String {
    let bare = match text.split_once('%') {
        Some((_, "")) => return "zone must be a non-empty string".to_owned(),
        Some((bare, _)) => bare,
        None => text,
    };
    let (mut rest, mut groups, mut ellipsis) = (bare, 0, false);
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = true;
        rest = after;
        if rest.is_empty() {
            return "unable to parse IP".to_owned();
        }
    }
    while groups < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return format!("each group must have 4 or less digits (at {})", quote(rest));
        }
        if digits == 0 {
            return format!(
                "each colon-separated field must have at least one digit (at {})",
                quote(rest)
            );
        }
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if !ellipsis && groups != 6 {
                return format!(
                    "embedded IPv4 address must replace the final 2 fields of the address (at {})",
                    quote(rest)
                );
            }
            return ipv4_problem(rest);
        }
        groups += 1;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return format!("unexpected character, want colon (at {})", quote(rest));
        }
        if rest.len() == 1 {
            return format!(
                "colon must be followed by more characters (at {})",
                quote(rest)
            );
        }
        rest = &rest[1..];
        if rest.starts_with(':') {
            if ellipsis {
                return format!("multiple :: in address (at {})", quote(rest));
            }
            ellipsis = true;
            rest = &rest[1..];
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return format!("trailing garbage after address (at {})", quote(rest));
    }
    if ellipsis && groups >= 8 {
        return "the :: must expand to at least one field of zeros".to_owned();
    }
    "address string too short".to_owned()
}

/// Reads a network; host bits may be set.
fn parse_cidr(text: &str) -> Result<(IpAddr, u8), CidrError> {
    let fail = |problem: String| {
        Err(CidrError::Syntax {
            text: text.to_owned(),
            problem,
        })
    };
    let Some((address, bits)) = text.rsplit_once('/') else {
        return fail("no '/'".to_owned());
    };
    let parsed = match address.parse::<IpAddr>() {
        Ok(parsed) => parsed,
        Err(_) if address.contains('%') => {
            return fail("IPv6 zones cannot be present in a prefix".to_owned());
        }
        Err(_) => {
            return fail(format!(
                "ParseAddr({}): {}",
                quote(address),
                ip_problem(address)
            ));
        }
    };
    let canonical = bits == "0"
        || (!bits.starts_with('0') && !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()));
    if !canonical {
        return fail(format!("bad bits after slash: {}", quote(bits)));
    }
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(prefix) if prefix <= most => {
            if is_mapped(parsed) {
                return Err(CidrError::Mapped(text.to_owned()));
            }
            Ok((parsed, prefix))
        }
        _ => fail("prefix length out of range".to_owned()),
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
