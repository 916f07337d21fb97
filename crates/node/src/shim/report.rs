//! What a child process reports to its parent through a pipe: the text of its error, or nothing if it became the program.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

/// Writes the text of an error in the child process, which then ends.
pub(super) fn send(pipe: OwnedFd, problem: &impl Display) {
    // If this fails, nothing reads the pipe: the parent process has ended, or has failed with another error.
    let _ = File::from(pipe).write_all(problem.to_string().as_bytes());
}

/// Why a child process did not become the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    /// The pipe cannot be read.
    #[error(transparent)]
    Read(io::Error),
    /// The text that the child wrote. No type crosses the pipe.
    #[error("{0}")]
    Child(String),
}

/// Waits until the last copy of the pipe's other end is closed, which a successful exec does.
///
/// # Errors
/// The child's error.
pub(super) fn wait(pipe: OwnedFd) -> Result<(), ReportError> {
    let mut text = Vec::new();
    File::from(pipe)
        .read_to_end(&mut text)
        .map_err(ReportError::Read)?;
    match text.is_empty() {
        true => Ok(()),
        false => Err(ReportError::Child(
            String::from_utf8_lossy(&text).into_owned(),
        )),
    }
}
