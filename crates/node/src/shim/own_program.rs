//! The program of the helper, read-only.
//!
//! The first process of a container and the processes that enter it are forks of the helper, and a container can name
//! `/proc/self/exe` as its program. Containers reach the file of the helper as `/proc/PID/exe` then, with the rights of the host's root or of the
//! agent's user: they could change its mode, owner and capabilities, and its content where the kernel permits that for programs that
//! run (6.11). So the helper executes itself again from a mount of this file alone. The mount is read-only and in no mount
//! namespace, so nothing can make it writable, and it ends with the last process of the program.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags, fstat, fstatvfs,
    statx,
};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{WaitOptions, waitpid};

use super::sys::{self, Fork};

/// The program of this process.
const OWN: &str = "/proc/self/exe";
/// Exit code of a child that has no descriptor.
const NONE: i32 = 0;

/// Executes this program again, from a read-only mount, unless it comes from one.
///
/// # Errors
/// Why it goes on as it was started: the kernel does not permit mounts to this user, and containers neither, or is older than 5.12.
pub(super) fn execute() -> io::Result<()> {
    let own = open(Path::new(OWN))?;
    if is_own_mount(own.as_fd())? {
        restore_name();
        return Ok(());
    }
    let cloned = match clone(Path::new(OWN)).or_else(|_| clone_apart()) {
        // Only the host can make that file system writable.
        Err(_) if is_read_only(own.as_fd())? => return Ok(()),
        cloned => cloned?,
    };
    // Its path may lead to another file by now: an agent that was replaced has other helpers.
    if !is_same(own.as_fd(), cloned.as_fd())? || !is_own_mount(cloned.as_fd())? {
        return Err(io::Error::other("the program has no read-only mount"));
    }
    let path = format!("/proc/self/fd/{}", cloned.as_raw_fd());
    let args: Vec<String> = std::env::args_os().map(text).collect::<io::Result<_>>()?;
    let variables = std::env::vars_os()
        .map(|(name, value)| text(name).and_then(|name| Ok(format!("{name}={}", text(value)?))));
    let variables: Vec<String> = variables.collect::<io::Result<_>>()?;
    Err(sys::exec(&path, &args, &variables))
}

fn text(value: std::ffi::OsString) -> io::Result<String> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    value.into_string().map_err(invalid)
}

/// The kernel calls a process that was executed by its descriptor after the number.
fn restore_name() {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if let Ok(name) = std::ffi::CString::new(name.as_encoded_bytes()) {
        // Only for people who list processes.
        let _ = rustix::thread::set_name(&name);
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn is_read_only(file: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = fstatvfs(file)?.f_flag;
    Ok(flags.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a file comes from a read-only mount of it alone. A file system that is read-only as a whole does not last: hosts with one
/// make it writable for updates, while containers run.
fn is_own_mount(file: BorrowedFd<'_>) -> io::Result<bool> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    let is_root = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_root && is_read_only(file)?)
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// A mount of a file, which only the descriptor refers to.
fn clone(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, path, flags)?;
    sys::read_only_mount(mount.as_fd())?;
    Ok(mount)
}

/// The same for a process that may not mount: in a child with a user namespace, which shares the descriptors of this process. In the
/// mount namespace of the child the program has to be found by its path.
fn clone_apart() -> io::Result<OwnedFd> {
    let path = std::fs::read_link(OWN)?;
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_FILES;
    let child = match sys::fork(namespaces)? {
        Fork::Child => {
            let code = clone(&path).map_or(NONE, |mount| mount.into_raw_fd());
            // No more than a byte of a code is passed on.
            std::process::exit(if code > 0xff { NONE } else { code })
        }
        Fork::Parent(child) => child,
    };
    let ended = waitpid(Some(child), WaitOptions::empty())?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(descriptor) if descriptor != NONE => Ok(sys::own(descriptor)),
        _ => Err(io::Error::other(
            "a user namespace does not permit a mount of the program",
        )),
    }
}
