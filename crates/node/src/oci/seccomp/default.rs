//! The profile `RuntimeDefault`, a list of the system calls that are permitted: those that container runtimes permit by default,
//! some only with a capability or with certain arguments. Every other call fails with `EPERM`, and one that is newer than this
//! list with `ENOSYS`, as on a kernel without it, so that programs fall back to an older call.
//!
//! Only calls of 64-bit architectures are listed: others are killed at their first call.

use super::{Argument, Conditions, Profile, Syscalls};

/// Permitted always, by what they are about.
const ALWAYS: [&str; 12] = [
    // Files: names, metadata, contents.
    "access chdir chmod chown creat faccessat faccessat2 fchdir fchmod fchmodat fchmodat2 fchown fchownat futimesat getcwd \
     lchown link linkat listmount lstat mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat openat2 \
     readlink readlinkat rename renameat renameat2 rmdir stat statmount statx symlink symlinkat truncate umask unlink \
     unlinkat utime utimensat utimes",
    "close close_range copy_file_range dup dup2 dup3 fadvise64 fallocate fcntl fdatasync flock fstat fstatfs fsync ftruncate \
     getdents getdents64 ioctl lseek pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readv \
     sendfile splice statfs sync sync_file_range syncfs tee vmsplice write writev",
    "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lremovexattr \
     lsetxattr removexattr removexattrat setxattr setxattrat",
    "fanotify_mark inotify_add_watch inotify_init inotify_init1 inotify_rm_watch",
    // Waiting for events, and the older interface for asynchronous I/O.
    "epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 \
     io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit poll ppoll pselect6 select signalfd signalfd4 \
     timerfd_create timerfd_gettime timerfd_settime",
    // Memory.
    "brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect \
     mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease remap_file_pages",
    // Processes and threads, their signals and scheduling.
    "alarm execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list \
     get_thread_area getpgid getpgrp getpid getppid getsid gettid kill pause pidfd_open pidfd_send_signal prctl \
     restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
     rt_sigtimedwait rt_tgsigqueueinfo set_robust_list set_thread_area set_tid_address setpgid setsid sigaltstack tgkill \
     tkill uretprobe vfork wait4 waitid",
    "getcpu getitimer getpriority getrlimit getrusage ioprio_get ioprio_set prlimit64 sched_get_priority_max \
     sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
     sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield setitimer setpriority setrlimit sysinfo \
     times uname",
    // Users, groups, privileges. The kernel checks each for its capability.
    "capget capset getegid geteuid getgid getgroups getresgid getresuid getuid landlock_add_rule landlock_create_ruleset \
     landlock_restrict_self lsm_get_self_attr lsm_list_modules lsm_set_self_attr seccomp setfsgid setfsuid setgid \
     setgroups setregid setresgid setresuid setreuid setuid",
    // Time. Without CAP_SYS_TIME clocks are only read.
    "adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getrandom gettimeofday nanosleep time timer_create \
     timer_delete timer_getoverrun timer_gettime timer_settime",
    // Other processes, by sockets, queues and shared memory.
    "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto \
     setsockopt shutdown socketpair",
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop \
     semtimedop shmat shmctl shmdt shmget",
];

/// Permitted always as well. Before Linux 4.8 a process could use these to get around its filter; containers need a
/// newer kernel for other reasons.
const OF_DEBUGGERS: &str = "process_vm_readv process_vm_writev ptrace";

/// Permitted on some architectures.
const OF_ARCHITECTURES: [(&str, &str); 3] = [
    ("amd64", "arch_prctl modify_ldt"),
    ("arm64", "sync_file_range2"),
    ("riscv64", "riscv_flush_icache riscv_hwprobe"),
];

/// Permitted to those that have the capability.
const WITH: [(&str, &str); 14] = [
    ("CAP_BPF", "bpf"),
    ("CAP_DAC_READ_SEARCH", "open_by_handle_at"),
    ("CAP_PERFMON", "perf_event_open"),
    (
        "CAP_SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr \
         move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount2 unshare",
    ),
    ("CAP_SYS_BOOT", "reboot"),
    ("CAP_SYS_CHROOT", "chroot"),
    ("CAP_SYS_MODULE", "delete_module finit_module init_module"),
    (
        "CAP_SYS_NICE",
        "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    ),
    ("CAP_SYS_PACCT", "acct"),
    ("CAP_SYS_PTRACE", "kcmp pidfd_getfd process_madvise"),
    ("CAP_SYS_RAWIO", "ioperm iopl"),
    ("CAP_SYS_TIME", "clock_settime settimeofday"),
    ("CAP_SYS_TTY_CONFIG", "vhangup"),
    ("CAP_SYSLOG", "syslog"),
];

/// Flags of `clone` that make namespaces. That of time is none of its flags.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32 as u64;

/// Of `personality`: Linux, 32-bit Linux, each also with the number of an older kernel (`UNAME26`), and the question for the
/// present one. The others make addresses predictable or pages executable.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Families of sockets without a namespace: to the hypervisor, and to the kernel's cryptography.
const REFUSED_FAMILIES: [libc::c_int; 2] = [libc::AF_VSOCK, libc::AF_ALG];

fn permit(names: &str) -> Syscalls {
    Syscalls {
        names: names.split_whitespace().map(str::to_owned).collect(),
        action: "SCMP_ACT_ALLOW".into(),
        ..Syscalls::default()
    }
}

fn permit_if(name: &str, args: Vec<Argument>) -> Syscalls {
    Syscalls {
        args: Some(args),
        ..permit(name)
    }
}

fn first(op: &str, value: u64) -> Argument {
    Argument {
        value,
        op: op.into(),
        ..Argument::default()
    }
}

/// Those that have, or have not, a capability.
fn capability(name: &str) -> Conditions {
    Conditions {
        caps: Some(vec![name.to_owned()]),
        arches: None,
    }
}

/// The profile.
pub(super) fn profile() -> Profile {
    let mut syscalls: Vec<Syscalls> = ALWAYS.map(permit).into();
    syscalls.push(permit(OF_DEBUGGERS));
    syscalls.extend(OF_ARCHITECTURES.map(|(name, names)| {
        let mut entry = permit(names);
        entry.includes.arches = Some(vec![name.to_owned()]);
        entry
    }));
    syscalls.extend(WITH.map(|(name, names)| Syscalls {
        includes: capability(name),
        ..permit(names)
    }));
    let without = "CAP_SYS_ADMIN";
    syscalls.push(Syscalls {
        excludes: capability(without),
        ..permit_if("clone", vec![first("SCMP_CMP_MASKED_EQ", NAMESPACES)])
    });
    // Its flags are in memory, which a filter cannot read: programs fall back to clone.
    syscalls.push(Syscalls {
        action: "SCMP_ACT_ERRNO".into(),
        errno_ret: Some(libc::ENOSYS as u32),
        excludes: capability(without),
        ..permit("clone3")
    });
    let equal = |value| permit_if("personality", vec![first("SCMP_CMP_EQ", value)]);
    syscalls.extend(PERSONALITIES.map(equal));
    let others = REFUSED_FAMILIES.map(|family| Argument {
        // The kernel reads the lower 32 bits only: bits above them must not make it another address family.
        half: true,
        ..first("SCMP_CMP_NE", family as u64)
    });
    syscalls.push(permit_if("socket", others.into()));
    Profile {
        default_action: "SCMP_ACT_ERRNO".into(),
        default_errno_ret: None,
        syscalls,
    }
}
