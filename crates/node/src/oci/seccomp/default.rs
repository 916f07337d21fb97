//! The profile `RuntimeDefault`: what concerns the whole machine, what has a history of holes in the kernel, and what a
//! container cannot use anyway is refused. It refuses what the profile of containerd refuses.

use super::{Argument, Conditions, Profile, Syscalls};

/// Refused without the capability.
const WITH: [(&str, &[&str]); 10] = [
    (
        "CAP_SYS_ADMIN",
        &[
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "pivot_root",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "swapoff",
            "swapon",
            "umount2",
            "unshare",
        ],
    ),
    (
        "CAP_SYS_NICE",
        &[
            "get_mempolicy",
            "mbind",
            "set_mempolicy",
            "set_mempolicy_home_node",
        ],
    ),
    ("CAP_BPF", &["bpf"]),
    ("CAP_PERFMON", &["perf_event_open"]),
    ("CAP_DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("CAP_SYS_BOOT", &["kexec_file_load", "kexec_load", "reboot"]),
    (
        "CAP_SYS_MODULE",
        &["delete_module", "finit_module", "init_module"],
    ),
    ("CAP_SYS_PACCT", &["acct"]),
    ("CAP_SYS_RAWIO", &["ioperm", "iopl"]),
    (
        "CAP_SYS_TIME",
        &["clock_adjtime", "clock_settime", "settimeofday"],
    ),
];

/// Refused always.
const NEVER: &[&str] = &[
    "_sysctl",
    "add_key",
    "create_module",
    "get_kernel_syms",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "keyctl",
    "migrate_pages",
    "move_pages",
    "nfsservctl",
    "query_module",
    "request_key",
    "sysfs",
    "syslog",
    "uselib",
    "userfaultfd",
    "ustat",
    "vhangup",
    "vserver",
];

fn refuse(names: &[&str], missing: Option<&str>, args: Option<Vec<Argument>>) -> Syscalls {
    Syscalls {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        action: "SCMP_ACT_ERRNO".into(),
        args,
        excludes: Conditions {
            caps: missing.map(|capability| vec![capability.to_owned()]),
            arches: None,
        },
        ..Syscalls::default()
    }
}

/// The profile.
pub(super) fn profile() -> Profile {
    let mut syscalls = vec![refuse(NEVER, None, None)];
    syscalls.extend(WITH.map(|(capability, names)| refuse(names, Some(capability), None)));
    // Every new namespace separately; the flags are the first argument.
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ] {
        let flag = flag as u32 as u64;
        let argument = Argument {
            index: 0,
            value: flag,
            value_two: flag,
            op: "SCMP_CMP_MASKED_EQ".into(),
        };
        syscalls.push(refuse(
            &["clone"],
            Some("CAP_SYS_ADMIN"),
            Some(vec![argument]),
        ));
    }
    // Its flags are in memory, which a filter cannot read: programs fall back to clone.
    let mut clone3 = refuse(&["clone3"], Some("CAP_SYS_ADMIN"), None);
    clone3.errno_ret = Some(libc::ENOSYS as u32);
    syscalls.push(clone3);
    // Sockets to the hypervisor, and to the kernel's cryptography.
    for family in [libc::AF_VSOCK, libc::AF_ALG] {
        let argument = Argument {
            index: 0,
            // The kernel reads the lower half alone: bits in the upper one are no other family.
            value: u64::from(u32::MAX),
            value_two: family as u64,
            op: "SCMP_CMP_MASKED_EQ".into(),
        };
        syscalls.push(refuse(&["socket"], None, Some(vec![argument])));
    }
    Profile {
        default_action: "SCMP_ACT_ALLOW".into(),
        default_errno_ret: None,
        syscalls,
    }
}
