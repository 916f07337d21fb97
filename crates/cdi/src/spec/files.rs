//! Reading and writing of spec files.

use std::io;
use std::path::Path;

use super::Spec;
use crate::{Error, bounded, file, name};

impl Spec {
    /// Reads a `.json` or `.yaml` file and validates it.
    ///
    /// # Errors
    /// Names the file and the error.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_within(path, &mut 0)
    }

    /// As [`Spec::read`], for one of many files, of which `bytes` have been read. The bytes of this one are added, whether it
    /// is valid or not.
    pub(crate) fn read_within(path: &Path, bytes: &mut u64) -> Result<Self, Error> {
        let fail = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let left = bounded::ALL_FILES.saturating_sub(*bytes);
        let content = file::read_bounded(path, bounded::FILE.min(left));
        let content = content.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge if left < bounded::FILE => {
                let all = bounded::ALL_FILES >> 20;
                let text = format!("the files of all directories are larger than {all} MiB");
                fail(io::Error::other(text))
            }
            _ => fail(error),
        })?;
        *bytes += content.len() as u64;
        let text = String::from_utf8(content)
            .map_err(|error| fail(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Self::parse(path, &text)
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
