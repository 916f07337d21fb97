//! How a plugin rejects a pod or a node, and the texts that more than one generation of DRA uses.

/// Why a node is rejected if an allocated claim cannot be used there; deallocating the claim may help.
pub const NOT_AVAILABLE: &str = "resourceclaim not available on the node";

/// Why a pod waits for the deallocation of its claim; upstream's text from when drivers deallocated claims.
pub const MUST_BE_REALLOCATED: &str = "resourceclaim must be reallocated";

/// The status code of a rejection (`fwk.Code`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Does not fit now; removing other pods may help, so preemption considers the node.
    Unschedulable,
    /// Does not fit, and removing pods would not help.
    Unresolvable,
    /// It took too much work to find out. As upstream that ends the attempt, which is repeated with backoff.
    Inconclusive,
    /// An error unrelated to fitting; the attempt is repeated with backoff.
    Error,
}
