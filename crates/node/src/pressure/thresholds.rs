//! The thresholds, as a kubelet reads them.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use allot_apimachinery::quantity::{Format, Quantity};

use super::{Amount, Resource, Signal};

/// The kubelet's default of `evictionHard`. There is none for process IDs.
pub const EVICTION_HARD: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%";

/// The names of the signals. Those of the file system of containers have no thresholds of their own: as with a kubelet they follow
/// those of the file system that it is on.
const SIGNALS: [(&str, Option<Signal>); 8] = [
    ("memory.available", Some(Signal::Memory)),
    ("nodefs.available", Some(Signal::NodeSpace)),
    ("nodefs.inodesFree", Some(Signal::NodeInodes)),
    ("imagefs.available", Some(Signal::ImageSpace)),
    ("imagefs.inodesFree", Some(Signal::ImageInodes)),
    ("containerfs.available", None),
    ("containerfs.inodesFree", None),
    ("pid.available", Some(Signal::Processes)),
];

impl Signal {
    /// Its name in thresholds and metrics.
    pub(crate) fn name(self) -> &'static str {
        let mut known = SIGNALS.into_iter();
        known
            .find(|(_, signal)| *signal == Some(self))
            .map_or("", |(name, _)| name)
    }
}

/// A known signal by its name.
fn signal(name: &str) -> Result<(&'static str, Option<Signal>), ThresholdError> {
    let known = SIGNALS.into_iter().find(|(known, _)| *known == name);
    known.ok_or_else(|| ThresholdError::Signal(name.to_owned()))
}

/// The least amount that has to be available, or how much more.
#[derive(Debug, Clone, PartialEq)]
enum Bound {
    /// As it was written, which messages repeat.
    Amount(Quantity),
    /// Of the capacity.
    Percent(f64),
}

impl Bound {
    /// The amount of a threshold.
    fn parse(text: &str) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok()?;
            return (0.0..=100.0)
                .contains(&percent)
                .then_some(Self::Percent(percent));
        }
        let amount = text.parse::<Quantity>().ok()?;
        (amount.signum() > 0).then_some(Self::Amount(amount))
    }

    /// What has to be reclaimed in addition, which can be nothing.
    fn parse_reclaim(text: &str) -> Option<Self> {
        match text.parse::<Quantity>() {
            Ok(amount) if amount.is_zero() => Some(Self::Amount(amount)),
            _ => Self::parse(text).filter(|bound| *bound != Self::Percent(0.0)),
        }
    }

    fn of(&self, amount: Amount) -> Quantity {
        match self {
            Self::Amount(quantity) => quantity.clone(),
            Self::Percent(percent) => {
                let share = amount.capacity as f64 * percent / 100.0;
                Quantity::new(share as i64, Format::BinarySi)
            }
        }
    }
}

/// A bound of a signal, by its name.
type Named = (&'static str, Option<Signal>, Bound);

/// Bounds of signals by their names.
fn bounds(
    text: &str,
    separator: char,
    parse: fn(&str) -> Option<Bound>,
) -> Result<Vec<Named>, ThresholdError> {
    let mut all: Vec<Named> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let (name, value) = part
            .split_once(separator)
            .ok_or_else(|| ThresholdError::Form(part.to_owned(), separator))?;
        let (name, of) = signal(name.trim())?;
        if all.iter().any(|(known, ..)| *known == name) {
            return Err(ThresholdError::Duplicate(name));
        }
        let value = value.trim();
        let bound = parse(value).ok_or_else(|| ThresholdError::Value {
            signal: name,
            value: value.to_owned(),
        })?;
        all.push((name, of, bound));
    }
    Ok(all)
}

/// The amounts below which the node is under pressure, in the form `SIGNAL<AMOUNT,SIGNAL<PERCENT%`; by default none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds(Vec<Named>);

impl FromStr for Thresholds {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = bounds(text, '<', Bound::parse)?.into_iter();
        // As with a kubelet these switch a threshold off.
        let off =
            |bound: &Bound| matches!(bound, Bound::Percent(share) if [0.0, 100.0].contains(share));
        Ok(Self(all.filter(|(_, _, bound)| !off(bound)).collect()))
    }
}

/// How much more than a threshold has to be available until its resource is no longer reclaimed, in the form
/// `SIGNAL=AMOUNT,SIGNAL=PERCENT%`: the kubelet's `evictionMinimumReclaim`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reclaims(Vec<Named>);

impl FromStr for Reclaims {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        bounds(text, '=', Bound::parse_reclaim).map(Self)
    }
}

/// Why thresholds cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// A threshold without an operator.
    #[error("invalid eviction threshold {0:?}: expected SIGNAL{1}QUANTITY or SIGNAL{1}PERCENT%")]
    Form(String, char),
    /// A signal that is not observed.
    #[error("unsupported eviction signal {0:?}: expected one of {names}", names = SIGNALS.map(|it| it.0).join(", "))]
    Signal(String),
    /// Two thresholds for a signal.
    #[error("duplicate eviction threshold for {0}")]
    Duplicate(&'static str),
    /// What is neither an amount nor a percentage.
    #[error(
        "{signal}: expected a positive quantity or a percentage from 0% to 100%, not {value:?}"
    )]
    Value {
        /// The signal.
        signal: &'static str,
        /// What was found.
        value: String,
    },
    /// A soft threshold without a grace period.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGracePeriod(&'static str),
}

/// A threshold with what follows when it is met.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Threshold {
    pub(super) signal: Signal,
    bound: Bound,
    /// How long it has to be met until pods are evicted; zero for a hard threshold.
    pub(super) grace: Duration,
    minimum_reclaim: Option<Bound>,
}

impl Threshold {
    pub(super) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    /// The least amount that has to be available.
    pub(super) fn least(&self, amount: Amount) -> Quantity {
        self.bound.of(amount)
    }

    /// Whether less is available. `more`: than has to be there until the resource is no longer reclaimed.
    pub(super) fn is_met(&self, amount: Amount, more: bool) -> bool {
        let mut least = self.least(amount);
        if let Some(more) = self.minimum_reclaim.as_ref().filter(|_| more) {
            least = least.checked_add(&more.of(amount)).unwrap_or(least);
        }
        least > available(self.signal, amount)
    }
}

/// The available amount in the notation of messages.
pub(super) fn available(signal: Signal, amount: Amount) -> Quantity {
    let format = match signal.resource() {
        Resource::Memory | Resource::Storage => Format::BinarySi,
        Resource::Inodes | Resource::Processes => Format::DecimalSi,
    };
    Quantity::new(i64::try_from(amount.available).unwrap_or(i64::MAX), format)
}

/// When resources of the node are reclaimed, and pods are evicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Eviction {
    pub(super) thresholds: Vec<Threshold>,
    /// What a pod has to end at most when a soft threshold is met: the kubelet's `evictionMaxPodGracePeriod`.
    pub max_pod_grace: Duration,
    /// How long a condition is reported after pressure was last observed, so that it does not come and go: the kubelet's
    /// `evictionPressureTransitionPeriod`.
    pub transition: Duration,
    /// How often the node is observed.
    pub period: Duration,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            thresholds: Vec::new(),
            max_pod_grace: Duration::ZERO,
            transition: Duration::from_secs(300),
            period: Duration::from_secs(10),
        }
    }
}

impl From<Thresholds> for Eviction {
    /// With hard thresholds only.
    fn from(hard: Thresholds) -> Self {
        Self {
            thresholds: all(hard, &BTreeMap::new(), &Reclaims::default()),
            ..Self::default()
        }
    }
}

impl Eviction {
    /// Hard and soft thresholds. `grace` has the grace periods of the soft ones by the names of the signals.
    ///
    /// # Errors
    /// A soft threshold without a grace period, or a grace period of an unknown signal.
    pub fn new(
        hard: Thresholds,
        soft: Thresholds,
        grace: &[(String, Duration)],
        reclaims: &Reclaims,
    ) -> Result<Self, ThresholdError> {
        let mut periods = BTreeMap::new();
        for (name, period) in grace {
            let (name, _) = signal(name)?;
            if periods.insert(name, *period).is_some() {
                return Err(ThresholdError::Duplicate(name));
            }
        }
        let mut names = soft.0.iter().map(|(name, ..)| *name);
        if let Some(name) = names.find(|name| !periods.contains_key(name)) {
            return Err(ThresholdError::NoGracePeriod(name));
        }
        let mut thresholds = all(hard, &BTreeMap::new(), reclaims);
        thresholds.extend(all(soft, &periods, reclaims));
        Ok(Self {
            thresholds,
            ..Self::default()
        })
    }

    /// Whether the node is observed at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.thresholds.is_empty()
    }
}

fn all(
    thresholds: Thresholds,
    grace: &BTreeMap<&'static str, Duration>,
    reclaims: &Reclaims,
) -> Vec<Threshold> {
    let known = thresholds.0.into_iter().filter_map(|(name, of, bound)| {
        let Some(signal) = of else {
            tracing::warn!(
                signal = name,
                "the threshold is ignored: that of the same file system counts"
            );
            return None;
        };
        let mut more = reclaims.0.iter();
        let more = more.find(|(_, of, _)| *of == Some(signal));
        Some(Threshold {
            signal,
            bound,
            grace: grace.get(name).copied().unwrap_or_default(),
            minimum_reclaim: more.map(|(.., more)| more.clone()),
        })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(text: &str) -> Vec<Threshold> {
        let hard: Thresholds = text.parse().expect("thresholds");
        Eviction::from(hard).thresholds
    }

    #[test]
    fn thresholds_are_read_as_by_a_kubelet() {
        let amount = Amount {
            available: 0,
            capacity: 200 << 20,
        };
        let found = thresholds(EVICTION_HARD);
        let shown = found
            .iter()
            .map(|it| (it.signal, it.least(amount).to_string()));
        let expected = [
            (Signal::Memory, "100Mi"),
            (Signal::NodeSpace, "20Mi"),
            (Signal::NodeInodes, "10Mi"),
            (Signal::ImageSpace, "30Mi"),
            (Signal::ImageInodes, "10Mi"),
        ];
        let expected = expected.map(|(signal, text)| (signal, text.to_owned()));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        for off in [
            "",
            "nodefs.available<0%, imagefs.available<100%",
            "containerfs.available<1Gi",
        ] {
            assert_eq!(thresholds(off), Vec::new());
        }
        for (text, expected) in [
            ("memory.available", "invalid eviction threshold"),
            ("memory.available>1", "invalid eviction threshold"),
            ("memory<1", "unsupported eviction signal \"memory\""),
            ("pid.available<0", "expected a positive quantity"),
            ("pid.available<-1%", "expected a positive quantity"),
            ("pid.available<NaN%", "expected a positive quantity"),
            ("pid.available<101%", "expected a positive quantity"),
            ("pid.available<x", "expected a positive quantity"),
            (
                "pid.available<1,pid.available<2",
                "duplicate eviction threshold",
            ),
        ] {
            let error = text.parse::<Thresholds>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn soft_thresholds_have_grace_periods_and_all_may_have_something_to_reclaim() {
        let soft = || "nodefs.available<20".parse::<Thresholds>().expect("soft");
        let hard = || "nodefs.available<10".parse::<Thresholds>().expect("hard");
        let reclaims = "memory.available=0Mi,nodefs.available=50%";
        let reclaims: Reclaims = reclaims.parse().expect("amounts");
        let period = Duration::from_secs(30);
        let grace = [("nodefs.available".to_owned(), period)];
        let found = Eviction::new(hard(), soft(), &grace, &reclaims).expect("thresholds");
        let [hard_one, soft_one] = &found.thresholds[..] else {
            panic!("{found:?}");
        };
        assert!(hard_one.is_hard() && soft_one.grace == period);
        let left = |available| Amount {
            available,
            capacity: 100,
        };
        // The threshold counts until the resource is reclaimed, and what is to be reclaimed besides from then on.
        let met = |available| [false, true].map(|more| hard_one.is_met(left(available), more));
        assert_eq!(met(9), [true, true]);
        assert_eq!(met(10), [false, true]);
        assert_eq!(met(59), [false, true]);
        assert_eq!(met(60), [false, false]);
        let error = Eviction::new(hard(), soft(), &[], &reclaims).expect_err("no grace period");
        let expected =
            "grace period must be specified for the soft eviction threshold nodefs.available";
        assert_eq!(error.to_string(), expected);
        let unknown = [("disk".to_owned(), period)];
        let error = Eviction::new(hard(), soft(), &unknown, &reclaims).expect_err("no signal");
        assert_eq!(error, ThresholdError::Signal("disk".to_owned()));
        for text in [
            "nodefs.available=0%",
            "nodefs.available=-1",
            "nodefs.available<1",
        ] {
            assert!(text.parse::<Reclaims>().is_err(), "{text}");
        }
    }
}
