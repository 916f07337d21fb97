//! What a start is busy with, in one line on a terminal.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::logging::{CLEAR, PROGRESS};

/// Shows the progress of a start. Clones share one line.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Line>>);

/// The line on the terminal; it is cleared with the last writer.
struct Line(File);

impl Progress {
    /// On standard error, if that is a terminal, even if the log goes to a file later.
    pub fn on_terminal() -> Self {
        let stderr = std::io::stderr();
        if !stderr.is_terminal() {
            return Self::default();
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(&stderr, 3);
        Self(copy.ok().map(|copy| Arc::new(Line(copy.into()))))
    }

    /// Shows the current step.
    pub fn step(&self, text: &str) {
        if let Some(line) = &self.0 {
            PROGRESS.store(true, Ordering::Relaxed);
            // Errors are ignored: the progress is optional.
            let _ = (&line.0).write_all(format!("{CLEAR}{text} …").as_bytes());
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if let Some(line) = &self.0
            && PROGRESS.swap(false, Ordering::Relaxed)
        {
            let _ = (&line.0).write_all(CLEAR.as_bytes());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if PROGRESS.swap(false, Ordering::Relaxed) {
            let _ = self.0.write_all(CLEAR.as_bytes());
        }
    }
}
