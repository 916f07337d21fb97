//! Qualified device names, `vendor/class=name`.

use std::fmt;
use std::str::FromStr;

use super::Error;

/// A parsed `vendor/class=name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// The vendor of the device, usually a domain name.
    pub vendor: String,
    /// What kind of device of that vendor.
    pub class: String,
    /// Which one.
    pub device: String,
}

impl QualifiedName {
    /// The kind of spec that defines this device: `vendor/class`.
    pub fn kind(&self) -> String {
        format!("{}/{}", self.vendor, self.class)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}={}", self.vendor, self.class, self.device)
    }
}

impl FromStr for QualifiedName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::Name {
            name: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (kind, device) = text
            .split_once('=')
            .ok_or_else(|| bad("expected vendor/class=name"))?;
        let (vendor, class) = kind
            .split_once('/')
            .ok_or_else(|| bad("expected vendor/class=name"))?;
        check_vendor(vendor).map_err(|reason| bad(&reason))?;
        check_class(class).map_err(|reason| bad(&reason))?;
        check_device(device).map_err(|reason| bad(&reason))?;
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
            device: device.to_owned(),
        })
    }
}

/// Letters, digits, `_`, `-` and `.`; a letter first, a letter or digit last.
///
/// # Errors
/// The error, as a readable text.
pub fn check_vendor(vendor: &str) -> Result<(), String> {
    check("vendor", vendor, "_-.", |c| c.is_ascii_alphabetic())
}

/// The same rule as for vendors.
///
/// # Errors
/// The error, as a readable text.
pub fn check_class(class: &str) -> Result<(), String> {
    check("class", class, "_-.", |c| c.is_ascii_alphabetic())
}

/// Checks a kind, `vendor/class`, for a spec that is to be written: beyond the rules of the specification, vendor and class
/// have at least two characters. The Go library that container runtimes read specs with slices a name between its first
/// and its last character, and panics for one that is both: containerd 2.2 ends when it reads such a spec.
///
/// # Errors
/// [`Error::Spec`] about the field `kind`.
pub fn check_written_kind(kind: &str) -> Result<(), Error> {
    let bad = |reason: String| Error::Spec {
        field: "kind".to_owned(),
        reason,
    };
    let (vendor, class) = kind
        .split_once('/')
        .ok_or_else(|| bad(format!("{kind:?} is not of the form vendor/class")))?;
    check_vendor(vendor).map_err(bad)?;
    check_class(class).map_err(bad)?;
    for (what, name) in [("vendor", vendor), ("class", class)] {
        if name.len() < 2 {
            return Err(bad(format!(
                "{what} {name:?} of {kind:?} has only one letter, and container runtimes crash when they read such a spec; \
                 use at least two"
            )));
        }
    }
    Ok(())
}

/// Letters, digits, `_`, `-`, `.` and `:`; a letter or digit first and last.
///
/// # Errors
/// The error, as a readable text.
pub fn check_device(device: &str) -> Result<(), String> {
    check("device name", device, "_-.:", |c| c.is_ascii_alphanumeric())
}

fn check(what: &str, text: &str, others: &str, first: impl Fn(char) -> bool) -> Result<(), String> {
    let Some(start) = text.chars().next() else {
        return Err(format!("{what} is empty"));
    };
    if !first(start) {
        return Err(format!("{what} {text:?} must not start with {start:?}"));
    }
    if let Some(bad) = text
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !others.contains(*c))
    {
        return Err(format!("{what} {text:?} must not contain {bad:?}"));
    }
    if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(format!("{what} {text:?} must end with a letter or digit"));
    }
    Ok(())
}
