//! Time spent at the extension points of the scheduling framework.

use std::borrow::Cow;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// An extension point, by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// State that is computed before any node is filtered.
    PreFilter,
    /// Which nodes are feasible.
    Filter,
    /// Preemption, when no node is feasible.
    PostFilter,
    /// Which node is best; the devices that the pod gets there are chosen then.
    Score,
    /// The pod and its devices are assumed.
    Reserve,
    /// Claims are written, and wait until their devices are ready.
    PreBind,
    /// The Binding is written.
    Bind,
}

impl Point {
    fn name(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
        }
    }
}

/// The result, by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Unschedulable,
    Error,
}

impl End {
    /// The result for a success or failure.
    pub(crate) fn of(success: bool, otherwise: Self) -> Self {
        if success { Self::Success } else { otherwise }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable => "Unschedulable",
            Self::Error => "Error",
        }
    }
}

type Labels = [(&'static str, Cow<'static, str>); 3];

/// `scheduler_framework_extension_point_duration_seconds`.
#[derive(Debug)]
pub(super) struct Points(Family<Labels, Histogram, fn() -> Histogram>);

fn tenth_of_a_millisecond() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 12))
}

impl Points {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let family = Family::new_with_constructor(tenth_of_a_millisecond as fn() -> Histogram);
        registry.register(
            "scheduler_framework_extension_point_duration_seconds",
            "Time spent at an extension point, over all plugins and nodes",
            family.clone(),
        );
        Self(family)
    }

    pub(super) fn observe(&self, point: Point, profile: &str, end: End, taken: Duration) {
        let labels = [
            ("extension_point", point.name().into()),
            ("profile", profile.to_owned().into()),
            ("status", end.name().into()),
        ];
        self.0.get_or_create(&labels).observe(taken.as_secs_f64());
    }
}
