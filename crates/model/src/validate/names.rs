//! Names: drivers, pools, devices, requests, attributes.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;

use super::common::invalid;
use crate::limits;

pub(crate) fn label(value: &str, path: &Path) -> ErrorList {
    invalid(path, value, names::dns1123_label(value))
}

pub(crate) fn subdomain(value: &str, path: &Path) -> ErrorList {
    invalid(path, value, names::dns1123_subdomain(value))
}

/// The name of a label, a taint or a condition.
pub(crate) fn label_name(value: &str, path: &Path) -> ErrorList {
    invalid(path, value, names::qualified_name(value))
}

pub(crate) fn label_value(value: &str, path: &Path) -> ErrorList {
    invalid(path, value, names::label_value(value))
}

/// A driver name follows the rules of CSI drivers: upper case is tolerated.
pub(crate) fn driver(value: &str, path: &Path) -> ErrorList {
    if value.is_empty() {
        return ErrorList::from([Error::required(path, "")]);
    }
    let mut errors = ErrorList::new();
    if value.len() > limits::DRIVER_NAME {
        errors.push(Error::too_long(path, limits::DRIVER_NAME));
    }
    errors.extend(invalid(
        path,
        value,
        names::dns1123_subdomain(&value.to_lowercase()),
    ));
    errors
}

/// A pool name is one or more DNS subdomains separated by slashes.
pub(crate) fn pool(value: &str, path: &Path) -> ErrorList {
    if value.is_empty() {
        return ErrorList::from([Error::required(path, "")]);
    }
    let mut errors = ErrorList::new();
    if value.len() > limits::POOL_NAME {
        errors.push(Error::too_long(path, limits::POOL_NAME));
    }
    errors.extend(value.split('/').flat_map(|part| subdomain(part, path)));
    errors
}

pub(crate) fn device_class(value: &str, path: &Path) -> ErrorList {
    if value.is_empty() {
        ErrorList::from([Error::required(path, "")])
    } else {
        subdomain(value, path)
    }
}

/// The name of an attribute or capacity: a C identifier, or a domain, a slash and a C identifier.
pub(crate) fn qualified(value: &str, path: &Path) -> ErrorList {
    let mut parts = value.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(identifier), None, _) => c_identifier(identifier, path),
        (Some(domain), Some(identifier), None) => {
            let mut errors = match domain {
                "" => ErrorList::from([Error::invalid(path, "", "the domain must not be empty")]),
                _ => driver(domain, path),
            };
            match identifier {
                "" => errors.push(Error::invalid(path, "", "the name must not be empty")),
                _ => errors.extend(c_identifier(identifier, path)),
            }
            errors
        }
        // Upstream forgot this case; names that were accepted have to stay acceptable.
        _ => ErrorList::new(),
    }
}

/// A qualified name that must have a domain.
pub(crate) fn fully_qualified(value: &str, path: &Path) -> ErrorList {
    let mut errors = qualified(value, path);
    if !value.contains('/') {
        let text = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(Error::invalid(path, value, text));
    }
    errors
}

fn c_identifier(value: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if value.len() > limits::QUALIFIED_IDENTIFIER {
        errors.push(Error::too_long(path, limits::QUALIFIED_IDENTIFIER));
    }
    errors.extend(invalid(path, value, names::c_identifier(value)));
    errors
}

/// A share ID: an RFC 4122 UUID in lower case with dashes.
pub(crate) fn uid(value: &str, path: &Path) -> ErrorList {
    if let Err(text) = parse_uuid(value.as_bytes()) {
        return ErrorList::from([Error::invalid(
            path,
            value,
            format!("error validating uid: {text}"),
        )]);
    }
    if value.len() != 36 || value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let text = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        return ErrorList::from([Error::invalid(path, value, text)]);
    }
    ErrorList::new()
}

/// Accepts the spellings and gives the error texts of the UUID library that upstream uses.
fn parse_uuid(text: &[u8]) -> Result<(), String> {
    const FORMAT: &str = "invalid UUID format";
    let plain = match text.len() {
        36 => text,
        45 => {
            let (prefix, rest) = text.split_at(9);
            if !prefix.eq_ignore_ascii_case(b"urn:uuid:") {
                let prefix = allot_apimachinery::quote::quote(&String::from_utf8_lossy(prefix));
                return Err(format!("invalid urn prefix: {prefix}"));
            }
            rest
        }
        38 => match text {
            [b'{', inner @ .., b'}'] => inner,
            _ => return Err("invalid bracketed UUID format".to_owned()),
        },
        32 => {
            let hex = text.iter().all(u8::is_ascii_hexdigit);
            return if hex { Ok(()) } else { Err(FORMAT.to_owned()) };
        }
        length => return Err(format!("invalid UUID length: {length}")),
    };
    let valid = plain.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    if valid {
        Ok(())
    } else {
        Err(FORMAT.to_owned())
    }
}
