//! How many seats a request takes.

use crate::server::{Core, Incoming};

/// Objects that a list reads for one seat. Upstream counts 100 kB per seat, and at most ten for what is served from
/// memory; everything is here.
const OBJECTS_PER_SEAT: usize = 100;

/// Lists, and watches that begin with one, take more than one.
pub(super) fn seats(core: &Core, request: &Incoming, most: usize) -> usize {
    let (info, query) = (&request.info, &request.query);
    let lists = match info.verb.as_str() {
        "list" => true,
        "watch" => {
            query.flag("sendInitialEvents")
                || matches!(query.get("resourceVersion"), None | Some("" | "0"))
        }
        _ => false,
    };
    if !lists || !info.name.is_empty() || most <= 1 {
        return 1;
    }
    let registry = core.registry.load();
    let Some(resource) = registry.get(&info.group, &info.resource) else {
        return 1;
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
    read.div_ceil(OBJECTS_PER_SEAT).clamp(1, most)
}
