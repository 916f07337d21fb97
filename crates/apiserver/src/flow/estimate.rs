//! How many seats a request takes, and for how long.

use std::time::Duration;

use allot_model::features::Feature;
use allot_store::Size;

use super::watches::{Watches, exact};
use crate::request::Incoming;
use crate::state::ServerState;

/// What a list holds in memory for one seat, in bytes, as upstream.
const BYTES_PER_SEAT: usize = 100_000;
/// What a list holds at most, in bytes. Upstream's bound of lists from memory, which are streamed; here all lists are.
const MOST_BYTES: usize = 1_000_000;
/// Objects that a list reads for one seat without the gate SizeBasedListCostEstimate, as upstream.
const OBJECTS_PER_SEAT: usize = 100;
/// Watches that receive a change for one seat, as upstream.
const WATCHES_PER_SEAT: usize = 10;
/// How long a watch is thought to work on an event, as upstream.
const EVENT: Duration = Duration::from_millis(5);

/// What a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Width {
    /// The seats of its priority level that it takes while it runs.
    pub(super) seats: usize,
    /// How long it keeps the seats after its answer: its watchers receive the change meanwhile.
    pub(super) after: Duration,
}

impl Width {
    /// Of most requests.
    pub(super) const ONE: Width = Width {
        seats: 1,
        after: Duration::ZERO,
    };

    /// The width of a list of at most `limit` objects. Upstream's `seatsBasedOnObjectSize`: the objects are thought to
    /// have the average size of their collection.
    fn listed(stored: Size, limit: usize, most: usize) -> Self {
        let average = stored.bytes.div_ceil(stored.entries.max(1));
        let read = limit.min(stored.entries).saturating_mul(average);
        let seats = read.min(MOST_BYTES).div_ceil(BYTES_PER_SEAT);
        Width {
            seats: seats.clamp(1, most.max(1)),
            ..Self::ONE
        }
    }

    /// The width of a list by the number of objects that it goes through. Upstream's `seatsBasedOnObjectCount` of lists
    /// from memory: a limit does not make them narrower.
    fn counted(stored: Size, single: bool, most: usize) -> Self {
        let read = if single { 1 } else { stored.entries };
        let seats = read.div_ceil(OBJECTS_PER_SEAT);
        Width {
            seats: seats.clamp(1, most.max(1)),
            ..Self::ONE
        }
    }

    /// The width of a change that this many watches receive. A few cost nothing; the work of many takes at most `most`
    /// seats, for a longer time.
    fn told(watches: usize, most: usize) -> Self {
        if watches < WATCHES_PER_SEAT {
            return Self::ONE;
        }
        let wanted = watches.div_ceil(WATCHES_PER_SEAT);
        let seats = wanted.min(most.max(1));
        let work = EVENT * u32::try_from(wanted).unwrap_or(u32::MAX);
        let after = work / u32::try_from(seats).unwrap_or(u32::MAX);
        Width { seats, after }
    }
}

/// How many watches receive the change of a mutating request.
pub(super) fn watchers(watches: &Watches, request: &Incoming) -> Option<usize> {
    let info = &request.info;
    match info.verb.as_str() {
        // A token is no event.
        "create" if info.resource == "serviceaccounts" && info.subresource == "token" => None,
        "create" | "update" | "patch" | "delete" => Some(watches.interested(info)),
        _ => None,
    }
}

/// Lists, watches that begin with one, and changes that go to many watches take more than one seat.
pub(super) fn width(
    core: &ServerState,
    watchers: Option<usize>,
    request: &Incoming,
    most: usize,
) -> Width {
    if let Some(watchers) = watchers {
        return Width::told(watchers, most);
    }
    let (info, query) = (&request.info, &request.query);
    let lists = match info.verb.as_str() {
        "list" => true,
        "watch" => {
            query.flag("sendInitialEvents")
                || matches!(query.get("resourceVersion"), None | Some("" | "0"))
        }
        _ => false,
    };
    if !lists || most <= 1 {
        return Width::ONE;
    }
    let registry = core.registry.load();
    let Some(resource) = registry.get(&info.group, &info.resource) else {
        return Width::ONE;
    };
    // One that names a single object reads that alone.
    let single = !info.name.is_empty() || exact(request, "metadata.name").is_some();
    let stored = core.backend.size(&resource.collection);
    let features = &core.config.features;
    if !features.enabled(Feature::SizeBasedListCostEstimate) {
        return Width::counted(stored, single, most);
    }
    let limit = query.get("limit").and_then(|limit| limit.parse().ok());
    let limit = match limit.filter(|limit| *limit > 0) {
        _ if single => 1,
        limit => limit.unwrap_or(usize::MAX),
    };
    Width::listed(stored, limit, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_more_the_larger_its_objects_are() {
        for (entries, bytes, limit, most, seats) in [
            (0, 0, usize::MAX, 10, 1),
            (10_000, 1, usize::MAX, 10, 1),
            (500, 50_000, usize::MAX, 10, 1),
            (500, 100_001, usize::MAX, 10, 2),
            // 500 pods of 2.5 kB.
            (100_000, 250_000_000, 500, 10, 10),
            (100_000, 250_000_000, 100, 10, 3),
            (100_000, 250_000_000, 1, 10, 1),
            (100_000, 250_000_000, usize::MAX, 10, 10),
            // No more than a list from memory takes, and no more than the level allows.
            (100_000, usize::MAX, usize::MAX, 100, 10),
            (100_000, 250_000_000, usize::MAX, 3, 3),
            // One large object: upstream counts its size as well.
            (1, 350_000, 1, 10, 4),
        ] {
            let width = Width::listed(Size { entries, bytes }, limit, most);
            let wanted = Width {
                seats,
                ..Width::ONE
            };
            assert_eq!(width, wanted, "{entries} objects of {bytes} bytes");
        }
    }

    #[test]
    fn a_list_takes_more_the_more_objects_there_are() {
        for (entries, single, most, seats) in [
            (0, false, 10, 1),
            (100, false, 10, 1),
            (101, false, 10, 2),
            (100_000, false, 10, 10),
            (100_000, false, 3, 3),
            (100_000, true, 10, 1),
        ] {
            let stored = Size {
                entries,
                bytes: usize::MAX,
            };
            let wanted = Width {
                seats,
                ..Width::ONE
            };
            assert_eq!(Width::counted(stored, single, most), wanted, "{entries}");
        }
    }

    #[test]
    fn a_change_takes_more_the_more_watches_there_are() {
        for (watches, most, seats, millis) in [
            (0, 10, 1, 0),
            (9, 10, 1, 0),
            (10, 10, 1, 5),
            (11, 10, 2, 5),
            (100, 10, 10, 5),
            (1000, 10, 10, 50),
            (1000, 2, 2, 250),
            (1000, 0, 1, 500),
        ] {
            let after = Duration::from_millis(millis);
            assert_eq!(
                Width::told(watches, most),
                Width { seats, after },
                "{watches}"
            );
        }
    }
}
