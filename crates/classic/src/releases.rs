//! Claims that are being deallocated or unreserved for one pod: the pods concerned may not rely on them until the write
//! has an outcome.

use allot_framework::pod::Uid;
use rustc_hash::FxHashSet;

/// Releases in flight of claims of one generation.
#[derive(Debug, Default)]
pub(crate) struct Releases(FxHashSet<(Uid, Option<Uid>)>);

impl Releases {
    /// Whether a pod may not count on a claim.
    pub(crate) fn concern(&self, claim: &str, pod: &Uid) -> bool {
        let has = |pod| self.0.contains(&(Uid::from(claim), pod));
        !self.0.is_empty() && (has(None) || has(Some(pod.clone())))
    }

    /// The deallocation of a claim begins; with a pod, the removal of its reservation.
    pub(crate) fn begin(&mut self, claim: &str, pod: Option<Uid>) {
        self.0.insert((claim.into(), pod));
    }

    /// The release has ended, with or without success.
    pub(crate) fn end(&mut self, claim: &Uid, pod: Option<Uid>) {
        self.0.remove(&(claim.clone(), pod));
    }
}
