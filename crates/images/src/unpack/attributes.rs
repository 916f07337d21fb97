//! Owner, mode, time and extended attributes of what was unpacked.

use std::io::Read;
use std::os::fd::BorrowedFd;

use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::{Ownership, Unpacker, stream};
use crate::{Error, Result};

/// Owner, mode, time and extended attributes of an entry.
pub(super) struct Attributes {
    pub(super) mode: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What [`Unpacker::apply`] has a descriptor of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    Directory,
    File,
}

impl Opened {
    /// The permissions that the user of this process keeps.
    fn needed_mode(self) -> u32 {
        match self {
            Self::Directory => 0o700,
            Self::File => 0o600,
        }
    }
}

impl Unpacker<'_> {
    /// Reads them from an entry. Those that this process cannot set are left out and counted.
    pub(super) fn attributes(
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
    pub(super) fn apply(
        &mut self,
        file: BorrowedFd<'_>,
        attributes: &Attributes,
        opened: Opened,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<()> {
        let failed = |error: rustix::io::Errno| refused(std::io::Error::from(error).to_string());
        let mut mode = attributes.mode;
        match self.options.ownership {
            Ownership::Keep => {
                let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
                rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed)?;
            }
            Ownership::Mine => mode |= opened.needed_mode(),
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
        if opened == Opened::File {
            rustix::fs::futimens(file, &times(attributes.mtime)).map_err(failed)?;
        }
        Ok(())
    }

    /// Sets the owner and the time of what cannot be opened.
    pub(super) fn own_unopened(
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
