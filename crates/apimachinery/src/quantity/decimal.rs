//! Arbitrary-precision decimals: `unscaled * 10^scale`.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{Signed, ToPrimitive, Zero};

/// Most decimal digits that an addition may have to line up; beyond, the operands are absurdly far apart.
const MAX_SHIFT: i64 = 10_000;

#[derive(Debug, Clone)]
pub(super) struct Decimal {
    pub(super) unscaled: BigInt,
    pub(super) scale: i32,
}

/// Compares `a * 10^sa` with `b * 10^sb`; `None` if 128 bits do not suffice.
pub(super) fn compare(a: i128, sa: i32, b: i128, sb: i32) -> Option<Ordering> {
    if a.signum() != b.signum() || a == 0 {
        return Some(a.signum().cmp(&b.signum()));
    }
    let shift = u32::try_from(i64::from(sa) - i64::from(sb));
    match shift {
        Ok(shift) => Some(a.checked_mul(10_i128.checked_pow(shift)?)?.cmp(&b)),
        Err(_) => {
            let shift = u32::try_from(i64::from(sb) - i64::from(sa)).ok()?;
            Some(a.cmp(&b.checked_mul(10_i128.checked_pow(shift)?)?))
        }
    }
}

impl Decimal {
    pub(super) fn signum(&self) -> i32 {
        match self.unscaled.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        }
    }

    /// Position of the first digit: `10^(magnitude-1) <= |self| < 10^magnitude`. Meaningless for zero.
    pub(super) fn magnitude(&self) -> i64 {
        self.unscaled.magnitude().to_string().len() as i64 + i64::from(self.scale)
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let (a, b) = (self.signum(), other.signum());
        if a != b || a == 0 {
            return a.cmp(&b);
        }
        // Lining up is bounded only because the magnitudes are equal: the exponents may be billions apart.
        let order = self.magnitude().cmp(&other.magnitude()).then_with(|| {
            let scale = self.scale.min(other.scale);
            self.at_scale(scale)
                .magnitude()
                .cmp(other.at_scale(scale).magnitude())
        });
        if a < 0 { order.reverse() } else { order }
    }

    /// The mantissa for a smaller or equal scale.
    fn at_scale(&self, scale: i32) -> BigInt {
        let shift = (i64::from(self.scale) - i64::from(scale)).clamp(0, i64::from(u32::MAX)) as u32;
        &self.unscaled * BigInt::from(10).pow(shift)
    }

    pub(super) fn add(&self, other: &Self) -> Option<Self> {
        if other.unscaled.is_zero() {
            return Some(self.clone());
        }
        if self.unscaled.is_zero() {
            return Some(other.clone());
        }
        if (i64::from(self.scale) - i64::from(other.scale)).abs() > MAX_SHIFT {
            return None;
        }
        let scale = self.scale.min(other.scale);
        Some(Self {
            unscaled: self.at_scale(scale) + other.at_scale(scale),
            scale,
        })
    }

    /// Rounded away from zero to a multiple of 10^`scale`.
    pub(super) fn round_away(&self, scale: i32) -> Self {
        if self.scale >= scale {
            return self.clone();
        }
        if self.unscaled.is_zero() {
            return Self {
                unscaled: BigInt::zero(),
                scale,
            };
        }
        if self.magnitude() < i64::from(scale) {
            return Self {
                unscaled: BigInt::from(self.signum()),
                scale,
            };
        }
        let shift = (i64::from(scale) - i64::from(self.scale)) as u32;
        let (mut quotient, rest) = self.unscaled.div_rem(&BigInt::from(10).pow(shift));
        if !rest.is_zero() {
            quotient += self.signum();
        }
        Self {
            unscaled: quotient,
            scale,
        }
    }

    /// `self / 10^scale` rounded away from zero, saturating.
    pub(super) fn scaled_value(&self, scale: i32) -> i64 {
        let limit = if self.unscaled.is_negative() {
            i64::MIN
        } else {
            i64::MAX
        };
        if self.unscaled.is_zero() {
            return 0;
        }
        if self.magnitude() - i64::from(scale) > 20 {
            return limit;
        }
        let rounded = self.round_away(scale);
        rounded.at_scale(scale).to_i64().unwrap_or(limit)
    }

    /// The same number with the shortest mantissa; zero has scale 0.
    pub(super) fn normalised(mut self) -> Self {
        if self.unscaled.is_zero() {
            self.scale = 0;
            return self;
        }
        let ten = BigInt::from(10);
        loop {
            let (quotient, rest) = self.unscaled.div_rem(&ten);
            if !rest.is_zero() || self.scale == i32::MAX {
                return self;
            }
            self.unscaled = quotient;
            self.scale += 1;
        }
    }
}
