//! The counters that the devices of a slice share.

use allot_apimachinery::quantity::Format;
use smol_str::SmolStr;

use crate::amount::Amount;

/// A set of shared counters.
#[derive(Debug, Hash)]
pub(crate) struct CounterSet {
    pub(crate) name: SmolStr,
    /// Name, amount and the notation that it was written in.
    pub(crate) counters: Box<[(SmolStr, Amount, Format)]>,
}
