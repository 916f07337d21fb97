//! Blobs: written in pieces, checked, and then at their digest.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Store, create, make_directory, read_file, try_lock};
use crate::manifest::Descriptor;
use crate::{Digest, Error, Hasher, Result};

/// How long a writer is waited for that may be about to end.
const ENDING: Duration = Duration::from_secs(1);

/// A blob that is being written to the store. Dropped before [`BlobWriter::commit`] it stays, and the next writer of
/// the same digest continues at its end.
pub struct BlobWriter {
    store: Store,
    file: File,
    path: PathBuf,
    hasher: Hasher,
    digest: Digest,
    expected: u64,
    written: u64,
}

impl Store {
    /// Whether a blob is complete.
    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blob_path(digest).is_file()
    }

    /// Opens a blob for reading.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] or [`Error::Io`].
    pub fn open_blob(&self, digest: &Digest) -> Result<File> {
        File::open(self.blob_path(digest)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound(format!("blob {digest}")),
            _ => Error::io(format!("open blob {digest}"))(error),
        })
    }

    /// A small blob's content. Its digest is checked again, since disks fail.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::TooLarge`], [`Error::Corrupt`] or [`Error::Io`].
    pub fn read_blob(&self, digest: &Digest, max: u64) -> Result<Vec<u8>> {
        let content = read_file(&self.blob_path(digest), max)?;
        let content = content.ok_or_else(|| Error::NotFound(format!("blob {digest}")))?;
        let mut hasher = digest.hasher();
        hasher.update(&content);
        let actual = hasher.finish();
        if actual != *digest {
            let expected = digest.clone();
            return Err(Error::Corrupt { expected, actual });
        }
        Ok(content)
    }

    /// Stores a small blob, and returns its digest.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn put_blob(&self, content: &[u8]) -> Result<Digest> {
        let digest = Digest::of(content);
        self.put_blob_as(content, &digest)?;
        Ok(digest)
    }

    /// Stores a small blob that has to have a digest.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] or [`Error::Io`].
    pub fn put_blob_as(&self, content: &[u8], digest: &Digest) -> Result<()> {
        if self.has_blob(digest) {
            return Ok(());
        }
        let mut writer = self.begin(digest, content.len() as u64)?;
        writer.restart()?;
        writer.write(content)?;
        writer.commit()
    }

    /// Starts to write a blob, or continues where an interrupted writer ended ([`BlobWriter::written`]).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] beyond the limit of a layer, or [`Error::Io`].
    pub fn begin(&self, digest: &Digest, size: u64) -> Result<BlobWriter> {
        if size > self.limits().layer {
            return Err(Error::TooLarge(format!(
                "blob {digest} has {size} bytes, more than {}",
                self.limits().layer
            )));
        }
        let mut path = self.path("ingest").join(digest.file_name());
        let mut file = create(&path)?;
        // Another process that writes the same blob is not waited for.
        if !try_lock(&file, &path)? || !is_at(&file, &path) {
            path = self.0.scratch.join(super::random_name());
            file = create(&path)?;
        }
        let mut writer = BlobWriter {
            store: self.clone(),
            file,
            path,
            hasher: digest.hasher(),
            digest: digest.clone(),
            expected: size,
            written: 0,
        };
        writer.resume()?;
        Ok(writer)
    }

    /// Removes what is there of blobs that are not complete, when a pull of them has no use for it. What another pull is
    /// writing stays.
    pub(crate) fn discard(&self, digests: &[Digest]) {
        let until = Instant::now() + ENDING;
        for digest in digests {
            let path = self.path("ingest").join(digest.file_name());
            let Ok(file) = File::open(&path) else {
                continue;
            };
            loop {
                match try_lock(&file, &path) {
                    Ok(true) if is_at(&file, &path) => {
                        let _ = fs::remove_file(&path);
                        break;
                    }
                    // The writers of a pull that failed end when they have written what was received.
                    Ok(false) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Whether the name still leads to the open file: it may have been moved to its place in the meantime.
pub(super) fn is_at(file: &File, path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => open.ino() == there.ino(),
        _ => false,
    }
}

impl BlobWriter {
    /// Bytes that are present already.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::io(format!("write blob {}", self.digest))(error)
    }

    fn resume(&mut self) -> Result<()> {
        let length = self
            .file
            .metadata()
            .map_err(|error| self.failed(error))?
            .len();
        if length > self.expected {
            return self.restart();
        }
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = self
                .file
                .read(&mut buffer)
                .map_err(|error| self.failed(error))?;
            if read == 0 {
                return Ok(());
            }
            self.hasher.update(&buffer[..read]);
            self.written += read as u64;
        }
    }

    /// Drops the written content and starts again, for a server without range requests.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(|error| self.failed(error))?;
        self.file.rewind().map_err(|error| self.failed(error))?;
        self.hasher = self.digest.hasher();
        self.written = 0;
        Ok(())
    }

    /// Takes the next piece.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] if it exceeds the descriptor's size; [`Error::Io`] if the disk is full, in which case the blob
    /// is removed.
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        if self.written + piece.len() as u64 > self.expected {
            self.discard();
            return Err(self.wrong_size());
        }
        if let Err(error) = self.file.write_all(piece) {
            self.discard();
            return Err(self.failed(error));
        }
        self.hasher.update(piece);
        self.written += piece.len() as u64;
        Ok(())
    }

    /// Checks the blob and moves it to its place. A blob that is wrong is removed.
    ///
    /// # Errors
    ///
    /// [`Error::Size`], [`Error::Corrupt`] or [`Error::Io`].
    pub fn commit(self) -> Result<()> {
        if self.written != self.expected {
            self.discard();
            return Err(self.wrong_size());
        }
        let actual = self.hasher.clone().finish();
        if actual != self.digest {
            self.discard();
            let expected = self.digest.clone();
            return Err(Error::Corrupt { expected, actual });
        }
        let target = self.store.blob_path(&self.digest);
        let parent = self.store.path("blobs").join(self.digest.algorithm());
        make_directory(&parent)?;
        let publish = || {
            self.file.sync_all()?;
            fs::rename(&self.path, &target)?;
            File::open(&parent)?.sync_all()
        };
        publish().map_err(|error| {
            self.discard();
            self.failed(error)
        })
    }

    /// Removes the written content.
    pub fn discard(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn wrong_size(&self) -> Error {
        Error::Size {
            digest: self.digest.clone(),
            expected: self.expected,
        }
    }
}

impl Descriptor {
    /// A descriptor of some content.
    pub fn of(media_type: &str, content: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(content),
            size: content.len() as u64,
            platform: None,
            annotations: Default::default(),
        }
    }
}
