//! Atomic replacement of files (readers see the old or the new content, also after a crash), and creation of directories
//! that other users cannot read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Writes `content` to `path` with the given mode: temporary file in the same directory, fsync, rename, fsync
/// of the directory. Missing parent directories are created.
///
/// The temporary name starts with a dot and has no extension that a CDI scanner takes.
///
/// # Errors
/// Errors of the file system; the old file is intact then.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a file path");
    let (directory, name) = (
        path.parent().ok_or_else(invalid)?,
        path.file_name().ok_or_else(invalid)?,
    );
    fs::create_dir_all(directory)?;
    let unique = format!(
        ".{}.{}-{}.tmp",
        name.to_string_lossy(),
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let temporary = directory.join(unique);
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

/// Creates a directory, with those above it that are missing, for which other users have no more rights than `mode` gives
/// them. An existing directory keeps its mode.
///
/// # Errors
/// Errors of the file system.
pub fn create_private_dir(path: &Path, mode: u32) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(mode).create(path)
}

/// Reads a file that another program wrote, with at most `largest` bytes. A pipe is not waited for, and a device not read:
/// either might never end.
///
/// # Errors
/// Errors of the file system; the file is not a regular one, or larger.
pub fn read_bounded(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    /// `O_NONBLOCK` of Linux on all supported architectures: pipes are opened without waiting for their other end.
    const NONBLOCK: i32 = 0o4000;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let too_large = || {
        let text = format!("larger than {} MiB", largest >> 20);
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    };
    if metadata.len() > largest {
        return Err(too_large());
    }
    let mut content = Vec::new();
    // The file may grow meanwhile, and files of the kernel have no length.
    file.take(largest.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > largest {
        return Err(too_large());
    }
    Ok(content)
}

/// Removes the temporary files that [`write_atomic`] left for `path` in a process that was killed. `path` must not be
/// written concurrently.
///
/// # Errors
/// Errors of the file system; the directory need not exist.
pub fn remove_unfinished(path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&prefix) && name.ends_with(".tmp") {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes `path`; a missing file is fine.
///
/// # Errors
/// Errors of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        write_atomic(&path, b"{}", 0o600).unwrap();
        for name in [".a.json.17-3.tmp", ".b.json.17-3.tmp", ".a.json"] {
            fs::write(directory.path().join(name), "{").unwrap();
        }
        remove_unfinished(&path).unwrap();
        remove_unfinished(&directory.path().join("none").join("a.json")).unwrap();
        let entries = fs::read_dir(directory.path()).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [".a.json", ".b.json.17-3.tmp", "a.json"]);
    }
}
