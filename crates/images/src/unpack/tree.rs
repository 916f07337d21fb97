//! Files below a root, created through descriptors only.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{Options, Whiteouts, directory_flags, is_whiteout, path};
use crate::{Error, Result};

mod whiteouts;

type Name = (u64, Vec<u8>);

/// The directory that layers are unpacked into.
pub(super) struct Tree {
    root: OwnedFd,
    trash: OwnedFd,
    trash_path: PathBuf,
    trashed: u64,
    options: Options,
    /// Depth of directories, by inode. Links let an entry begin deep inside, so that the length of paths does not bound
    /// the depth.
    depths: HashMap<u64, u32>,
    /// Entries of the current layer, by directory and name: they are not hidden by the layer's own whiteouts.
    made: HashSet<Name>,
    /// Whiteouts that are plain files with an attribute.
    marks: HashSet<Name>,
    user_xattrs: bool,
    /// The parent of the last entry, which is often that of the next.
    last: Option<(Vec<Vec<u8>>, OwnedFd)>,
    entry: String,
}

impl Tree {
    pub(super) fn new(root: &Path, trash: &Path, options: Options) -> Result<Self> {
        let open = |path: &Path| {
            let failed = Error::os(format!("open {}", path.display()));
            rustix::fs::open(path, directory_flags(), Mode::empty()).map_err(failed)
        };
        Ok(Self {
            root: open(root)?,
            trash: open(trash)?,
            trash_path: trash.to_owned(),
            trashed: 0,
            options,
            depths: HashMap::new(),
            made: HashSet::new(),
            marks: HashSet::new(),
            user_xattrs: false,
            last: None,
            entry: String::new(),
        })
    }

    pub(super) fn begin_layer(&mut self) {
        self.made.clear();
        self.last = None;
    }

    /// Names the entry that errors are about.
    pub(super) fn set_entry(&mut self, name: &[u8]) {
        self.entry = path::shown(name);
    }

    pub(super) fn user_xattrs(&self) -> bool {
        self.user_xattrs
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        Error::Layer {
            entry: self.entry.clone(),
            reason: reason.into(),
        }
    }

    /// Errors of the disk are returned as they are; all others are attributed to the layer.
    fn failed(&self, error: Errno) -> Error {
        match error {
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::IO
            | Errno::ROFS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM => Error::os(format!("unpack {}", self.entry))(error),
            Errno::NOSYS => Error::os("openat2, which needs Linux 5.6")(error),
            Errno::LOOP => self.refused("too many links in the path"),
            other => self.refused(std::io::Error::from(other).to_string()),
        }
    }

    /// The root, open for changes of its attributes.
    pub(super) fn open_root(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, ".", flags, Mode::empty())
            .map_err(|error| self.failed(error))
    }

    /// Opens a directory with links resolved inside of the root; `None` if it does not exist.
    fn find(&self, components: &[Vec<u8>]) -> Result<Option<OwnedFd>> {
        let path = match components {
            [] => b".".to_vec(),
            _ => components.join(&b'/'),
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        match crate::openat2(
            &self.root,
            &path[..],
            directory_flags(),
            Mode::empty(),
            resolve,
        ) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Opens a directory, created with its parents where missing.
    fn directory(&mut self, components: &[Vec<u8>]) -> Result<OwnedFd> {
        if let Some((known, open)) = &self.last
            && known == components
        {
            return open
                .try_clone()
                .map_err(Error::io("duplicate a descriptor"));
        }
        let found = match self.find(components)? {
            Some(found) => found,
            None => self.make_parents(components)?,
        };
        let copy = found
            .try_clone()
            .map_err(Error::io("duplicate a descriptor"))?;
        self.last = Some((components.to_vec(), copy));
        Ok(found)
    }

    fn make_parents(&mut self, components: &[Vec<u8>]) -> Result<OwnedFd> {
        let mut parent = self
            .find(&[])?
            .ok_or_else(|| self.refused("the root is gone"))?;
        for end in 1..=components.len() {
            parent = match self.find(&components[..end])? {
                Some(found) => found,
                None => self.make_in(&parent, &components[end - 1], 0o755)?,
            };
        }
        Ok(parent)
    }

    /// Creates a directory, and records its depth.
    fn make_in(&mut self, parent: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd> {
        let depth = self.depths.get(&self.inode(parent)?).copied().unwrap_or(0) + 1;
        if depth > self.options.limits.depth {
            return Err(Error::TooLarge(format!(
                "layer entry {:?} is more than {} directories deep",
                self.entry, self.options.limits.depth
            )));
        }
        // A dangling link conflicts with a directory, and stays.
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode))
            .map_err(|error| self.failed(error))?;
        let made = self.open_here(parent, name, directory_flags())?;
        self.depths.insert(self.inode(&made)?, depth);
        self.note(parent, name)?;
        Ok(made)
    }

    fn open_here(&self, parent: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|error| self.failed(error))
    }

    fn inode(&self, file: impl AsFd) -> Result<u64> {
        let stat = rustix::fs::fstat(file).map_err(|error| self.failed(error))?;
        Ok(stat.st_ino)
    }

    fn stat(&self, parent: &OwnedFd, name: &[u8]) -> Result<Option<Stat>> {
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Records an entry of the layer, if whiteouts are applied.
    fn note(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<()> {
        if self.options.whiteouts == Whiteouts::Apply {
            let key = (self.inode(parent)?, name.to_vec());
            self.made.insert(key);
        }
        Ok(())
    }

    /// Removes a file or directory of any type. Directories are moved to the trash.
    fn remove(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<()> {
        self.last = None;
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {
                self.trashed += 1;
                let target = self.trashed.to_string();
                rustix::fs::renameat(parent, name, &self.trash, target)
                    .map_err(|error| self.failed(error))?;
                // Few at a time, so that the trash does not fill the disk.
                if self.trashed.is_multiple_of(64) {
                    self.empty_trash()?;
                }
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(super) fn empty_trash(&mut self) -> Result<()> {
        let failed = |error| Error::io(format!("empty {}", self.trash_path.display()))(error);
        for entry in std::fs::read_dir(&self.trash_path).map_err(failed)? {
            crate::remove_tree(&entry.map_err(failed)?.path()).map_err(failed)?;
        }
        Ok(())
    }

    /// Creates a directory, or opens the existing one, for changes of its attributes.
    pub(super) fn make_directory(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Result<OwnedFd> {
        let parent = self.directory(parent)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let stat = self.stat(&parent, name)?;
        let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        if kind == Some(FileType::Directory) {
            self.note(&parent, name)?;
            return self.open_here(&parent, name, flags);
        }
        let hidden = stat.is_some_and(|stat| is_whiteout(&stat)) || self.unmark(&parent, name)?;
        if stat.is_some() {
            self.remove(&parent, name)?;
        }
        self.make_in(&parent, name, 0o755)?;
        let made = self.open_here(&parent, name, flags)?;
        if hidden {
            // The directory replaces that of lower layers, instead of adding to it.
            self.mark_opaque(&made, b"y")?;
        }
        Ok(made)
    }

    /// Creates an empty file, replacing an existing entry.
    pub(super) fn make_file(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Result<OwnedFd> {
        let parent = self.clear(parent, name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600));
        let made = made.map_err(|error| self.failed(error))?;
        self.note(&parent, name)?;
        Ok(made)
    }

    /// Creates a symbolic link, and returns its directory.
    pub(super) fn make_symlink(
        &mut self,
        target: &[u8],
        parent: &[Vec<u8>],
        name: &[u8],
    ) -> Result<OwnedFd> {
        let parent = self.clear(parent, name)?;
        rustix::fs::symlinkat(target, &parent, name).map_err(|error| self.failed(error))?;
        self.note(&parent, name)?;
        Ok(parent)
    }

    /// Creates a FIFO, and returns its directory.
    pub(super) fn make_fifo(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Result<OwnedFd> {
        let parent = self.clear(parent, name)?;
        rustix::fs::mknodat(&parent, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .map_err(|error| self.failed(error))?;
        self.note(&parent, name)?;
        Ok(parent)
    }

    /// Creates a hard link to an entry of the layer that is no directory. A link to a symbolic link refers to the link
    /// itself.
    pub(super) fn make_hard_link(
        &mut self,
        from: &[Vec<u8>],
        source: &[u8],
        parent: &[Vec<u8>],
        name: &[u8],
    ) -> Result<()> {
        let missing = "hard link to a file that is not in the layer";
        let from = self.find(from)?.ok_or_else(|| self.refused(missing))?;
        let stat = self
            .stat(&from, source)?
            .ok_or_else(|| self.refused(missing))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink | FileType::Fifo => {}
            _ => return Err(self.refused("hard link to a directory or a whiteout")),
        }
        let target = self.directory(parent)?;
        let there = self.stat(&target, name)?;
        if there.is_some_and(|there| there.st_ino == stat.st_ino) {
            return self.note(&target, name);
        }
        if there.is_some() {
            self.remove(&target, name)?;
        }
        rustix::fs::linkat(&from, source, &target, name, AtFlags::empty())
            .map_err(|error| self.failed(error))?;
        self.note(&target, name)
    }

    /// Opens the parent and removes the entry of the name.
    fn clear(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Result<OwnedFd> {
        let parent = self.directory(parent)?;
        if self.stat(&parent, name)?.is_some() {
            self.remove(&parent, name)?;
        }
        self.unmark(&parent, name)?;
        Ok(parent)
    }

    /// Forgets that there is a whiteout with an attribute at a name; true if there was.
    fn unmark(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<bool> {
        if self.marks.is_empty() {
            return Ok(false);
        }
        let key = (self.inode(parent)?, name.to_vec());
        Ok(self.marks.remove(&key))
    }
}
