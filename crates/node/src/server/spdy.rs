//! SPDY/3.1: several streams over one connection, as kubectl before 1.31, client-go's SPDY executor, a Kubernetes
//! API server in front of this node, and every port-forward use it. The frames are in [`crate::spdy`].

mod session;

pub(super) use session::{Session, upgrade};

pub(super) use crate::spdy::{Codec, Frame, PROTOCOL_VERSION, TOKEN};

/// The ping with which the node asks whether a client is still there; a client answers with the same frame. Those of servers
/// have even numbers.
pub(super) const ASK: Frame = Frame::Ping(2);

/// Header with the protocols that would have been accepted.
pub(super) const ACCEPTED_VERSIONS: &str = "x-accepted-stream-protocol-versions";
