//! Users of an image, looked up in the image's own `/etc/passwd` and `/etc/group`.
//!
//! The files belong to the image and are hostile: they are opened without leaving its root, and the read size is
//! bounded.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{Error, Result};

/// Longest `/etc/passwd` or `/etc/group` that is read.
const MAX_FILE: u64 = 4 << 20;
/// Most groups of a user, as in Linux.
const MAX_GROUPS: usize = 65536;

/// The user of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Groups that name the user as a member, sorted.
    pub groups: Vec<u32>,
    /// The home directory, if the image's files contain it.
    pub home: Option<String>,
}

/// Finds the numbers for a user as an image's configuration or a Dockerfile writes it: `""`, `NAME`, `UID`,
/// `NAME:GROUP`, `UID:GID` and mixtures. `roots` are the image's layer directories, the topmost first.
///
/// # Errors
///
/// [`Error::InvalidImage`] if a name is not in the image's files, with containerd's words.
pub fn resolve(roots: &[&Path], user: &str) -> Result<User> {
    let passwd = read(roots, "etc/passwd")?;
    let group = read(roots, "etc/group")?;
    lookup(user, &passwd, &group)
}

fn lookup(text: &str, passwd: &str, group: &str) -> Result<User> {
    let (name, group_name) = match text.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (text, None),
    };
    let name = if name.is_empty() { "0" } else { name };
    let number = id(name);
    let entry = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let (uid, gid) = (id(fields.get(2)?)?, id(fields.get(3)?)?);
        let found = fields.first() == Some(&name) || number == Some(uid);
        found.then(|| {
            let home = fields.get(5).filter(|home| home.starts_with('/'));
            (
                fields[0].to_owned(),
                uid,
                gid,
                home.map(|home| (*home).to_owned()),
            )
        })
    });
    let (login, uid, gid, home) = match (entry, number) {
        (Some((login, uid, gid, home)), _) => (login, uid, gid, home),
        (None, Some(uid)) => (String::new(), uid, 0, None),
        (None, None) => {
            return Err(Error::InvalidImage(format!(
                "unable to find user {name}: no matching entries in passwd file"
            )));
        }
    };
    let groups = || {
        group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = id(fields.nth(1)?)?;
            Some((name, gid, fields.next().unwrap_or_default()))
        })
    };
    let gid = match group_name.filter(|group| !group.is_empty()) {
        None => gid,
        Some(wanted) => match (groups().find(|(name, ..)| *name == wanted), id(wanted)) {
            (Some((_, gid, _)), _) => gid,
            (None, Some(gid)) => gid,
            (None, None) => {
                return Err(Error::InvalidImage(format!(
                    "unable to find group {wanted}: no matching entries in group file"
                )));
            }
        },
    };
    let is_member =
        |members: &str| !login.is_empty() && members.split(',').any(|member| member == login);
    let mut member_of: Vec<u32> = groups()
        .filter(|(_, _, members)| is_member(members))
        .map(|(_, gid, _)| gid)
        .take(MAX_GROUPS)
        .collect();
    member_of.sort_unstable();
    member_of.dedup();
    Ok(User {
        uid,
        gid,
        groups: member_of,
        home,
    })
}

/// A valid id: not the value that means "no change" in system calls.
pub fn id(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.filter(|number| *number <= i32::MAX as u32)
}

/// Reads a file of the image from the topmost layer that has it. A whiteout, or any other entry that is no regular
/// file, counts as empty.
fn read(roots: &[&Path], path: &str) -> Result<String> {
    for root in roots {
        let shown = || format!("open {path} of the image");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(*root, flags, Mode::empty()).map_err(Error::os(shown()))?;
        let file = match open_in(root.as_fd(), path) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => continue,
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::XDEV | rustix::io::Errno::NXIO) => {
                return Ok(String::new());
            }
            Err(error) => return Err(Error::os(shown())(error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(Error::os(shown()))?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(String::new());
        }
        let mut content = Vec::new();
        std::fs::File::from(file)
            .take(MAX_FILE)
            .read_to_end(&mut content)
            .map_err(Error::io(shown()))?;
        return Ok(String::from_utf8_lossy(&content).into_owned());
    }
    Ok(String::new())
}

/// Opens a path below a root for reading, with links resolved inside of the root, and without waiting for a FIFO.
fn open_in(root: std::os::fd::BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    crate::openat2(
        root,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

#[cfg(test)]
mod tests;
