//! The few system calls that need `unsafe`. All of them rely on the shim having a single thread.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::process::{Pid, Signal};

/// Which side of a fork.
pub(super) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks, the child in new namespaces given by `CLONE_NEW*` flags.
pub(super) fn fork(namespaces: i32) -> io::Result<Fork> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack the child gets a copy of everything, as with fork(2). The process
    // has one thread, so no lock can be held by a thread that does not exist in the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    match Pid::from_raw(pid as i32) {
        Some(pid) => Ok(Fork::Parent(pid)),
        None => Ok(Fork::Child),
    }
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: sigfillset initialises the set it is given.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        set
    }
}

/// Blocks all signals, so that they stay pending, also those that the init of a PID namespace would ignore.
pub(super) fn block_signals() {
    let set = all_signals();
    // SAFETY: both pointers are valid or null; the call only changes this thread's mask.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Reverts [`block_signals`] and every ignored signal; exec would keep both.
pub(super) fn reset_signals() {
    let set = all_signals();
    // SAFETY: as above; setting the default action of a signal runs no code of ours.
    unsafe {
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Waits for a blocked signal and returns its number.
pub(super) fn next_signal() -> i32 {
    let set = all_signals();
    loop {
        // SAFETY: the set is initialised and no information is requested.
        let signal = unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) };
        if signal > 0 {
            return signal;
        }
    }
}

/// Sends any signal, also a real-time one.
pub(super) fn kill(pid: Pid, signal: i32) {
    // SAFETY: kill(2) takes two integers and touches no memory. A process that has ended needs no signal.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the supplementary groups of this process.
pub(super) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `groups`.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })
}

/// Sets the user and group of this process for good.
pub(super) fn become_user(user: Option<u32>, group: Option<u32>, groups: &[u32]) -> io::Result<()> {
    if !groups.is_empty() || user.is_some_and(|user| user != 0) {
        set_groups(groups)?;
    }
    if let Some(group) = group {
        // SAFETY: setresgid takes integers.
        check(unsafe { libc::setresgid(group, group, group) })?;
    }
    if let Some(user) = user {
        // SAFETY: setresuid takes integers.
        check(unsafe { libc::setresuid(user, user, user) })?;
    }
    Ok(())
}

/// Puts this process, which has one thread, into new namespaces.
pub(super) fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes an integer.
    check(unsafe { libc::unshare(namespaces) })
}

/// A pipe that could not be created.
#[derive(Debug, thiserror::Error)]
#[error("pipe: {0}")]
pub(super) struct PipeError(#[from] rustix::io::Errno);

/// A pair of pipe ends that no other program inherits.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), PipeError> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Replaces the session keyring that this process has inherited: the keys in it are those of the session that the agent
/// was started in. Returns whether the process is rid of it; where keyrings are not permitted at all, containers cannot use
/// them either. The kernel refuses a new one when its user has as many keys as it may (`/proc/sys/kernel/keys/maxkeys`): they
/// are counted for all processes of the user together, also those in containers.
pub(super) fn leave_keyring() -> bool {
    /// `KEYCTL_JOIN_SESSION_KEYRING`; without a name it makes a new one.
    const JOIN: libc::c_long = 1;
    let name = std::ptr::null::<libc::c_char>();
    // SAFETY: the call takes an integer and a null pointer, and touches no memory.
    let made = unsafe { libc::syscall(libc::SYS_keyctl, JOIN, name) };
    let refused = || io::Error::last_os_error().raw_os_error();
    made >= 0 || matches!(refused(), Some(libc::ENOSYS | libc::EPERM))
}

/// No program that is executed from here on has more privileges than this process.
pub(super) fn no_new_privileges() {
    // SAFETY: prctl with integers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}

/// Lets processes of the same user inspect this one.
pub(super) fn set_dumpable() {
    // SAFETY: prctl with integers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// Takes ownership of a descriptor that was inherited by fork, or that a child left in the table which it shared.
pub(super) fn own(descriptor: std::os::fd::RawFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: only called in a child process, for a descriptor whose owner is a value of the parent process that is
    // never dropped here, or the other way round after the child has ended.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Closes everything except for the standard streams and one descriptor. For a process that ends, or calls exec,
/// without dropping its open descriptors.
pub(super) fn close_others(kept: std::os::fd::RawFd) {
    let kept = kept.max(3) as libc::c_uint;
    // SAFETY: as in `close_inherited`; owners of the descriptors are never dropped.
    unsafe {
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, libc::c_uint::MAX, 0);
    }
}

/// Installs a filter for system calls in this thread.
pub(super) fn install(filter: &seccompiler::BpfProgram) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the instructions have the kernel's layout, and the kernel copies them during the call.
    check(unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
            0,
            0,
        )
    })
}

/// Becomes a program; returns only why not.
pub(super) fn exec(program: &str, args: &[String], env: &[String]) -> io::Error {
    let strings = |all: &[String]| -> Result<Vec<std::ffi::CString>, std::ffi::NulError> {
        all.iter()
            .map(|it| std::ffi::CString::new(it.as_str()))
            .collect()
    };
    let pointers = |all: &[std::ffi::CString]| -> Vec<*const libc::c_char> {
        let ends = std::iter::once(std::ptr::null());
        all.iter().map(|it| it.as_ptr()).chain(ends).collect()
    };
    let (Ok(path), Ok(args), Ok(env)) =
        (std::ffi::CString::new(program), strings(args), strings(env))
    else {
        return io::ErrorKind::InvalidInput.into();
    };
    let (args_at, env_at) = (pointers(&args), pointers(&env));
    // SAFETY: both lists end with a null pointer, and all strings live until the call returns, if it does.
    unsafe { libc::execve(path.as_ptr(), args_at.as_ptr(), env_at.as_ptr()) };
    io::Error::last_os_error()
}

/// Closes everything except for the standard streams; called at the start, before anything else is opened.
pub(super) fn close_inherited() {
    // SAFETY: the descriptors were inherited, and no value in this process owns them. A kernel without this call leaves
    // them open.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Requests SIGKILL for when the parent ends.
pub(super) fn die_with_parent() {
    // Only fails for an invalid signal.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Makes a mount and everything mounted below it read-only, keeping its other flags.
pub(super) fn read_only(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    set_read_only(libc::AT_FDCWD, &path, libc::AT_RECURSIVE)
}

/// Makes the mount behind a descriptor read-only, and none below it.
pub(super) fn read_only_mount(mount: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
    set_read_only(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn set_read_only(
    at: std::os::fd::RawFd,
    path: &std::ffi::CStr,
    flags: libc::c_int,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a C string and the attributes are a struct of the size given; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            &raw const attributes,
            std::mem::size_of_val(&attributes),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
