//! Entry points for the fuzz targets in `fuzz/`. Each must return, whatever the bytes are.

use std::path::Path;

/// What a client sends on a SPDY connection, in pieces of as many bytes as the first one says. What the codec hands out
/// is not more than what came in, but for headers, which are compressed and have a bound of their own.
pub fn spdy(bytes: &[u8]) {
    crate::spdy::fuzz(bytes);
}

/// A checkpoint of prepared claims, with a checksum that fits.
pub fn checkpoint(directory: &Path, bytes: &[u8]) {
    crate::claims::fuzz_checkpoint(directory, bytes);
}
