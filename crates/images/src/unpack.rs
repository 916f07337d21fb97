//! Layers from archives into directories.
//!
//! A layer is hostile also when its digest matches. Every path is resolved by the kernel inside of the root (`openat2`
//! with `RESOLVE_IN_ROOT`), so that links of the image lead where they would lead in a container and never out; the
//! last component is never followed. A layer fails with: `..` in a path or the target of a hard link, whiteouts of `.`,
//! `..` and the empty name, unknown types of entries, and anything that exceeds [`Limits`].
//!
//! Skipped, and counted in [`Report`]: device nodes (containerd creates them; here devices come from the runtime
//! alone), extended attributes other than `user.*` and `security.capability`, above all those that overlayfs reads, and
//! the set-user-id and set-group-id bits unless files keep their owners.

mod attributes;
mod path;
pub(crate) mod stream;
mod tree;

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags};
use tar::EntryType;

use crate::{Digest, Error, Limits, Result};
use attributes::Opened;
use path::{EntryLocation, shown};
use stream::Stream;
use tree::Tree;

/// The owners of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Files get the owners of the layer, which takes root.
    Keep,
    /// All files belong to this process's user. Directories stay accessible to the user, and programs lose their set-id
    /// bits.
    Mine,
}

impl Ownership {
    /// What this process can do.
    pub fn of_process() -> Self {
        match rustix::process::geteuid().is_root() {
            true => Self::Keep,
            false => Self::Mine,
        }
    }
}

/// What deletions of lower layers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    /// Marks that overlayfs understands, for one layer in a directory.
    Overlay,
    /// Deletions, for layers that are unpacked over each other into one directory.
    Apply,
}

/// How a layer is unpacked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bounds of sizes and counts.
    pub limits: Limits,
    /// The owners of the files.
    pub ownership: Ownership,
    /// What deletions become.
    pub whiteouts: Whiteouts,
}

/// Statistics of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The digest of the archive, to be compared with the configuration's diff id.
    pub diff_id: Option<Digest>,
    /// Bytes of files.
    pub bytes: u64,
    /// Entries of the archive.
    pub entries: u64,
    /// Device nodes that were left out.
    pub devices: u64,
    /// Extended attributes that were left out.
    pub xattrs: u64,
    /// Entries that lost their set-id bits.
    pub set_ids: u64,
    /// Whether markers are in the `user.` namespace, so that overlayfs must be mounted with `userxattr`.
    pub user_xattrs: bool,
}

/// Unpacks layers into one directory.
pub struct Unpacker<'a> {
    tree: Tree,
    options: Options,
    report: Report,
    cancel: &'a AtomicBool,
}

impl<'a> Unpacker<'a> {
    /// An unpacker for an empty directory. `trash` is another directory of the same file system; what layers replace is
    /// moved there, and removed in the end.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if one of the directories cannot be opened.
    pub fn new(
        root: &Path,
        trash: &Path,
        options: Options,
        cancel: &'a AtomicBool,
    ) -> Result<Self> {
        Ok(Self {
            tree: Tree::new(root, trash, options.clone())?,
            options,
            report: Report::default(),
            cancel,
        })
    }

    /// Bounds of the next layer, if they differ from those of the options. The depth of directories stays.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.options.limits = limits;
    }

    /// Unpacks one layer, compressed or not. Every byte of the archive counts for the digest, also those after its end.
    ///
    /// # Errors
    ///
    /// [`Error::Layer`] for an entry that is refused, [`Error::TooLarge`] beyond the limits, [`Error::InvalidImage`] for
    /// an archive that cannot be read, [`Error::Io`] if the disk refuses, [`Error::Cancelled`].
    pub fn layer(&mut self, input: impl Read) -> Result<Report> {
        let unpacked = self.whole_layer(input);
        // What reads the input can take its end for a fault of the input.
        match self.cancel.load(Ordering::Relaxed) && unpacked.is_err() {
            true => Err(Error::Cancelled),
            false => unpacked,
        }
    }

    fn whole_layer(&mut self, input: impl Read) -> Result<Report> {
        self.report = Report::default();
        self.tree.begin_layer();
        let broken = |error: std::io::Error| stream::unwrap(error);
        // A long input can have little content.
        let input = stream::Cancellable(input, self.cancel);
        let plain = crate::decompress::decompress(input).map_err(broken)?;
        let stream = Stream::new(plain, &self.options.limits);
        let mut archive = tar::Archive::new(stream.reader());
        let mut entries = archive.entries().map_err(broken)?;
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            stream.expect_header();
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(broken)?;
            stream.expect_content();
            self.report.entries += 1;
            if self.report.entries > self.options.limits.entries {
                return Err(Error::TooLarge(format!(
                    "the layer has more than {} entries",
                    self.options.limits.entries
                )));
            }
            self.entry(&mut entry)?;
            // The next header begins after the unread content.
            std::io::copy(&mut entry, &mut std::io::sink()).map_err(broken)?;
        }
        self.report.diff_id = Some(stream.finish().map_err(broken)?);
        self.report.user_xattrs = self.tree.user_xattrs();
        self.tree.empty_trash()?;
        Ok(self.report.clone())
    }

    fn entry(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<()> {
        let name = entry.path_bytes().into_owned();
        let refused = |reason: String| Error::Layer {
            entry: shown(&name),
            reason,
        };
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let place = path::place(&name).map_err(|reason| refused(reason.to_owned()))?;
        self.tree.set_entry(&name);
        match place {
            EntryLocation::Ignored => Ok(()),
            EntryLocation::Opaque(parent) => self.tree.opaque(&parent),
            EntryLocation::Whiteout(parent, hidden) => self.tree.whiteout(&parent, &hidden),
            EntryLocation::Root => {
                let attributes = self.attributes(entry, &refused)?;
                let root = self.tree.open_root()?;
                self.apply(root.as_fd(), &attributes, Opened::Directory, &refused)
            }
            EntryLocation::Entry(parent, last) => self.make(entry, kind, &parent, &last, &refused),
        }
    }

    fn make(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        kind: EntryType,
        parent: &[Vec<u8>],
        last: &[u8],
        refused: &dyn Fn(String) -> Error,
    ) -> Result<()> {
        let attributes = self.attributes(entry, refused)?;
        match kind {
            EntryType::Char | EntryType::Block => {
                self.report.devices += 1;
                Ok(())
            }
            EntryType::Directory => {
                let directory = self.tree.make_directory(parent, last)?;
                self.apply(directory.as_fd(), &attributes, Opened::Directory, refused)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let file = self.tree.make_file(parent, last)?;
                let mut file = std::fs::File::from(file);
                self.copy(entry, &mut file, refused)?;
                self.apply(file.as_fd(), &attributes, Opened::File, refused)
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let place = path::place(&target).map_err(|reason| {
                    refused(format!("hard link to {}: {reason}", shown(&target)))
                })?;
                let EntryLocation::Entry(from, source) = place else {
                    return Err(refused(format!("hard link to {}", shown(&target))));
                };
                self.tree.make_hard_link(&from, &source, parent, last)
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if target.is_empty() || target.len() > path::MAX_PATH {
                    return Err(refused(
                        "symbolic link with an impossible target".to_owned(),
                    ));
                }
                let directory = self.tree.make_symlink(&target, parent, last)?;
                self.own_unopened(directory.as_fd(), last, &attributes, refused)
            }
            EntryType::Fifo => {
                let directory = self.tree.make_fifo(parent, last)?;
                let mode = Mode::from_raw_mode(attributes.mode & 0o777);
                let failed =
                    |error: rustix::io::Errno| refused(std::io::Error::from(error).to_string());
                self.own_unopened(directory.as_fd(), last, &attributes, refused)?;
                // The name is a FIFO that was just created in a directory that no other process writes.
                rustix::fs::chmodat(&directory, last, mode, rustix::fs::AtFlags::empty())
                    .map_err(failed)
            }
            other => {
                let kind = char::from(other.as_byte()).escape_default();
                Err(refused(format!(
                    "entries of type '{kind}' are not supported"
                )))
            }
        }
    }

    /// Writes a file's content. Holes of sparse files count with their size.
    fn copy(
        &mut self,
        entry: &mut impl Read,
        file: &mut std::fs::File,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<()> {
        use std::io::Write as _;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            let length = entry.read(&mut buffer).map_err(stream::unwrap)?;
            if length == 0 {
                return Ok(());
            }
            self.report.bytes += length as u64;
            if self.report.bytes > self.options.limits.unpacked {
                return Err(Error::TooLarge(format!(
                    "the layer has more than {} bytes when unpacked",
                    self.options.limits.unpacked
                )));
            }
            file.write_all(&buffer[..length])
                .map_err(|error| match refused(String::new()) {
                    Error::Layer { entry, .. } => Error::io(format!("write {entry}"))(error),
                    other => other,
                })?;
        }
    }
}

/// Flags to open a directory for its descriptor.
fn directory_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Whether a file is an overlayfs whiteout.
fn is_whiteout(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

#[cfg(test)]
mod tests;
