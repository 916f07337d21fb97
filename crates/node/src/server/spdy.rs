//! SPDY/3.1: several streams over one connection, as kubectl before 1.31, client-go's SPDY executor, a Kubernetes
//! API server in front of this node, and every port-forward use it.
//!
//! Only what those speak is here: the client opens streams, both sides send data and end streams. Flow control is left to
//! TCP: none of the peers sends window updates, so waiting for one would wait for ever.

mod codec;
mod headers;
mod session;
#[cfg(test)]
mod tests;

pub(super) use codec::{Codec, Frame};
pub(super) use session::{Session, upgrade};

/// Token of the `Upgrade` header.
pub(super) const TOKEN: &str = "SPDY/3.1";
/// Header with the protocol that runs on the streams.
pub(super) const PROTOCOL_VERSION: &str = "x-stream-protocol-version";
/// Header with the protocols that would have been accepted.
pub(super) const ACCEPTED_VERSIONS: &str = "x-accepted-stream-protocol-versions";
