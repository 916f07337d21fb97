//! Disk space that is reserved for deletes.
//!
//! Deleting objects frees space on a full disk, but a delete writes: a record, and copies of the pages that it changes.
//! So a file of a few megabytes is kept beside the store and removed when a delete finds no space.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file inside a data directory.
const NAME: &str = "reserve";
/// More than the deletes of one group change.
const BYTES: u64 = 4 << 20;

/// Space that can be released on a full disk.
pub trait Reserve: Send {
    /// Allocates the space if needed; returns whether it is allocated now.
    fn fill(&mut self) -> bool;

    /// Releases the space.
    fn release(&mut self);
}

/// A file that exists for its size.
pub(crate) struct FileReserve(PathBuf);

impl FileReserve {
    /// The file of a data directory.
    pub fn of(directory: &Path) -> Self {
        FileReserve(directory.join(NAME))
    }

    fn write(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file: File = options.open(&self.0)?;
        // Random content that a file system cannot compress.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut block = Vec::with_capacity(64 << 10);
        while block.len() < block.capacity() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            block.extend_from_slice(&random.to_le_bytes());
        }
        for _ in 0..BYTES / block.len() as u64 {
            file.write_all(&block)?;
        }
        file.sync_all()
    }
}

impl Reserve for FileReserve {
    fn fill(&mut self) -> bool {
        if std::fs::metadata(&self.0).is_ok_and(|meta| meta.len() == BYTES) {
            return true;
        }
        let written = self.write();
        if let Err(error) = &written {
            tracing::debug!(%error, "keeping space for deletes");
            self.release();
        }
        written.is_ok()
    }

    fn release(&mut self) {
        // A file that does not exist takes no space.
        let _ = std::fs::remove_file(&self.0);
    }
}
