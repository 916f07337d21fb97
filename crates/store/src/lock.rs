//! One process per data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::Error;

/// Holds the directory until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    // The lock belongs to the open file and is released with it, also when the process is killed.
    _file: File,
}

impl DirectoryLock {
    /// Locks the directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Locked`] names the process that holds it; [`Error::Open`] says why it cannot be
    /// used.
    pub fn take(directory: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|error| Error::Open {
            path: directory.to_owned(),
            detail: match error.kind() {
                std::io::ErrorKind::AlreadyExists => "it is no directory".to_owned(),
                _ => error.to_string(),
            },
        })?;
        let path = directory.join("lock");
        let open_error = |error: std::io::Error| Error::Open {
            path: path.clone(),
            detail: error.to_string(),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(open_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                let holder = if pid.is_empty() {
                    String::new()
                } else {
                    format!(" (pid {pid})")
                };
                return Err(Error::Locked {
                    path: directory.to_owned(),
                    holder,
                });
            }
            Err(TryLockError::Error(error)) => return Err(open_error(error)),
        }
        // The PID is for operators; losing it has no consequences.
        let _ = file.set_len(0);
        let _ = file.seek(SeekFrom::Start(0));
        let _ = writeln!(file, "{}", std::process::id());
        Ok(DirectoryLock { _file: file })
    }
}
