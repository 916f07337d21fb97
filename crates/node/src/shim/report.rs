//! What a child process reports to its parent through a pipe: the text of its error, or nothing if it became the program.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

/// Longest report, in bytes. Errors of libcontainer and of the operating system are shorter; what a process in the container
/// writes, if it can open the pipe, need not be.
const LONGEST: u64 = 16 << 10;

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

/// Waits until the last copy of the pipe's other end is closed, which a successful exec does, or until the report has the greatest
/// length: the rest is not read.
///
/// # Errors
/// The child's error.
pub(super) fn wait(pipe: OwnedFd) -> Result<(), ReportError> {
    let mut text = Vec::new();
    File::from(pipe)
        .take(LONGEST)
        .read_to_end(&mut text)
        .map_err(ReportError::Read)?;
    match text.is_empty() {
        true => Ok(()),
        false => Err(ReportError::Child(
            String::from_utf8_lossy(&text).into_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: what writes to the pipe never ends.
    #[test]
    fn a_report_without_end_is_cut() {
        let (reader, writer) = std::io::pipe().unwrap();
        let writing = std::thread::spawn(move || {
            let mut writer = writer;
            // Ends when nothing reads any longer.
            std::iter::repeat_with(|| writer.write_all(&[b'x'; 4096])).find_map(Result::err)
        });
        let error = wait(reader.into()).unwrap_err();
        assert_eq!(error.to_string().len() as u64, LONGEST);
        let error = writing.join().unwrap().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_report_is_the_text_of_the_error_or_nothing() {
        let (reader, writer) = std::io::pipe().unwrap();
        send(writer.into(), &"no such program");
        let error = wait(reader.into()).unwrap_err();
        assert_eq!(error.to_string(), "no such program");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert!(wait(reader.into()).is_ok());
    }
}
