//! Exact amounts: quantities as numbers of nano units.

use allot_apimachinery::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

const NANO: i128 = 1_000_000_000;

/// A quantity in units of 10⁻⁹, the finest that Kubernetes supports.
///
/// A parsed quantity is below 2⁶³ units, so an `i128` holds the sum of more quantities than there can be objects. Arithmetic still saturates: a wrong input must not turn into a
/// small number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Amount(i128);

impl Amount {
    pub(crate) const ZERO: Self = Self(0);

    /// The amount of a quantity from the API. A text that is no quantity counts as zero: the API server refuses such objects.
    pub(crate) fn parse(quantity: &ApiQuantity) -> Self {
        Self::written(quantity).0
    }

    /// As [`Amount::parse`], with the notation.
    pub(crate) fn written(quantity: &ApiQuantity) -> (Self, Format) {
        match quantity.0.parse::<Quantity>() {
            Ok(quantity) => (Self::of(&quantity), quantity.format()),
            Err(_) => (Self::ZERO, Format::DecimalSi),
        }
    }

    pub(crate) fn of(quantity: &Quantity) -> Self {
        Self(quantity.nanos())
    }

    pub(crate) fn from_int(value: i64) -> Self {
        Self(i128::from(value) * NANO)
    }

    /// The integer number of units, rounded away from zero as Go's `Quantity.Value`.
    pub(crate) fn ceil(self) -> i64 {
        let whole = self.0 / NANO
            + if self.0 % NANO == 0 {
                0
            } else {
                self.0.signum()
            };
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// The canonical text in a notation.
    pub(crate) fn shown(self, format: Format) -> String {
        if self.0 % NANO == 0
            && let Ok(whole) = i64::try_from(self.0 / NANO)
        {
            return Quantity::new(whole, format).to_string();
        }
        // Binary suffixes are for whole numbers.
        let text = match format {
            Format::DecimalExponent => format!("{}e-9", self.0),
            Format::DecimalSi | Format::BinarySi => format!("{}n", self.0),
        };
        text.parse::<Quantity>().map_or(text, |q| q.to_string())
    }

    /// The amount as two words.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// The exact number of milli units, as Go's `Quantity.MilliValue` holds it; none where there is no such number.
    pub(crate) fn millis(self) -> Option<i64> {
        (self.0 % (NANO / 1000) == 0)
            .then(|| i64::try_from(self.0 / (NANO / 1000)).ok())
            .flatten()
    }

    pub(crate) fn from_millis(value: i64) -> Self {
        Self(i128::from(value) * (NANO / 1000))
    }

    /// The number of nano units.
    pub(crate) fn nanos(self) -> i128 {
        self.0
    }
}

/// The text of a whole number in binary notation, as rounding by a request policy writes it.
pub(crate) fn binary_text(value: i64) -> String {
    Quantity::new(value, Format::BinarySi).to_string()
}

#[cfg(test)]
mod tests;
