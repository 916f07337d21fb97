//! SPDY/3.1: several streams over one connection, as kubectl before 1.31, client-go's SPDY executor, a Kubernetes
//! API server in front of this node, and every port-forward use it.
//!
//! Only what those clients use is implemented: the client opens streams, both sides send data and end streams. Flow
//! control is left to TCP: none of the peers sends window updates, so waiting for one would never end.

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

/// See [`crate::fuzzing::spdy`].
pub(crate) fn fuzz(bytes: &[u8]) {
    use tokio_util::codec::Decoder as _;

    let Some((step, bytes)) = bytes.split_first() else {
        return;
    };
    let mut codec = Codec::new();
    let mut source = bytes::BytesMut::new();
    let mut received = 0;
    for piece in bytes.chunks(usize::from(*step).max(1)) {
        source.extend_from_slice(piece);
        loop {
            match codec.decode(&mut source) {
                Ok(Some(Frame::Data { data, .. })) => received += data.len(),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert!(received <= bytes.len(), "more data than was sent");
}
