//! Entry points for the fuzz targets in `fuzz/`. Each must return for any input.

use std::path::Path;

/// Data of a client on a SPDY connection, in pieces of as many bytes as the first byte says. The codec's output is not
/// longer than its input, except for headers, which are compressed and have their own bound.
pub fn spdy(bytes: &[u8]) {
    crate::spdy::fuzz(bytes);
}

/// Data of a client on a WebSocket connection with channels: the first byte says which protocol, and of how many bytes the
/// pieces are in which it arrives. What is passed on is bounded in pieces and is not longer than the input.
pub fn websocket(bytes: &[u8]) {
    crate::server::fuzz_websocket(bytes);
}

/// What a driver answers to a call of the node agent: the first byte says to which call, and whether the rest is the
/// message, or everything that the driver sends on its connection.
pub fn driver(bytes: &[u8]) {
    crate::claims::fuzz_driver(bytes);
}

/// A checkpoint of prepared claims, with a checksum that fits.
pub fn checkpoint(directory: &Path, bytes: &[u8]) {
    crate::claims::fuzz_checkpoint(directory, bytes);
}
