//! Exact Kubernetes quantities.
//!
//! A quantity is a decimal number and the notation it was written in. It is exact: parsing rounds up to nano, binary
//! notation is capped at 2^63-1, and nothing else loses a digit. Numbers that fit 64 bits times a power of ten stay
//! inline; the rest uses 128 bits and, rarely, big integers.
//!
//! Rules follow `k8s.io/apimachinery/pkg/api/resource` of 1.36, with these differences, where upstream overflows
//! silently: [`Quantity::value`] and [`Quantity::milli_value`] saturate, an exponent beyond 32 bits is an error, and
//! decimal SI notation never prints an exponent above `E`.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use num_bigint::BigInt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod arithmetic;
mod decimal;
mod format;
mod parse;

use decimal::Decimal;

/// The notation of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `12M`: powers of 1000 with letters.
    DecimalSi,
    /// `12Mi`: powers of 1024.
    BinarySi,
    /// `12e6`: powers of ten.
    DecimalExponent,
}

/// Why a text is no quantity, with upstream's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It does not have the form of a number with a suffix.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number cannot be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// There is no such suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// A number with its notation. Comparison and hashing are by value: `1Ki == 1024`.
#[derive(Debug, Clone)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The text it was parsed from, if it is printed although it is not the canonical one.
    text: Option<Arc<str>>,
}

/// `Small` is upstream's fast form, `Wide` and `Big` its arbitrary-precision one: whether a number
/// [is an integer](Quantity::as_i64) depends on which form it is in.
#[derive(Debug, Clone)]
enum Amount {
    Small { value: i64, scale: i32 },
    Wide { value: i128, scale: i32 },
    Big(Arc<Decimal>),
}

impl Quantity {
    /// Zero in decimal notation.
    pub const ZERO: Self = Self::new(0, Format::DecimalSi);

    /// The integer `value` in the given notation.
    pub const fn new(value: i64, format: Format) -> Self {
        Self::scaled(value, 0, format)
    }

    /// `value / 1000`.
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Self::scaled(value, -3, format)
    }

    const fn scaled(value: i64, scale: i32, format: Format) -> Self {
        Self {
            amount: Amount::Small { value, scale },
            format,
            text: None,
        }
    }

    fn from_decimal(decimal: Decimal, format: Format) -> Self {
        let amount = match i128::try_from(&decimal.unscaled) {
            Ok(value) => Amount::Wide {
                value,
                scale: decimal.scale,
            },
            Err(_) => Amount::Big(Arc::new(decimal)),
        };
        Self {
            amount,
            format,
            text: None,
        }
    }

    /// Parses the JSON form: a string or a number.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, ParseError> {
        match value {
            serde_json::Value::String(text) => text.trim().parse(),
            serde_json::Value::Number(number) => number.to_string().parse(),
            serde_json::Value::Null => Ok(Self::ZERO),
            _ => Err(ParseError::Format),
        }
    }

    /// The notation in which the quantity is printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the amount is zero, in any format and with any scale.
    pub fn is_zero(&self) -> bool {
        self.signum() == 0
    }

    /// The sign of the amount: -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match &self.amount {
            Amount::Small { value, .. } => value.signum() as i32,
            Amount::Wide { value, .. } => value.signum() as i32,
            Amount::Big(decimal) => decimal.signum(),
        }
    }

    /// The value as an integer, rounded away from zero, saturating at the limits of 64 bits.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The value times 1000 as an integer, rounded away from zero, saturating at the limits of 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// The value divided by 10^`scale`, rounded away from zero, saturating.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        if let Amount::Small { value, scale: own } = self.amount
            && own == scale
        {
            return value;
        }
        self.decimal().scaled_value(scale)
    }

    /// The value in units of 10^-9, the finest that parsing keeps, saturating at the limits of 128 bits.
    pub fn nanos(&self) -> i128 {
        let limit = if self.signum() < 0 {
            i128::MIN
        } else {
            i128::MAX
        };
        let (value, scale) = match self.amount {
            Amount::Small { value, scale } => (i128::from(value), scale),
            Amount::Wide { value, scale } => (value, scale),
            Amount::Big(_) => return limit,
        };
        if value == 0 {
            return 0;
        }
        let shift = i64::from(scale) + 9;
        let power = u32::try_from(shift.abs())
            .ok()
            .and_then(|n| 10_i128.checked_pow(n));
        match power {
            Some(power) if shift >= 0 => value.checked_mul(power).unwrap_or(limit),
            Some(power) => {
                value / power
                    + if value % power == 0 {
                        0
                    } else {
                        value.signum()
                    }
            }
            None if shift >= 0 => limit,
            None => value.signum(),
        }
    }

    /// The value if it is an integer of 64 bits in upstream's fast form. Numbers with a fraction in binary notation
    /// (`1.5Gi`) are not in that form even if they are integers: CEL's `isInteger` and `asInteger` behave the same.
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Small { value, scale: 0 } => Some(value),
            Amount::Small { value, scale } if scale > 0 => {
                if value == 0 {
                    return Some(0);
                }
                value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
            }
            _ => None,
        }
    }

    /// The nearest floating-point number, as upstream's `AsApproximateFloat64`.
    pub fn to_f64(&self) -> f64 {
        use num_traits::ToPrimitive;
        let (base, scale) = match &self.amount {
            Amount::Small { value, scale } => (*value as f64, *scale),
            Amount::Wide { value, scale } => (*value as f64, *scale),
            Amount::Big(decimal) => (decimal.unscaled.to_f64().unwrap_or(f64::NAN), decimal.scale),
        };
        if scale == 0 {
            base
        } else {
            base * 10_f64.powi(scale)
        }
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small { value, scale } => Decimal {
                unscaled: BigInt::from(*value),
                scale: *scale,
            },
            Amount::Wide { value, scale } => Decimal {
                unscaled: BigInt::from(*value),
                scale: *scale,
            },
            Amount::Big(decimal) => Decimal::clone(decimal),
        }
    }

    /// Mantissa and power of ten, if the mantissa fits.
    fn parts(&self) -> Option<(i128, i32)> {
        match self.amount {
            Amount::Small { value, scale } => Some((i128::from(value), scale)),
            Amount::Wide { value, scale } => Some((value, scale)),
            Amount::Big(_) => None,
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::new(value, Format::DecimalSi)
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Some((a, sa)), Some((b, sb))) = (self.parts(), other.parts()) {
            if sa == sb {
                return a.cmp(&b);
            }
            if let Some(order) = decimal::compare(a, sa, b, sb) {
                return order;
            }
        }
        self.decimal().compare(&other.decimal())
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let decimal = self.decimal().normalised();
        decimal.unscaled.hash(state);
        decimal.scale.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => format::canonical(self, f),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
