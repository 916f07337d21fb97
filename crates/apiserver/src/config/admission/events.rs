//! Configuration of EventRateLimit: how many events are accepted from a server, namespace, user or source.

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate};
use serde::Deserialize;

use crate::config::decode::{Document, Kind};

const KIND: Kind = Kind {
    types: &[("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")],
    fields: None,
};

/// The error of a plugin without limits.
pub(super) const EMPTY: &str = "limits: Invalid value: null: must not be empty";
/// How many keys of a limit are remembered by default.
const CACHE: usize = 4096;
/// The maximum of that: what is remembered takes memory.
const MOST_CACHED: usize = 1 << 20;

/// What events are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLimitKind {
    /// All of them together.
    Server,
    /// The namespace of the request.
    Namespace,
    /// The user that creates or changes the event.
    User,
    /// The source and the object of the event.
    SourceAndObject,
}

impl EventLimitKind {
    const ALL: [EventLimitKind; 4] = [
        EventLimitKind::Server,
        EventLimitKind::Namespace,
        EventLimitKind::User,
        EventLimitKind::SourceAndObject,
    ];

    /// The name in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            EventLimitKind::Server => "Server",
            EventLimitKind::Namespace => "Namespace",
            EventLimitKind::User => "User",
            EventLimitKind::SourceAndObject => "SourceAndObject",
        }
    }
}

/// A limit of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimit {
    /// What they are counted by.
    pub kind: EventLimitKind,
    /// How many a second.
    pub qps: u32,
    /// How many at once.
    pub burst: u32,
    /// How many keys are counted: those that were used last.
    pub cache_size: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    limits: Vec<WrittenLimit>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenLimit {
    #[serde(rename = "type")]
    kind: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

/// Reads a configuration.
pub(super) fn read(document: Document) -> Result<Vec<EventLimit>, String> {
    let written: Written = KIND.decode(document)?;
    if written.limits.is_empty() {
        return Err(EMPTY.to_owned());
    }
    let (mut limits, mut errors) = (Vec::new(), ErrorList::new());
    for (index, limit) in written.limits.iter().enumerate() {
        let path = Path::new("limits").index(index);
        let kind = EventLimitKind::ALL
            .into_iter()
            .find(|kind| kind.name() == limit.kind);
        if kind.is_none() {
            let known = EventLimitKind::ALL.map(EventLimitKind::name);
            let error = Error::not_supported(&path.child("type"), limit.kind.as_str(), &known);
            errors.push(error);
        }
        let mut positive = |key: &str, value: i32| {
            if value <= 0 {
                let error = Error::invalid(&path.child(key), i64::from(value), "must be positive");
                errors.push(error);
            }
            value.unsigned_abs()
        };
        let burst = positive("burst", limit.burst);
        let qps = positive("qps", limit.qps);
        if limit.cache_size < 0 && kind != Some(EventLimitKind::Server) {
            let (at, size) = (path.child("cacheSize"), i64::from(limit.cache_size));
            errors.push(Error::invalid(&at, size, "must not be negative"));
        }
        let cache_size = match usize::try_from(limit.cache_size) {
            Ok(size) if size > 0 => size.min(MOST_CACHED),
            _ => CACHE,
        };
        limits.extend(kind.map(|kind| EventLimit {
            kind,
            qps,
            burst,
            cache_size,
        }));
    }
    match aggregate(&errors) {
        Some(why) => Err(why),
        None => Ok(limits),
    }
}
