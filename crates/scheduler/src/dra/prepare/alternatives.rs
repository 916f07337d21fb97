//! Claims without the first alternatives of their lists: pods of a gang skip them if the gang does not fit otherwise.

use std::borrow::Cow;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use super::{chosen_alternative, requests_of};

/// The claim without the first alternatives of its lists; the last one always stays.
pub(super) fn without_first(
    claim: &ResourceClaim,
    skip_alternatives: usize,
) -> Cow<'_, ResourceClaim> {
    if skip_alternatives == 0 {
        return Cow::Borrowed(claim);
    }
    let mut claim = claim.clone();
    let devices = claim.spec.devices.iter_mut();
    for request in devices.flat_map(|d| d.requests.iter_mut().flatten()) {
        if let Some(list) = &mut request.first_available {
            list.drain(..skip_alternatives.min(list.len().saturating_sub(1)));
        }
    }
    Cow::Owned(claim)
}

/// How many alternatives the claim has to leave out so that it gets less than it has; `None` when it has the least.
pub fn next_skip(claim: &ResourceClaim, allocation: &AllocationResult) -> Option<usize> {
    let next = |request| {
        let next = chosen_alternative(request, allocation)? + 1;
        let there = request.first_available.as_ref()?.len();
        (next < there).then_some(next)
    };
    requests_of(claim).iter().filter_map(next).min()
}
