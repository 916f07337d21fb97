//! Whiteouts: what a layer hides of those below it, applied at once or marked for overlayfs.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::Tree;
use crate::unpack::{Whiteouts, directory_flags};
use crate::{Error, Result};

impl Tree {
    /// Hides a name of lower layers. The layer's own entry of the name stays.
    pub(in crate::unpack) fn whiteout(&mut self, parent: &[Vec<u8>], name: &[u8]) -> Result<()> {
        if self.options.whiteouts == Whiteouts::Apply {
            let Some(parent) = self.find(parent)? else {
                return Ok(());
            };
            return self.hide(&parent, name, 0);
        }
        let parent = self.directory(parent)?;
        if let Some(stat) = self.stat(&parent, name)? {
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let directory =
                    self.open_here(&parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
                self.mark_opaque(&directory, b"y")?;
            }
            return Ok(());
        }
        let mode = Mode::empty();
        match rustix::fs::mknodat(&parent, name, FileType::CharacterDevice, mode, 0) {
            Ok(()) => Ok(()),
            Err(Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSYS) => {
                self.mark_whiteout(&parent, name)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Hides everything that lower layers have in a directory.
    pub(in crate::unpack) fn opaque(&mut self, components: &[Vec<u8>]) -> Result<()> {
        if self.options.whiteouts == Whiteouts::Apply {
            let Some(directory) = self.find(components)? else {
                return Ok(());
            };
            return self.hide_contents(&directory, 0);
        }
        let directory = self.directory(components)?;
        let directory = self.open_here(&directory, b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.mark_opaque(&directory, b"y")
    }

    fn hide(&mut self, parent: &OwnedFd, name: &[u8], depth: u32) -> Result<()> {
        let Some(stat) = self.stat(parent, name)? else {
            return Ok(());
        };
        let made = self.made.contains(&(self.inode(parent)?, name.to_vec()));
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return if made {
                Ok(())
            } else {
                self.remove(parent, name)
            };
        }
        let directory = self.open_here(parent, name, directory_flags())?;
        self.hide_contents(&directory, depth + 1)?;
        if made {
            return Ok(());
        }
        self.last = None;
        // It stays if it contains entries of the current layer, which may have no entry for the directory itself.
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Removes entries of other layers. Directories are at most as deep as the limits permit.
    fn hide_contents(&mut self, directory: &OwnedFd, depth: u32) -> Result<()> {
        if depth > self.options.limits.depth {
            return Err(self.refused("too many directories"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = rustix::fs::openat(directory, ".", flags, Mode::empty())
            .map_err(|error| self.failed(error))?;
        let listing = rustix::fs::Dir::new(listing).map_err(|error| self.failed(error))?;
        let mut names = Vec::new();
        for entry in listing {
            let entry = entry.map_err(|error| self.failed(error))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names
            .into_iter()
            .try_for_each(|name| self.hide(directory, &name, depth))
    }

    /// Marks a directory for overlayfs: `y` hides lower layers, `x` says that there are whiteouts with an attribute.
    pub(super) fn mark_opaque(&mut self, directory: &OwnedFd, value: &[u8]) -> Result<()> {
        if self.options.whiteouts == Whiteouts::Apply {
            return Ok(());
        }
        self.mark(directory, "opaque", value)
    }

    fn mark(&mut self, file: &OwnedFd, name: &str, value: &[u8]) -> Result<()> {
        let set = |space: &str| {
            let name = format!("{space}.overlay.{name}");
            rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
        };
        let mut result = Err(Errno::PERM);
        if !self.user_xattrs {
            result = set("trusted");
        }
        if matches!(result, Err(Errno::PERM | Errno::NOTSUP)) {
            result = set("user");
            self.user_xattrs |= result.is_ok();
        }
        result.map_err(|error| {
            let what = format!("mark {} for overlayfs", self.entry);
            Error::os(what)(error)
        })
    }

    /// The other form of a whiteout: an empty file with an attribute, in a directory that is marked for it.
    fn mark_whiteout(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(|error| self.failed(error))?;
        self.mark(&file, "whiteout", b"y")?;
        let key = (self.inode(parent)?, name.to_vec());
        self.marks.insert(key);
        let directory = self.open_here(parent, b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut present = [0; 1];
        let space = if self.user_xattrs { "user" } else { "trusted" };
        let known = rustix::fs::fgetxattr(
            &directory,
            format!("{space}.overlay.opaque"),
            &mut present[..],
        );
        match known {
            Ok(_) => Ok(()),
            Err(_) => self.mark_opaque(&directory, b"x"),
        }
    }
}
