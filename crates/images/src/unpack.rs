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

mod path;
pub(crate) mod stream;
mod tree;

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use tar::EntryType;

use crate::{Digest, Error, Limits, Result};
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
                self.apply(root.as_fd(), &attributes, true, &refused)
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
                self.apply(directory.as_fd(), &attributes, true, refused)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let file = self.tree.make_file(parent, last)?;
                let mut file = std::fs::File::from(file);
                self.copy(entry, &mut file, refused)?;
                self.apply(file.as_fd(), &attributes, false, refused)
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

    fn attributes(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<Attributes> {
        let header = entry.header();
        let invalid = |_: std::io::Error| refused("the header has an impossible number".to_owned());
        let (uid, gid) = (
            header.uid().map_err(invalid)?,
            header.gid().map_err(invalid)?,
        );
        let id = |id: u64| {
            let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
            id.ok_or_else(|| refused("the owner is not a valid id".to_owned()))
        };
        let mtime = header.mtime().map_err(invalid)?;
        let mut attributes = Attributes {
            mode: header.mode().map_err(invalid)? & 0o7777,
            uid: id(uid)?,
            gid: id(gid)?,
            mtime: i64::try_from(mtime).unwrap_or(0),
            xattrs: Vec::new(),
        };
        if self.options.ownership == Ownership::Mine && attributes.mode & 0o6000 != 0 {
            attributes.mode &= !0o6000;
            self.report.set_ids += 1;
        }
        let Some(extensions) = entry.pax_extensions().map_err(stream::unwrap)? else {
            return Ok(attributes);
        };
        let limits = &self.options.limits;
        let mut bytes = 0;
        for extension in extensions {
            let extension = extension.map_err(|_| refused("broken extended header".to_owned()))?;
            let Some(name) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") else {
                continue;
            };
            bytes += name.len() + extension.value_bytes().len();
            if attributes.xattrs.len() >= limits.xattrs || bytes > limits.xattr_bytes {
                return Err(refused(
                    "too many or too large extended attributes".to_owned(),
                ));
            }
            let user = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
            let capability =
                name == b"security.capability" && self.options.ownership == Ownership::Keep;
            if user || capability {
                attributes
                    .xattrs
                    .push((name.to_vec(), extension.value_bytes().to_vec()));
            } else {
                self.report.xattrs += 1;
            }
        }
        Ok(attributes)
    }

    /// Sets owner, mode, attributes and time of an open file or directory: the owner first, since a new owner clears
    /// set-id bits and capabilities.
    fn apply(
        &mut self,
        file: BorrowedFd<'_>,
        attributes: &Attributes,
        directory: bool,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<()> {
        let failed = |error: rustix::io::Errno| refused(std::io::Error::from(error).to_string());
        let mut mode = attributes.mode;
        match self.options.ownership {
            Ownership::Keep => {
                let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
                rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed)?;
            }
            Ownership::Mine => mode |= if directory { 0o700 } else { 0o600 },
        }
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map_err(failed)?;
        for (name, value) in &attributes.xattrs {
            use rustix::io::Errno;
            match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                // Not every file system has them, and not every process may set them.
                Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL) => self.report.xattrs += 1,
                Err(error) => return Err(failed(error)),
            }
        }
        if !directory {
            rustix::fs::futimens(file, &times(attributes.mtime)).map_err(failed)?;
        }
        Ok(())
    }

    /// Sets the owner and the time of what cannot be opened.
    fn own_unopened(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        attributes: &Attributes,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<()> {
        use rustix::fs::AtFlags;
        let failed = |error: rustix::io::Errno| refused(std::io::Error::from(error).to_string());
        if self.options.ownership == Ownership::Keep {
            let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
            rustix::fs::chownat(
                directory,
                name,
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(failed)?;
        }
        let times = times(attributes.mtime);
        rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }
}

struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
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
