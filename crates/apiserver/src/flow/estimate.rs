//! How many seats a request takes, and for how long.

use std::time::Duration;

use super::watches::{Watches, exact};
use crate::request::Incoming;
use crate::state::ServerState;

/// Objects that a list reads for one seat. Upstream counts 100 kB per seat, and at most ten for lists from memory; here
/// all lists are.
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

    fn seats(seats: usize) -> Self {
        Width { seats, ..Self::ONE }
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

/// Lists, watches that begin with one, and changes that go to many watches take more than one seat.
pub(super) fn width(
    core: &ServerState,
    watches: &Watches,
    request: &Incoming,
    most: usize,
) -> Width {
    let (info, query) = (&request.info, &request.query);
    let lists = match info.verb.as_str() {
        "list" => true,
        "watch" => {
            query.flag("sendInitialEvents")
                || matches!(query.get("resourceVersion"), None | Some("" | "0"))
        }
        // A token is no event.
        "create" if info.resource == "serviceaccounts" && info.subresource == "token" => false,
        "create" | "update" | "patch" | "delete" => {
            return Width::told(watches.interested(info), most);
        }
        _ => false,
    };
    // One that names a single object reads that alone.
    if !lists || most <= 1 || !info.name.is_empty() || exact(request, "metadata.name").is_some() {
        return Width::ONE;
    }
    let registry = core.registry.load();
    let Some(resource) = registry.get(&info.group, &info.resource) else {
        return Width::ONE;
    };
    let counts = core.backend.counts();
    let stored = counts
        .iter()
        .find(|(name, _)| **name == *resource.collection);
    let stored = stored.map_or(0, |(_, count)| *count);
    let limit = query.get("limit").and_then(|limit| limit.parse().ok());
    let read = limit
        .filter(|limit| *limit > 0)
        .unwrap_or(stored)
        .min(stored);
    Width::seats(read.div_ceil(OBJECTS_PER_SEAT).clamp(1, most))
}

#[cfg(test)]
mod tests {
    use super::*;

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
