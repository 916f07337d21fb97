//! The few system calls that need `unsafe`. All of them rely on the shim having a single thread.

use std::io;

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

/// Keeps all signals pending, also those that the init of a PID namespace would not even be sent.
pub(super) fn block_signals() {
    let set = all_signals();
    // SAFETY: both pointers are valid or null; the call only changes this thread's mask.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
}

/// Undoes [`block_signals`] and every ignored signal; exec keeps both.
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
        // SAFETY: the set is initialised and no information is asked for.
        let signal = unsafe { libc::sigwaitinfo(&set, std::ptr::null_mut()) };
        if signal > 0 {
            return signal;
        }
    }
}

/// Sends any signal, also a real-time one.
pub(super) fn kill(pid: Pid, signal: i32) {
    // SAFETY: kill(2) takes two integers and touches no memory. A process that is gone needs no signal.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

/// Sets the user and group ids of this process for good.
pub(super) fn become_user(user: Option<u32>, group: Option<u32>, groups: &[u32]) -> io::Result<()> {
    let check = |result: libc::c_int| {
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: the pointer and the length describe `groups`; the other calls take integers.
    unsafe {
        if !groups.is_empty() || user.is_some_and(|user| user != 0) {
            check(libc::setgroups(groups.len(), groups.as_ptr()))?;
        }
        if let Some(group) = group {
            check(libc::setresgid(group, group, group))?;
        }
        if let Some(user) = user {
            check(libc::setresuid(user, user, user))?;
        }
    }
    Ok(())
}

/// Capabilities that a container keeps: those that Docker and containerd leave to unprivileged containers.
const KEPT: [i32; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];

/// Removes all other capabilities from what an exec can give.
pub(super) fn drop_capabilities() {
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: prctl with integers. An unknown capability is EINVAL and there is nothing to drop.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
}

/// Closes everything but the standard streams; for the beginning, when nothing else has been opened.
pub(super) fn close_inherited() {
    // SAFETY: the numbers are of descriptors that came with the process, which nothing in it owns. A kernel that does
    // not know the call leaves them open.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// SIGKILL as soon as the parent is gone.
pub(super) fn die_with_parent() {
    // Only fails for an invalid signal.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

/// Makes a mount and everything mounted below it read-only, whatever flags it came with.
pub(super) fn read_only(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
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
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            std::mem::size_of_val(&attributes),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
