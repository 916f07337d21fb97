//! Consumable capacity: the amount that a request consumes of a device, and whether it is available.

use allot_apimachinery::Quantity as Exact;
use allot_apimachinery::quantity::Format;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use smol_str::{SmolStr, format_smolstr};

use crate::amount::{self, Amount};

/// A capacity of a device with the policy for requests.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Capacity {
    pub(crate) name: SmolStr,
    pub(crate) value: Quantity,
    policy: Option<Policy>,
}

/// An amount together with the text that results show for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Quantity {
    pub(crate) amount: Amount,
    pub(crate) text: SmolStr,
}

impl Quantity {
    pub(crate) fn new(quantity: &ApiQuantity) -> Self {
        Self::read(quantity).0
    }

    /// The notation of the amount.
    pub(crate) fn format(&self) -> Format {
        let parsed = self.text.parse::<Exact>();
        parsed.map_or(Format::DecimalSi, |quantity| quantity.format())
    }

    /// The quantity, also as selectors see it.
    fn read(quantity: &ApiQuantity) -> (Self, Exact) {
        match quantity.0.parse::<Exact>() {
            Ok(parsed) => {
                let read = Self {
                    amount: Amount::of(&parsed),
                    text: format_smolstr!("{parsed}"),
                };
                (read, parsed)
            }
            Err(_) => {
                let read = Self {
                    amount: Amount::ZERO,
                    text: (&quantity.0).into(),
                };
                (read, Exact::default())
            }
        }
    }
}

/// What a request takes of a capacity.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Consumed<'a> {
    /// A quantity from an object.
    Given(&'a Quantity),
    /// A value from rounding, and the notation of the step; without one it is a whole number in binary notation, as
    /// upstream writes it before `DRAFractionalCapacityRange`.
    Rounded(Amount, Option<Format>),
}

impl Consumed<'_> {
    pub(crate) fn amount(self) -> Amount {
        match self {
            Self::Given(quantity) => quantity.amount,
            Self::Rounded(value, _) => value,
        }
    }

    /// The text in results.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Given(quantity) => quantity.text.to_string(),
            Self::Rounded(value, Some(format)) => value.shown(format),
            Self::Rounded(value, None) => amount::binary_text(value.ceil()),
        }
    }

    /// The text in messages: rounded values are in the notation of the capacity.
    pub(crate) fn shown(self, format: Format) -> String {
        match self {
            Self::Given(quantity) => quantity.text.to_string(),
            Self::Rounded(value, _) => value.shown(format),
        }
    }
}

#[derive(Debug, Clone, Hash)]
struct Policy {
    default: Option<Quantity>,
    valid_values: Option<Box<[Quantity]>>,
    range: Option<Range>,
}

#[derive(Debug, Clone, Hash)]
struct Range {
    min: Quantity,
    max: Option<Amount>,
    step: Option<Step>,
}

/// The distance between the amounts of a range, and how it is counted.
#[derive(Debug, Clone, Copy, Hash)]
struct Step {
    size: i64,
    unit: Unit,
    /// The notation of rounded values; see [`Consumed::Rounded`].
    format: Option<Format>,
}

/// The unit in which a valid range counts its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Unit {
    /// Whole units: fractions are rounded up before they are counted.
    Whole,
    /// Thousandths, where all bounds of the range are such and `DRAFractionalCapacityRange` is on.
    Milli,
}

impl Unit {
    /// None where the unit cannot hold the amount.
    fn count(self, amount: Amount) -> Option<i64> {
        match self {
            Self::Whole => Some(amount.ceil()),
            Self::Milli => amount.millis(),
        }
    }

    fn amount(self, count: i64) -> Amount {
        match self {
            Self::Whole => Amount::from_int(count),
            Self::Milli => Amount::from_millis(count),
        }
    }
}

impl Step {
    fn new(range: &api::CapacityRequestPolicyRange, fractional: bool) -> Option<Self> {
        let (size, format) = Amount::written(range.step.as_ref()?);
        let mut bounds = [Some(&range.min), range.max.as_ref()].into_iter().flatten();
        let milli = fractional
            && size.millis().is_some_and(|step| step >= 1)
            && bounds.all(|bound| Amount::parse(bound).millis().is_some());
        let unit = if milli { Unit::Milli } else { Unit::Whole };
        Some(Self {
            size: unit.count(size).filter(|size| *size > 0)?,
            unit,
            format: fractional.then_some(format),
        })
    }
}

impl Capacity {
    /// Converts a capacity, with its value for selectors. `like` is one that was converted before, with its source: an
    /// equal value need not be parsed again. `fractional` is `DRAFractionalCapacityRange`.
    pub(crate) fn new(
        name: &str,
        capacity: &api::DeviceCapacity,
        like: Option<(&Self, &Exact, &api::DeviceCapacity)>,
        fractional: bool,
    ) -> (Self, Exact) {
        let policy = capacity.request_policy.as_ref().map(|policy| Policy {
            default: policy.default.as_ref().map(Quantity::new),
            valid_values: policy
                .valid_values
                .as_ref()
                .map(|v| v.iter().map(Quantity::new).collect()),
            range: policy.valid_range.as_ref().map(|range| Range {
                min: Quantity::new(&range.min),
                max: range.max.as_ref().map(Amount::parse),
                step: Step::new(range, fractional),
            }),
        });
        let (value, exact) = match like.filter(|like| like.2.value == capacity.value) {
            Some((known, exact, _)) => (known.value.clone(), exact.clone()),
            None => Quantity::read(&capacity.value),
        };
        let capacity = Self {
            name: SmolStr::new(name),
            value,
            policy,
        };
        (capacity, exact)
    }

    /// The amount that a request consumes: the default or everything if it names none, otherwise the request rounded up
    /// by the policy.
    pub(crate) fn consumed<'a>(&'a self, requested: Option<&'a Quantity>) -> Consumed<'a> {
        let Some(requested) = requested else {
            let default = self.policy.as_ref().and_then(|p| p.default.as_ref());
            return Consumed::Given(default.unwrap_or(&self.value));
        };
        match &self.policy {
            Some(Policy {
                range: Some(range), ..
            }) => range.round_up(requested),
            Some(Policy {
                valid_values: Some(values),
                ..
            }) => Consumed::Given(
                values
                    .iter()
                    .find(|v| v.amount >= requested.amount)
                    .unwrap_or(requested),
            ),
            _ => Consumed::Given(requested),
        }
    }

    /// Whether the policy forbids this amount. The default is always allowed.
    pub(crate) fn refuses(&self, consumed: Amount) -> bool {
        let Some(policy) = &self.policy else {
            return false;
        };
        if policy
            .default
            .as_ref()
            .is_some_and(|d| d.amount == consumed)
        {
            return false;
        }
        match policy {
            Policy {
                range: Some(range), ..
            } => range.refuses(consumed),
            Policy {
                valid_values: Some(values),
                ..
            } => values.iter().all(|v| v.amount != consumed),
            _ => false,
        }
    }

    pub(crate) fn has_policy(&self) -> bool {
        self.policy.is_some()
    }
}

impl Range {
    /// Counts steps from the minimum, as upstream does. An amount that the unit cannot hold stays as it is, and
    /// [`Range::refuses`] it.
    fn round_up<'a>(&'a self, requested: &'a Quantity) -> Consumed<'a> {
        if requested.amount < self.min.amount {
            return Consumed::Given(&self.min);
        }
        let Some(Step { size, unit, format }) = self.step else {
            return Consumed::Given(requested);
        };
        let counts = (unit.count(self.min.amount), unit.count(requested.amount));
        let (Some(min), Some(wanted)) = counts else {
            return Consumed::Given(requested);
        };
        let distance = wanted.saturating_sub(min);
        let steps = distance / size + i64::from(distance % size != 0);
        let rounded = min.saturating_add(size.saturating_mul(steps));
        Consumed::Rounded(unit.amount(rounded), format)
    }

    fn refuses(&self, consumed: Amount) -> bool {
        if self.max.is_some_and(|max| consumed > max) {
            return true;
        }
        let Some(Step { size, unit, .. }) = self.step else {
            return false;
        };
        match (unit.count(self.min.amount), unit.count(consumed)) {
            (Some(min), Some(consumed)) => consumed.saturating_sub(min) % size != 0,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
