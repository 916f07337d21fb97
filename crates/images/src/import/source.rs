//! Files to import from.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

use crate::manifest::Descriptor;
use crate::store::{Lease, Store};
use crate::unpack::stream::{self, Stream};
use crate::{Digest, Error, Hasher, Limits, Result};

/// Limit of files of an archive that are kept until they are read.
const MAX_FILES: usize = 10_000;
/// How many links lead from a name to a file.
const MAX_LINKS: usize = 8;

/// The source of an import's files.
pub(super) enum Source {
    /// A layout in a directory.
    Directory(PathBuf),
    /// The content of an archive: blobs are in the store, other files in a directory under numbers.
    Archive {
        directory: tempfile::TempDir,
        files: HashMap<String, ArchiveEntry>,
    },
}

pub(super) enum ArchiveEntry {
    File(u64),
    Link(String),
    Blob(Digest),
}

/// Opens a regular file: a pipe in a layout would keep its reader waiting.
fn open_file(path: &Path) -> std::io::Result<File> {
    let waits_for_no_writer = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    options.read(true).custom_flags(waits_for_no_writer);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("it is not a regular file")),
    }
}

impl Source {
    pub(super) fn open(
        store: &Store,
        path: &Path,
        lease: &mut Lease,
        cancel: &AtomicBool,
    ) -> Result<Self> {
        let shown = path.display().to_string();
        let data = std::fs::metadata(path).map_err(Error::io(shown.clone()))?;
        if data.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let file = File::open(path).map_err(Error::io(shown))?;
        Self::archive(store, file, lease, cancel)
    }

    /// Reads an archive once, from its beginning to its end.
    fn archive(store: &Store, file: File, lease: &mut Lease, cancel: &AtomicBool) -> Result<Self> {
        let broken = stream::unwrap;
        let limits = store.limits().clone();
        let directory = store.temporary()?;
        let mut files = HashMap::new();
        let plain = crate::decompress::decompress(file).map_err(broken)?;
        let total = Limits {
            unpacked: limits.image,
            ..limits.clone()
        };
        let stream = Stream::new(plain, &total);
        let mut archive = tar::Archive::new(stream.reader());
        let mut entries = archive.entries().map_err(broken)?;
        let (mut kept, mut number) = (0, 0);
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            stream.expect_header();
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(broken)?;
            stream.expect_content();
            let path = entry.path_bytes().into_owned();
            let Some(name) = std::str::from_utf8(&path)
                .ok()
                .and_then(|name| clean(name, ""))
            else {
                std::io::copy(&mut entry, &mut std::io::sink()).map_err(broken)?;
                continue;
            };
            let kind = entry.header().entry_type();
            // Each counts, also one with the name of an earlier one: it is a file as well.
            kept += usize::from(!kind.is_dir());
            if kept > MAX_FILES {
                return Err(Error::TooLarge(format!(
                    "the archive has more than {MAX_FILES} files"
                )));
            }
            let size = entry.size();
            if kind.is_symlink() || kind.is_hard_link() {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let base = match (kind.is_symlink(), name.rsplit_once('/')) {
                    (true, Some((base, _))) => base,
                    _ => "",
                };
                if let Some(target) = std::str::from_utf8(&target)
                    .ok()
                    .and_then(|target| clean(target, base))
                {
                    files.insert(name, ArchiveEntry::Link(target));
                }
            } else if let Some(digest) = blob_name(&name) {
                lease.extend([digest.clone()])?;
                copy_blob(store, &mut entry, &digest, size)?;
                files.insert(name, ArchiveEntry::Blob(digest));
            } else if kind.is_file() {
                if size > limits.layer {
                    return Err(Error::TooLarge(format!("{name:?} has {size} bytes")));
                }
                number += 1;
                let target = directory.path().join(number.to_string());
                let mut write = || -> std::io::Result<()> {
                    let mut file = File::create_new(&target)?;
                    std::io::copy(&mut entry, &mut file)?;
                    file.flush()
                };
                write().map_err(Error::io(format!("extract {name:?}")))?;
                files.insert(name, ArchiveEntry::File(number));
            }
            // The next header begins after the unread content.
            std::io::copy(&mut entry, &mut std::io::sink()).map_err(broken)?;
        }
        Ok(Self::Archive { directory, files })
    }

    /// A small file's content; `None` if it does not exist.
    pub(super) fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.find(name)? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        let read = file.take(max + 1).read_to_end(&mut content);
        read.map_err(Error::io(format!("read {name:?}")))?;
        if content.len() as u64 > max {
            return Err(Error::TooLarge(format!(
                "{name:?} has more than {max} bytes"
            )));
        }
        Ok(Some(content))
    }

    /// Follows links to what a name is of an archive.
    fn resolve<'a>(
        files: &'a HashMap<String, ArchiveEntry>,
        name: &str,
    ) -> Option<&'a ArchiveEntry> {
        let mut kept = files.get(&clean(name, "")?)?;
        for _ in 0..MAX_LINKS {
            match kept {
                ArchiveEntry::Link(target) => kept = files.get(target)?,
                found => return Some(found),
            }
        }
        None
    }

    fn find(&self, name: &str) -> Result<Option<File>> {
        let path = match self {
            Self::Directory(root) => match clean(name, "") {
                Some(name) => root.join(name),
                None => return Ok(None),
            },
            Self::Archive { directory, files } => match Self::resolve(files, name) {
                Some(ArchiveEntry::File(number)) => directory.path().join(number.to_string()),
                _ => return Ok(None),
            },
        };
        match open_file(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("open {}", path.display()))(error)),
        }
    }

    /// Sees to it that a blob of the layout is in the store.
    pub(super) fn blob(&self, store: &Store, blob: &Descriptor) -> Result<()> {
        if store.has_blob(&blob.digest) {
            return Ok(());
        }
        let name = format!("blobs/{}/{}", blob.digest.algorithm(), blob.digest.hex());
        let mut file = self
            .find(&name)?
            .ok_or_else(|| Error::InvalidImage(format!("{name:?} is missing")))?;
        copy_blob(store, &mut file, &blob.digest, blob.size)
    }

    /// Puts a file into the store under its own digest.
    pub(super) fn file(
        &self,
        store: &Store,
        name: &str,
        media_type: &str,
        lease: &mut Lease,
    ) -> Result<Descriptor> {
        let missing = || Error::InvalidImage(format!("{name:?} is missing"));
        if let Self::Archive { files, .. } = self
            && let Some(ArchiveEntry::Blob(digest)) = Self::resolve(files, name)
        {
            let file = store.open_blob(digest)?;
            let size = file
                .metadata()
                .map_err(Error::io(format!("read {name:?}")))?
                .len();
            return Ok(descriptor(media_type, digest.clone(), size));
        }
        let failed = |error| Error::io(format!("read {name:?}"))(error);
        let mut file = self.find(name)?.ok_or_else(missing)?;
        let mut hasher = Hasher::sha256();
        let mut size = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = file.read(&mut buffer).map_err(failed)?;
            if length == 0 {
                break;
            }
            hasher.update(&buffer[..length]);
            size += length as u64;
        }
        let digest = hasher.finish();
        lease.extend([digest.clone()])?;
        let mut again = self.find(name)?.ok_or_else(missing)?;
        copy_blob(store, &mut again, &digest, size)?;
        Ok(descriptor(media_type, digest, size))
    }
}

fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest,
        size,
        platform: None,
        annotations: Default::default(),
    }
}

fn copy_blob(store: &Store, input: &mut impl Read, digest: &Digest, size: u64) -> Result<()> {
    if store.has_blob(digest) {
        return Ok(());
    }
    let mut writer = store.begin(digest, size)?;
    writer.restart()?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = input.read(&mut buffer).map_err(|error| {
            // Another import begins again.
            writer.discard();
            Error::io(format!("read blob {digest}"))(error)
        })?;
        if length == 0 {
            return writer.commit();
        }
        writer.write(&buffer[..length])?;
    }
}

/// A name without `.` and `..`, relative to a directory of the archive; `None` for what leads out of it.
fn clean(name: &str, base: &str) -> Option<String> {
    let base = if name.starts_with('/') { "" } else { base };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(name.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The digest of `blobs/ALGORITHM/HEX`.
fn blob_name(name: &str) -> Option<Digest> {
    let (algorithm, hex) = name.strip_prefix("blobs/")?.split_once('/')?;
    Digest::parse(&format!("{algorithm}:{hex}")).ok()
}
