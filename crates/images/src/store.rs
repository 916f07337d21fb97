//! Images on disk: an OCI image layout with what a node adds to it.
//!
//! ```text
//! oci-layout, index.json    names of images, as other programs read them
//! blobs/ALGORITHM/HEX       manifests, configurations and layers as they were sent
//! ingest/                   blobs that are not complete; a later pull continues where they end
//! layers/DIFF-ID/fs         unpacked layers, with `report.json` beside
//! leases/                   what is in use, by container or by a pull
//! tmp/                      a directory for each process that has the store open
//! lock                      held while any of the above is listed or rewritten
//! ```
//!
//! Everything is written beside its place, synced and renamed, so that an end at any moment leaves a store that opens.
//! Several processes can use a store at the same time. Functions here block.

mod blob;
mod images;
mod layers;
mod lease;
mod prune;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::{Digest, Error, Limits, Result, Timeouts};
pub use blob::BlobWriter;
pub use images::{Image, NewImage, Removed};
pub use layers::RootFs;
pub use lease::{Lease, is_lease_name};

const LAYOUT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// Largest index file. A name takes about 400 bytes.
const MAX_INDEX: u64 = 64 << 20;

/// A directory with images.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    root: PathBuf,
    limits: Limits,
    timeouts: Timeouts,
    scratch: PathBuf,
    /// Locked as long as this process has the store open; other processes use it to detect that `scratch` is in use.
    _scratch_lock: File,
    /// Layers are unpacked one after the other: each may take the memory of a decompressor's window.
    unpacking: parking_lot::Mutex<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = crate::remove_tree(&self.scratch);
    }
}

impl Store {
    /// Opens a store, which is created if it does not exist. Its directory is not accessible to other users: layers
    /// have programs with set-id bits, and files of users that do not exist on this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be written, [`Error::Config`] if it holds a layout of another version.
    pub fn open(root: impl Into<PathBuf>, limits: Limits, timeouts: Timeouts) -> Result<Self> {
        let root = root.into();
        for name in [
            "",
            "blobs",
            "blobs/sha256",
            "ingest",
            "layers",
            "leases",
            "tmp",
        ] {
            make_directory(&root.join(name))?;
        }
        let lock = lock(&root, timeouts.lock)?;
        let layout = root.join("oci-layout");
        match fs::read_to_string(&layout) {
            Ok(text) if text.contains("\"1.0.") => {}
            Ok(_) => {
                let shown = layout.display();
                return Err(Error::Config(format!(
                    "{shown}: not an image layout of version 1.0.0"
                )));
            }
            Err(_) => write_file(&layout, LAYOUT.as_bytes())?,
        }
        let scratch = root.join("tmp").join(random_name());
        make_directory(&scratch)?;
        let scratch_lock = create(&scratch.join("lock"))?;
        try_lock(&scratch_lock, &scratch)?;
        drop(lock);
        Ok(Self(Arc::new(Inner {
            root,
            limits,
            timeouts,
            scratch,
            _scratch_lock: scratch_lock,
            unpacking: parking_lot::Mutex::new(()),
        })))
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The bounds that the store was opened with.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The deadlines that the store was opened with.
    pub fn timeouts(&self) -> &Timeouts {
        &self.0.timeouts
    }

    /// Holds the store's lock until the result is dropped.
    fn lock(&self) -> Result<File> {
        lock(&self.0.root, self.0.timeouts.lock)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.root.join(name)
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path("blobs")
            .join(digest.algorithm())
            .join(digest.hex())
    }

    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        self.path("layers").join(diff_id.file_name())
    }

    /// An empty directory of this process's own.
    pub(crate) fn temporary(&self) -> Result<tempfile::TempDir> {
        let shown = self.0.scratch.display();
        let failed = Error::io(format!("make a directory in {shown}"));
        tempfile::TempDir::new_in(&self.0.scratch).map_err(failed)
    }
}

fn lock(root: &Path, timeout: Duration) -> Result<File> {
    let path = root.join("lock");
    let file = create(&path)?;
    let deadline = Instant::now() + timeout;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                // flock has no deadline.
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::AGAIN) => {
                return Err(Error::Timeout(format!("lock {}", path.display()), timeout));
            }
            Err(error) => return Err(Error::os(format!("lock {}", path.display()))(error)),
        }
    }
}

/// Locks a file; returns false if another process has locked it.
fn try_lock(file: &File, shown: &Path) -> Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(Error::os(format!("lock {}", shown.display()))(error)),
    }
}

fn make_directory(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    let failed = Error::io(format!("make {}", path.display()));
    builder
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)
}

/// Opens a file for reading and writing, which is created if it does not exist.
fn create(path: &Path) -> Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options
        .open(path)
        .map_err(Error::io(format!("open {}", path.display())))
}

/// Reads a small JSON file; the default if it does not exist.
pub(crate) fn read_json<T: Default + serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let Some(content) = read_file(path, MAX_INDEX)? else {
        return Ok(T::default());
    };
    serde_json::from_slice(&content)
        .map_err(|error| Error::Config(format!("{}: {error}", path.display())))
}

/// Replaces a JSON file.
pub(crate) fn write_json<T: serde::Serialize>(path: &Path, content: &T) -> Result<()> {
    let text = serde_json::to_vec(content).map_err(|error| Error::Internal(error.to_string()))?;
    write_file(path, &text)
}

/// Replaces a file as a whole.
fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let temporary = parent.join(format!(".{}", random_name()));
    let write = || -> std::io::Result<()> {
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(parent)?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::io(format!("write {}", path.display()))(error)
    })
}

fn random_name() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// A file's content if it is not longer than permitted; `None` if there is no such file.
fn read_file(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let failed = |error| Error::io(format!("read {}", path.display()))(error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut content = Vec::new();
    file.take(max + 1)
        .read_to_end(&mut content)
        .map_err(failed)?;
    if content.len() as u64 > max {
        return Err(Error::TooLarge(format!(
            "{} has more than {max} bytes",
            path.display()
        )));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests;
