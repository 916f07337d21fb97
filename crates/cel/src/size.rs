//! Ranges of sizes and costs; sums and products stop at the largest number.

use std::ops::Add;

/// A range of sizes: characters of a string, elements of a list, entries of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The smallest possible size.
    pub min: u64,
    /// The largest possible size; `u64::MAX` if it is not bounded.
    pub max: u64,
}

/// A range of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The lowest possible cost.
    pub min: u64,
    /// The highest possible cost.
    pub max: u64,
}

impl Size {
    /// Any size at all.
    pub const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };

    /// Exactly this size.
    pub const fn fixed(size: u64) -> Self {
        Self {
            min: size,
            max: size,
        }
    }

    /// Where a union of sizes starts from: zero if there will be none.
    pub(crate) const fn nothing(empty: bool) -> Self {
        Self {
            min: if empty { 0 } else { u64::MAX },
            max: 0,
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn times_cost(self, cost: Cost) -> Cost {
        Cost {
            min: self.min.saturating_mul(cost.min),
            max: self.max.saturating_mul(cost.max),
        }
    }

    pub(crate) fn times_factor(self, factor: f64) -> Cost {
        Cost {
            min: times_factor(self.min, factor),
            max: times_factor(self.max, factor),
        }
    }

    pub(crate) fn as_cost(self) -> Cost {
        Cost {
            min: self.min,
            max: self.max,
        }
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

impl Cost {
    /// The cost of what is not evaluated.
    pub const ZERO: Self = Self::fixed(0);

    /// Exactly this cost.
    pub const fn fixed(cost: u64) -> Self {
        Self {
            min: cost,
            max: cost,
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn times_factor(self, factor: f64) -> Self {
        Self {
            min: times_factor(self.min, factor),
            max: times_factor(self.max, factor),
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

/// `x * factor`, rounded up.
pub(crate) fn times_factor(x: u64, factor: f64) -> u64 {
    // The conversion saturates, as upstream's explicit checks do. Rounding up by hand is faster than `ceil`.
    let product = x as f64 * factor;
    let whole = product as u64;
    if whole as f64 == product {
        whole
    } else {
        whole.saturating_add(u64::from(product > whole as f64))
    }
}
