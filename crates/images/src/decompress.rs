//! Layers as tar streams, however they are compressed. The first bytes decide, not the media type, as in containerd.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The magic number of a skippable zstd frame, which may come first, without its first byte: that is 0x50 to 0x5f.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
/// Limit of a zstd frame's window. Files of `zstd --ultra -22` need this much.
const MAX_WINDOW: u64 = 128 << 20;

/// The stream without its compression.
pub(crate) fn decompress<'a>(input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let start = peek(&mut input)?;
    Ok(if start.starts_with(GZIP) {
        Box::new(flate2::bufread::MultiGzDecoder::new(input))
    } else if start.starts_with(ZSTD) || start.get(1..4) == Some(ZSTD_SKIPPABLE) {
        Box::new(Zstd::new(input))
    } else {
        Box::new(input)
    })
}

/// The first bytes of a stream without consuming them. A stream that returns them in small pieces counts as not
/// compressed.
fn peek(input: &mut impl BufRead) -> io::Result<[u8; 4]> {
    let mut start = [0; 4];
    let buffer = input.fill_buf()?;
    let length = buffer.len().min(4);
    start[..length].copy_from_slice(&buffer[..length]);
    Ok(start)
}

/// Concatenated zstd frames; those without data are skipped.
struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    open: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Self {
            input,
            decoder,
            open: false,
        }
    }

    /// Begins the next frame with data; false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let wanted = u64::from(length);
                    let skipped = io::copy(&mut self.input.by_ref().take(wanted), &mut io::sink())?;
                    if skipped < wanted {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if output.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.open && !self.begin()? {
                return Ok(0);
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(output);
            }
            if self.decoder.is_finished() {
                self.open = false;
                continue;
            }
            let strategy = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder
                .decode_blocks(&mut self.input, strategy)
                .map_err(invalid)?;
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {error}"))
}

#[cfg(test)]
mod tests;
