//! Specs as files.

use std::path::Path;

use super::Spec;
use crate::{Error, bounded, file, name};

/// The text of a file that a driver wrote.
fn read(path: &Path) -> std::io::Result<String> {
    let content = file::read_bounded(path, bounded::FILE)?;
    String::from_utf8(content)
        .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

impl Spec {
    /// Reads a `.json` or `.yaml` file and validates it.
    ///
    /// # Errors
    /// Names the file and the error.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// The same for a file that may have `left` bytes, which are taken from it whether the file can be used or not. What has
    /// more is not read.
    pub(crate) fn read_within(path: &Path, left: &mut u64) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let size = std::fs::metadata(path).map_err(io)?.len();
        // No more than that is read of a larger one, either.
        let size = size.min(bounded::FILE);
        if size > *left {
            let all = bounded::ALL_FILES >> 20;
            let text = format!("the files of all directories are larger than {all} MiB");
            return Err(io(std::io::Error::other(text)));
        }
        *left -= size;
        Self::parse(path, &read(path).map_err(io)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let parse = |reason: String| Error::Parse {
            path: path.to_owned(),
            reason,
        };
        let spec: Self = if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            serde_json::from_str(text).map_err(|error| parse(error.to_string()))?
        } else {
            serde_saphyr::from_str(text).map_err(|error| parse(error.to_string()))?
        };
        spec.validate().map_err(|error| parse(error.to_string()))?;
        Ok(spec)
    }

    /// Validates and replaces the file at `path` (JSON, mode 0644, because runtimes may run as another user). Kinds that
    /// crash container runtimes are refused, see [`crate::check_written_kind`].
    ///
    /// # Errors
    /// A broken rule or the file system's. A vendor or a class of one letter is such a rule: it is valid and can be read, but
    /// the library of containerd and CRI-O panics on it.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        self.validate()?;
        name::check_written_kind(&self.kind)?;
        let text = serde_json::to_vec(self).map_err(|error| Error::Parse {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        file::write_atomic(path, &text, 0o644).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })
    }
}
