use super::*;

#[track_caller]
fn check(profile: &str, filters: usize) {
    let security = Security {
        seccomp: Seccomp::Profile(profile.into()),
        ..Security::default()
    };
    let programs = compile(&security).unwrap();
    assert_eq!(programs.len(), filters);
    assert!(programs.iter().all(|program| !program.is_empty()));
}

#[test]
fn profiles_become_one_filter_for_every_action() {
    check(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#, 0);
    check(r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#, 1);
    let mixed = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        {"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
        {"name": "personality", "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        {"names": ["ptrace"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
    check(mixed, 3);
    // What newer calls get is a part of a filter.
    check(&mixed.replace(r#""defaultErrnoRet": 1, "#, ""), 3);
}

fn of(profile: &str) -> Vec<BpfProgram> {
    let security = Security {
        seccomp: Seccomp::Profile(profile.into()),
        ..Security::default()
    };
    compile(&security).unwrap()
}

/// The second filter was refused by the first.
#[test]
fn regression_profiles_that_refuse_to_install_filters_can_be_installed() {
    let programs = of(r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["read", "execve"], "action": "SCMP_ACT_ALLOW"}]}"#);
    assert_eq!(programs.len(), 1);
    assert_eq!(answer(&programs, libc::SYS_read, &[]), ALLOW);
    assert_eq!(answer(&programs, libc::SYS_execve, &[]), ALLOW);
    assert_eq!(answer(&programs, libc::SYS_write, &[]), errno(libc::EPERM));
    assert_ne!(answer(&programs, INSTALL, &[]), ALLOW);
    assert_eq!(answer(&programs, 5000, &[]), errno(libc::ENOSYS));
    let others = [
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["ptrace"], "action": "SCMP_ACT_KILL"}]}"#,
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["prctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}"#,
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["prctl"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["ptrace"], "action": "SCMP_ACT_KILL"}]}"#,
    ];
    for profile in others {
        let programs = of(profile);
        let [before @ .., last] = programs.as_slice() else {
            panic!("no filter: {profile}");
        };
        assert_eq!(before.len(), 1, "{profile}");
        for program in before {
            assert_eq!(run(program, INSTALL, &[]), ALLOW, "{profile}");
        }
        assert_ne!(run(last, INSTALL, &[]), ALLOW, "{profile}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let fails = |profile: &str| {
        let security = Security {
            seccomp: Seccomp::Profile(profile.into()),
            ..Security::default()
        };
        compile(&security).unwrap_err()
    };
    let error = fails(r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#);
    assert_eq!(
        error,
        "seccomp profile: unsupported action \"SCMP_ACT_NOTIFY\""
    );
    assert!(fails("{").starts_with("seccomp profile: "));
}

/// What the kernel does with a call: the strictest answer of all filters, of equal ones that of the filter installed last.
fn answer(programs: &[BpfProgram], number: i64, args: &[u64]) -> u32 {
    let all = programs
        .iter()
        .rev()
        .map(|program| run(program, number, args));
    all.reduce(|strictest, next| {
        // As signed numbers, killing the process is the strictest.
        let action = |answer: u32| (answer & 0xffff_0000) as i32;
        if action(next) < action(strictest) {
            next
        } else {
            strictest
        }
    })
    .expect("a filter")
}

/// One filter, by the instructions that are used in filters.
fn run(program: &BpfProgram, number: i64, args: &[u64]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    const AUDIT: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const AUDIT: u32 = 0xc000_00b7;
    #[cfg(target_arch = "riscv64")]
    const AUDIT: u32 = 0xc000_00f3;
    // Number, architecture, instruction pointer, arguments.
    let mut data = vec![number as u32, AUDIT, 0, 0];
    for at in 0..6 {
        let value = args.get(at).copied().unwrap_or_default();
        data.extend([value as u32, (value >> 32) as u32]);
    }
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let step = &program[at];
        let (code, k) = (u32::from(step.code), step.k);
        at += 1;
        let jump = match (code & 0x07, code & 0xf0) {
            (libc::BPF_LD, _) => {
                accumulator = data[k as usize / 4];
                continue;
            }
            (libc::BPF_ALU, libc::BPF_AND) => {
                accumulator &= k;
                continue;
            }
            (libc::BPF_RET, _) => return k,
            (libc::BPF_JMP, libc::BPF_JA) => {
                at += k as usize;
                continue;
            }
            (libc::BPF_JMP, libc::BPF_JEQ) => accumulator == k,
            (libc::BPF_JMP, libc::BPF_JGT) => accumulator > k,
            (libc::BPF_JMP, libc::BPF_JGE) => accumulator >= k,
            other => panic!("instruction {other:?}"),
        };
        at += usize::from(if jump { step.jt } else { step.jf });
    }
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | number as u32
}

fn default_with(capabilities: &[&str]) -> Vec<BpfProgram> {
    let security = Security {
        seccomp: Seccomp::RuntimeDefault,
        capabilities: capabilities.iter().map(|it| (*it).to_owned()).collect(),
        ..Security::default()
    };
    compile(&security).unwrap()
}

#[test]
fn the_default_profile_permits_what_it_lists() {
    let programs = default_with(&["CAP_CHOWN", "CAP_SYS_CHROOT"]);
    let (refused, missing) = (errno(libc::EPERM), errno(libc::ENOSYS));
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    let all: &[(i64, &[u64], u32)] = &[
        (libc::SYS_read, &[], ALLOW),
        (libc::SYS_openat2, &[], ALLOW),
        (libc::SYS_openat, &[], ALLOW),
        (libc::SYS_newfstatat, &[], ALLOW),
        (libc::SYS_fstat, &[], ALLOW),
        // statmount, listmount, lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules.
        (457, &[], ALLOW),
        (458, &[], ALLOW),
        (459, &[], ALLOW),
        (460, &[], ALLOW),
        (461, &[], ALLOW),
        (libc::SYS_ptrace, &[], ALLOW),
        (libc::SYS_chroot, &[], ALLOW),
        (libc::SYS_clone, &[thread], ALLOW),
        (libc::SYS_clone, &[libc::SIGCHLD as u64], ALLOW),
        (libc::SYS_clone, &[libc::CLONE_NEWUSER as u64], refused),
        (
            libc::SYS_clone,
            &[1 << 32 | libc::CLONE_NEWUSER as u64],
            refused,
        ),
        (
            libc::SYS_clone,
            &[libc::CLONE_NEWNET as u64 | thread],
            refused,
        ),
        (libc::SYS_clone3, &[], missing),
        (libc::SYS_unshare, &[libc::CLONE_NEWUSER as u64], refused),
        (libc::SYS_setns, &[], refused),
        (libc::SYS_mount, &[], refused),
        (libc::SYS_umount2, &[], refused),
        (libc::SYS_move_mount, &[], refused),
        (libc::SYS_pivot_root, &[], refused),
        (libc::SYS_keyctl, &[], refused),
        (libc::SYS_add_key, &[], refused),
        (libc::SYS_request_key, &[], refused),
        (libc::SYS_bpf, &[], refused),
        (libc::SYS_perf_event_open, &[], refused),
        (libc::SYS_userfaultfd, &[], refused),
        (libc::SYS_io_uring_setup, &[], refused),
        (libc::SYS_io_uring_enter, &[], refused),
        (libc::SYS_kexec_load, &[], refused),
        (libc::SYS_init_module, &[], refused),
        (libc::SYS_open_by_handle_at, &[], refused),
        (libc::SYS_pidfd_getfd, &[], refused),
        (libc::SYS_kcmp, &[], refused),
        (libc::SYS_quotactl, &[], refused),
        (libc::SYS_syslog, &[], refused),
        (libc::SYS_swapon, &[], refused),
        (libc::SYS_settimeofday, &[], refused),
        (libc::SYS_personality, &[0], ALLOW),
        (libc::SYS_personality, &[0xffff_ffff], ALLOW),
        (libc::SYS_personality, &[0x2_0008], ALLOW),
        // ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC.
        (libc::SYS_personality, &[0x4_0000], refused),
        (libc::SYS_personality, &[0x40_0000], refused),
        (libc::SYS_socket, &[libc::AF_UNIX as u64], ALLOW),
        (libc::SYS_socket, &[libc::AF_INET6 as u64], ALLOW),
        (libc::SYS_socket, &[libc::AF_VSOCK as u64], refused),
        (libc::SYS_socket, &[libc::AF_ALG as u64 | 1 << 32], refused),
        // Newer than the list; never assigned; x32.
        (1000, &[], missing),
        (-1, &[], missing),
        (0x4000_0000, &[], missing),
        (0x4000_0000 | libc::SYS_mount, &[], missing),
    ];
    for (number, args, expected) in all {
        let found = answer(&programs, *number, args);
        assert_eq!(found, *expected, "call {number} {args:x?}: {found:x}");
    }
}

#[test]
fn capabilities_open_the_default_profile() {
    let all = [
        ("CAP_SYS_ADMIN", libc::SYS_mount),
        ("CAP_SYS_ADMIN", libc::SYS_clone3),
        ("CAP_SYS_ADMIN", libc::SYS_bpf),
        ("CAP_BPF", libc::SYS_bpf),
        ("CAP_PERFMON", libc::SYS_perf_event_open),
        ("CAP_SYS_PTRACE", libc::SYS_pidfd_getfd),
        ("CAP_SYS_TIME", libc::SYS_clock_settime),
        ("CAP_SYSLOG", libc::SYS_syslog),
        ("CAP_SYS_NICE", libc::SYS_mbind),
    ];
    for (capability, call) in all {
        let (with, without) = (default_with(&[capability]), default_with(&[]));
        assert_eq!(answer(&with, call, &[]), ALLOW, "{capability}");
        assert_ne!(answer(&without, call, &[]), ALLOW, "{capability}");
    }
    let admin = default_with(&["CAP_SYS_ADMIN"]);
    let user = libc::CLONE_NEWUSER as u64;
    assert_eq!(answer(&admin, libc::SYS_clone, &[user]), ALLOW);
    let refused = errno(libc::EPERM);
    assert_eq!(answer(&admin, libc::SYS_keyctl, &[]), refused);
    assert_eq!(answer(&admin, libc::SYS_io_uring_setup, &[]), refused);
}

/// A name that this machine's kernel does not have is dropped, so that a mistake in one would not be noticed.
#[test]
fn all_names_of_the_default_profile_are_calls() {
    // Of other architectures, or older or newer than the table of the machine's.
    const OF_SOME: &str = "sync_file_range2 riscv_flush_icache riscv_hwprobe";
    if ARCH.1 != "amd64" {
        return;
    }
    let all = default::profile().syscalls;
    let names = all.iter().flat_map(|entry| &entry.names);
    for name in names.filter(|name| !OF_SOME.split(' ').any(|it| it == *name)) {
        assert!(number(name).is_some(), "{name}");
    }
}
