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
    /// Name of the device, unique in its vendor and class.
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
        check_vendor(vendor).map_err(|error| bad(&error.to_string()))?;
        check_class(class).map_err(|error| bad(&error.to_string()))?;
        check_device(device).map_err(|error| bad(&error.to_string()))?;
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
            device: device.to_owned(),
        })
    }
}

/// The rule of the CDI specification that a vendor, a class or a device name breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamePartError {
    /// It has no character.
    #[error("{what} is empty")]
    Empty {
        /// `vendor`, `class` or `device name`.
        what: &'static str,
    },
    /// Its first character is not a letter (for a device name: neither a letter nor a digit).
    #[error("{what} {text:?} must not start with {start:?}")]
    Start {
        /// `vendor`, `class` or `device name`.
        what: &'static str,
        /// The vendor, class or device name.
        text: String,
        /// The first character.
        start: char,
    },
    /// A character that is not allowed anywhere in it.
    #[error("{what} {text:?} must not contain {character:?}")]
    Character {
        /// `vendor`, `class` or `device name`.
        what: &'static str,
        /// The vendor, class or device name.
        text: String,
        /// The first of these characters.
        character: char,
    },
    /// Its last character is neither a letter nor a digit.
    #[error("{what} {text:?} must end with a letter or digit")]
    End {
        /// `vendor`, `class` or `device name`.
        what: &'static str,
        /// The vendor, class or device name.
        text: String,
    },
}

/// Letters, digits, `_`, `-` and `.`; a letter first, a letter or digit last.
///
/// # Errors
/// [`NamePartError`] with the rule that the text breaks.
pub fn check_vendor(vendor: &str) -> Result<(), NamePartError> {
    check("vendor", vendor, "_-.", |c| c.is_ascii_alphabetic())
}

/// The same rule as for vendors.
///
/// # Errors
/// [`NamePartError`] with the rule that the text breaks.
pub fn check_class(class: &str) -> Result<(), NamePartError> {
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
    check_vendor(vendor).map_err(|error| bad(error.to_string()))?;
    check_class(class).map_err(|error| bad(error.to_string()))?;
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
/// [`NamePartError`] with the rule that the text breaks.
pub fn check_device(device: &str) -> Result<(), NamePartError> {
    check("device name", device, "_-.:", |c| c.is_ascii_alphanumeric())
}

fn check(
    what: &'static str,
    text: &str,
    others: &str,
    first: impl Fn(char) -> bool,
) -> Result<(), NamePartError> {
    let Some(start) = text.chars().next() else {
        return Err(NamePartError::Empty { what });
    };
    if !first(start) {
        return Err(NamePartError::Start {
            what,
            text: text.to_owned(),
            start,
        });
    }
    if let Some(character) = text
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !others.contains(*c))
    {
        return Err(NamePartError::Character {
            what,
            text: text.to_owned(),
            character,
        });
    }
    if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(NamePartError::End {
            what,
            text: text.to_owned(),
        });
    }
    Ok(())
}
