//! Arithmetic with quantities; exact, except for rounding on request.

use super::{Amount, Quantity};

impl Quantity {
    /// The sum. The notation is that of `self`, or of `other` if `self` is zero. `None` if the operands are so far
    /// apart that the sum would have thousands of digits.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        if let (
            Amount::Small {
                value: a,
                scale: sa,
            },
            Amount::Small {
                value: b,
                scale: sb,
            },
        ) = (&self.amount, &other.amount)
            && let Some((value, scale)) = small_add((*a, *sa), (*b, *sb))
        {
            return Some(Self::scaled(value, scale, format));
        }
        Some(Self::from_decimal(
            self.decimal().add(&other.decimal())?,
            format,
        ))
    }

    /// The difference; notation and failure as for [`Self::checked_add`].
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.checked_add(&other.neg())
    }

    /// The product with an integer, in the same notation.
    pub fn checked_mul(&self, factor: i64) -> Option<Self> {
        if let Amount::Small { value, scale } = self.amount
            && let Some(product) = value.checked_mul(factor)
        {
            return Some(Self::scaled(product, scale, self.format));
        }
        let mut decimal = self.decimal();
        decimal.unscaled *= factor;
        Some(Self::from_decimal(decimal, self.format))
    }

    /// The number with the other sign.
    #[must_use]
    pub fn neg(&self) -> Self {
        if let Amount::Small { value, scale } = self.amount
            && let Some(value) = value.checked_neg()
        {
            return Self::scaled(value, scale, self.format);
        }
        let mut decimal = self.decimal();
        decimal.unscaled = -decimal.unscaled;
        Self::from_decimal(decimal, self.format)
    }

    /// Rounded away from zero to a multiple of 10^`scale`.
    #[must_use]
    pub fn round_up(&self, scale: i32) -> Self {
        let decimal = self.decimal();
        if decimal.scale >= scale {
            return self.clone();
        }
        let rounded = decimal.round_away(scale);
        match (&self.amount, i64::try_from(&rounded.unscaled)) {
            (Amount::Small { .. }, Ok(value)) => Self::scaled(value, rounded.scale, self.format),
            _ => Self::from_decimal(rounded, self.format),
        }
    }
}

fn small_add((a, sa): (i64, i32), (b, sb): (i64, i32)) -> Option<(i64, i32)> {
    if b == 0 {
        return Some((a, sa));
    }
    if a == 0 {
        return Some((b, sb));
    }
    let scale = sa.min(sb);
    let align = |value: i64, own: i32| {
        let shift = u32::try_from(i64::from(own) - i64::from(scale)).ok()?;
        value.checked_mul(10_i64.checked_pow(shift)?)
    };
    Some((align(a, sa)?.checked_add(align(b, sb)?)?, scale))
}
