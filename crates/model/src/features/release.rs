//! The Kubernetes releases that can be emulated.

use std::fmt;
use std::str::FromStr;

/// A Kubernetes release that can be emulated, 1.26 to 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    pub(super) minor: u8,
}

impl Release {
    /// The oldest release that can be emulated.
    pub const OLDEST: Release = Release { minor: 26 };
    /// The newest release that can be emulated.
    pub const NEWEST: Release = Release { minor: 37 };
    /// The release that is emulated by default: the newest whose behaviour was compared with a running
    /// Kubernetes, request by request.
    pub const DEFAULT: Release = Release { minor: 36 };

    /// The release 1.`minor`, limited to those that can be emulated.
    pub const fn new(minor: u8) -> Release {
        if minor < Release::OLDEST.minor {
            Release::OLDEST
        } else if minor > Release::NEWEST.minor {
            Release::NEWEST
        } else {
            Release { minor }
        }
    }

    /// The number after `1.`.
    pub const fn minor(self) -> u8 {
        self.minor
    }

    /// All releases that can be emulated, oldest first.
    pub fn all() -> impl Iterator<Item = Release> {
        (Release::OLDEST.minor..=Release::NEWEST.minor).map(|minor| Release { minor })
    }
}

impl Default for Release {
    fn default() -> Release {
        Release::DEFAULT
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// A text that names no release that can be emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// Not a version at all.
    #[error("illegal version string {0:?}")]
    Illegal(String),
    /// A release outside of the supported range.
    #[error("emulation version {0} is not between [{old}, {new}]", old = Release::OLDEST, new = Release::NEWEST)]
    Range(String),
}

impl FromStr for Release {
    type Err = ReleaseError;

    /// Reads `1.34`, `v1.34` or `1.34.2`.
    fn from_str(text: &str) -> Result<Release, ReleaseError> {
        let illegal = || ReleaseError::Illegal(text.to_owned());
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let major: u32 = parts
            .next()
            .and_then(|part| part.parse().ok())
            .ok_or_else(illegal)?;
        let minor: u32 = parts
            .next()
            .and_then(|part| part.parse().ok())
            .ok_or_else(illegal)?;
        if parts.any(|part| part.parse::<u32>().is_err()) {
            return Err(illegal());
        }
        Release::all()
            .find(|release| major == 1 && u32::from(release.minor) == minor)
            .ok_or_else(|| ReleaseError::Range(format!("{major}.{minor}")))
    }
}
