//! Entry points for the fuzz targets in `fuzz/`. Each must return for any input.

use std::path::Path;

/// Data of a client on a SPDY connection, in pieces of as many bytes as the first byte says. The codec's output is not
/// longer than its input, except for headers, which are compressed and have their own bound.
pub fn spdy(bytes: &[u8]) {
    crate::spdy::fuzz(bytes);
}

/// A checkpoint of prepared claims, with a checksum that fits.
pub fn checkpoint(directory: &Path, bytes: &[u8]) {
    crate::claims::fuzz_checkpoint(directory, bytes);
}
