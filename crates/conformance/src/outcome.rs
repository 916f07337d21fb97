//! How a case ends: with an observation, or early because the driver breaks its rule or the rule does not apply.

/// Why a case ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The driver breaks the rule: what was observed.
    Fail(String),
    /// The rule does not apply, or cannot be tried.
    Skip(String),
}

/// The observation.
pub(crate) type Observed = Result<String, Stop>;

pub(crate) fn fail<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(text.into()))
}

pub(crate) fn skip<T>(text: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skip(text.into()))
}

/// Fails with the observation unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return $crate::outcome::fail(format!($($text)+));
        }
    };
}
pub(crate) use ensure;
