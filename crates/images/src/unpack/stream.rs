//! The bytes of an archive on their way to the reader of tar: counted, bounded and digested.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Digest, Error, Hasher, Limits};

struct State<'a> {
    input: Box<dyn Read + 'a>,
    hasher: Hasher,
    /// Bytes that may still be read until the next call of `expect_…`.
    left: u64,
    /// Bytes that may be read altogether: the files, their headers and padding.
    total: u64,
    header: u64,
}

/// Input that ends with an error when its reader is to stop.
pub(crate) struct Cancellable<'a, R>(pub(crate) R, pub(crate) &'a AtomicBool);

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::Error::other(Error::Cancelled)),
            false => self.0.read(output),
        }
    }
}

/// The side of the unpacker.
pub(crate) struct Stream<'a>(Rc<RefCell<State<'a>>>);

/// The side of the reader of tar.
pub(crate) struct Reader<'a>(Rc<RefCell<State<'a>>>);

/// Bytes of a header block with its padding.
const BLOCKS: u64 = 2048;

impl<'a> Stream<'a> {
    pub(crate) fn new(input: Box<dyn Read + 'a>, limits: &Limits) -> Self {
        let headers = limits.entries.saturating_mul(BLOCKS);
        Self(Rc::new(RefCell::new(State {
            input,
            hasher: Hasher::sha256(),
            left: 0,
            total: limits.unpacked.saturating_add(headers),
            header: limits.header,
        })))
    }

    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader(self.0.clone())
    }

    /// A header comes next. The reader of tar keeps long names and extended headers in memory, whatever length they
    /// claim.
    pub(crate) fn expect_header(&self) {
        let mut state = self.0.borrow_mut();
        state.left = state.header;
    }

    /// The content of a file comes next, which is written to disk.
    pub(crate) fn expect_content(&self) {
        self.0.borrow_mut().left = u64::MAX;
    }

    /// Reads to the end, since all of it counts for the digest.
    pub(crate) fn finish(self) -> io::Result<Digest> {
        self.expect_content();
        io::copy(&mut self.reader(), &mut io::sink())?;
        let hasher = self.0.borrow().hasher.clone();
        Ok(hasher.finish())
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.0.borrow_mut();
        if output.is_empty() {
            return Ok(0);
        }
        let length = state.input.read(output)?;
        state.hasher.update(&output[..length]);
        let too_large = |what: &str| io::Error::other(Error::TooLarge(what.to_owned()));
        state.left = state
            .left
            .checked_sub(length as u64)
            .ok_or_else(|| too_large("an entry of the layer has too large headers"))?;
        state.total = state
            .total
            .checked_sub(length as u64)
            .ok_or_else(|| too_large("the layer is too large when unpacked"))?;
        Ok(length)
    }
}

/// The error that [`Reader`] put into the standard library's, or that the archive is invalid. Reading the blob itself
/// can fail as well, which the operating system's code indicates.
pub(crate) fn unwrap(error: io::Error) -> Error {
    if error.raw_os_error().is_some() {
        return Error::io("read layer")(error);
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(known) = inner.downcast_ref::<Error>() {
            return known.clone();
        }
        if let Some(nested) = inner.downcast_ref::<io::Error>() {
            if let Some(code) = nested.raw_os_error() {
                return Error::io("read layer")(io::Error::from_raw_os_error(code));
            }
            cause = nested.get_ref().map(|inner| inner as _);
        } else {
            cause = inner.source();
        }
    }
    // The error may contain what was read.
    let reason = error.to_string();
    let reason = reason.lines().next().unwrap_or_default();
    let reason: String = reason
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    Error::InvalidImage(format!("the layer is not a valid archive: {reason}"))
}
