//! Container logs in the format that the CRI defines.

use std::fs::File;
use std::io::{self, Write};

use jiff::Timestamp;

/// Longer lines are split into partial ones, as by containerd.
const LONGEST: usize = 16 * 1024;

/// One log line: time, stream, `F` for a full line or `P` for a part of one, text.
pub fn format_line(out: &mut Vec<u8>, time: Timestamp, stream: &str, full: bool, text: &[u8]) {
    let tag = if full { 'F' } else { 'P' };
    // Writing to a vector does not fail.
    let _ = write!(out, "{time:.9} {stream} {tag} ");
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Collects the output of one stream until lines are complete.
pub(super) struct Lines {
    stream: &'static str,
    rest: Vec<u8>,
}

impl Lines {
    pub(super) fn new(stream: &'static str) -> Self {
        Self {
            stream,
            rest: Vec::new(),
        }
    }

    /// The stream's number, as a program knows it.
    pub(super) fn channel(&self) -> u8 {
        if self.stream == "stderr" { 2 } else { 1 }
    }

    /// Writes all complete lines.
    pub(super) fn push(&mut self, log: &mut File, bytes: &[u8]) -> io::Result<()> {
        let now = Timestamp::now();
        let mut out = Vec::with_capacity(bytes.len() + 64);
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        // split yields at least one piece; the last one has no newline yet.
        let last = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.rest.extend_from_slice(piece);
            self.flush_long(&mut out, now);
            format_line(&mut out, now, self.stream, true, &self.rest);
            self.rest.clear();
        }
        self.rest.extend_from_slice(last);
        self.flush_long(&mut out, now);
        log.write_all(&out)
    }

    fn flush_long(&mut self, out: &mut Vec<u8>, now: Timestamp) {
        while self.rest.len() > LONGEST {
            format_line(out, now, self.stream, false, &self.rest[..LONGEST]);
            self.rest.drain(..LONGEST);
        }
    }

    /// The stream ended: what is left is a line without an end.
    pub(super) fn finish(&mut self, log: &mut File) -> io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        format_line(&mut out, Timestamp::now(), self.stream, false, &self.rest);
        self.rest.clear();
        log.write_all(&out)
    }
}
