//! SPDY/3.1 framing, which multiplexes several streams over one connection. It is used with clients of the node's HTTPS API
//! and with CRI runtimes. Also defines the channels to which the streams correspond.
//!
//! Only the subset that these peers use is implemented: the client opens streams, and both sides send data and close
//! streams. Flow control is left to TCP: none of the peers sends window updates, so waiting for one would block forever.

mod codec;
mod headers;
#[cfg(test)]
mod tests;

pub(crate) use codec::{Codec, Frame};

/// Value of the `Upgrade` header.
pub(crate) const TOKEN: &str = "SPDY/3.1";
/// Header that contains the stream protocol.
pub(crate) const PROTOCOL_VERSION: &str = "x-stream-protocol-version";

/// Channels of the WebSocket protocols, to which SPDY streams are mapped.
pub(crate) mod channel {
    pub(crate) const STDIN: u8 = 0;
    pub(crate) const STDOUT: u8 = 1;
    pub(crate) const STDERR: u8 = 2;
    pub(crate) const ERROR: u8 = 3;
    pub(crate) const RESIZE: u8 = 4;
    /// Since v5: the next byte is the number of the channel that has been closed.
    pub(crate) const CLOSE: u8 = 255;
}

/// The channel of a stream with this `streamType`.
pub(crate) fn carried(kind: &str) -> Option<u8> {
    KINDS.iter().find(|(_, name)| *name == kind).map(|it| it.0)
}

/// The `streamType` of a channel's stream.
pub(crate) fn kind(channel: u8) -> Option<&'static str> {
    KINDS.iter().find(|(it, _)| *it == channel).map(|it| it.1)
}

const KINDS: [(u8, &str); 5] = [
    (channel::STDIN, "stdin"),
    (channel::STDOUT, "stdout"),
    (channel::STDERR, "stderr"),
    (channel::ERROR, "error"),
    (channel::RESIZE, "resize"),
];

/// Fuzzing entry point; see [`crate::fuzzing::spdy`].
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
