//! Filters for system calls: profiles in the format of Docker and containerd, compiled for the kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use serde::Deserialize;

use crate::spec::{Seccomp, Security};

mod default;
#[cfg(test)]
mod tests;

/// What a process without `no_new_privs` needs to install a filter, and to give up these very capabilities afterwards.
pub(crate) const PRIVILEGES: [&str; 2] = ["CAP_SETPCAP", "CAP_SYS_ADMIN"];

/// Whether the filter can only be installed with [`PRIVILEGES`].
pub(crate) fn needs_privileges(security: &Security) -> bool {
    let profile = security.seccomp != Seccomp::Unconfined && !security.privileged;
    (profile || security.no_keyrings) && !security.no_new_privileges
}

/// A profile.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    syscalls: Vec<Syscalls>,
}

/// What happens to some system calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Syscalls {
    names: Vec<String>,
    /// The older way to write one name.
    name: Option<String>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    includes: Conditions,
    excludes: Conditions,
}

/// An argument of the call.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Argument {
    index: u8,
    value: u64,
    value_two: u64,
    op: String,
    /// Only the lower 32 bits are compared. Profiles cannot say that.
    #[serde(skip)]
    half: bool,
}

/// When an entry counts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conditions {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
}

#[cfg(target_arch = "x86_64")]
const ARCH: (TargetArch, &str) = (TargetArch::x86_64, "amd64");
#[cfg(target_arch = "aarch64")]
const ARCH: (TargetArch, &str) = (TargetArch::aarch64, "arm64");
#[cfg(target_arch = "riscv64")]
const ARCH: (TargetArch, &str) = (TargetArch::riscv64, "riscv64");

/// The call that installs a filter.
const INSTALL: i64 = libc::SYS_prctl;

/// Instructions at the start of every filter, which check the architecture.
const ARCH_CHECK: usize = 3;

/// The filters of a container, all of which must be installed, in this order; the strictest result applies.
///
/// # Errors
/// The profile cannot be read, or uses a feature that this runtime does not support.
pub(crate) fn compile(security: &Security) -> Result<Vec<BpfProgram>, String> {
    let mut all = Vec::new();
    if security.no_keyrings {
        // The first, because the profile may refuse to install filters.
        all.push(without_keyrings()?);
    }
    let profile = match &security.seccomp {
        _ if security.privileged => return Ok(all),
        Seccomp::Unconfined => return Ok(all),
        Seccomp::RuntimeDefault => default::profile(),
        Seccomp::Profile(text) => {
            serde_json::from_str(text).map_err(|error| format!("seccomp profile: {error}"))?
        }
    };
    let own = programs(&profile, &security.capabilities);
    all.extend(own.map_err(|error| format!("seccomp profile: {error}"))?);
    Ok(all)
}

/// The filter that refuses the system calls for keyrings.
///
/// # Errors
/// The filter cannot be compiled.
pub(crate) fn without_keyrings() -> Result<BpfProgram, String> {
    const CALLS: [libc::c_long; 3] = [libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key];
    /// The bit of calls of x32, which are the same ones by other numbers.
    const X32: u32 = 0x4000_0000;
    let rules: Rules = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, ARCH.0);
    let program = filter.and_then(BpfProgram::try_from);
    let mut program = program.map_err(|error| format!("filter of keyrings: {error}"))?;
    let at = ARCH_CHECK.min(program.len());
    drop(program.splice(at..at, newer_are_missing(X32 - 1)));
    Ok(program)
}

/// The filter of the first process of a container, which waits for others and passes signals on: for containers whose profile
/// is not for it.
///
/// # Errors
/// The filter cannot be compiled.
pub(crate) fn of_the_first() -> Result<BpfProgram, String> {
    /// With what the C library does to release memory and to end.
    const CALLS: [libc::c_long; 19] = [
        libc::SYS_brk,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_kill,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_sigaltstack,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_write,
    ];
    let rules: Rules = CALLS.into_iter().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, ARCH.0)
        .and_then(BpfProgram::try_from)
        .map_err(|error| format!("filter of the first process: {error}"))
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn programs(profile: &Profile, capabilities: &[String]) -> Result<Vec<BpfProgram>, String> {
    let fallback = action(&profile.default_action, profile.default_errno_ret)?;
    let refuses = matches!(fallback, SeccompAction::Errno(_));
    // Rules by action; each kernel filter has one action.
    let mut groups: Vec<(SeccompAction, Rules)> = Vec::new();
    for entry in &profile.syscalls {
        if !counts(entry, capabilities) {
            continue;
        }
        let action = action(&entry.action, entry.errno_ret)?;
        if action == fallback {
            continue;
        }
        let rule = rule(entry.args.as_deref().unwrap_or_default())?;
        let group = match groups.iter_mut().position(|(known, _)| *known == action) {
            Some(at) => &mut groups[at].1,
            None => {
                groups.push((action, Rules::new()));
                let last = groups.len() - 1;
                &mut groups[last].1
            }
        };
        for name in entry.names.iter().chain(&entry.name) {
            // Calls of other architectures and kernels do not exist here.
            let Some(number) = number(name) else {
                continue;
            };
            add(group, i64::from(number.id()), rule.clone());
        }
    }
    let mut last = None;
    if fallback != SeccompAction::Allow {
        // Everything that has a rule gets past the default.
        let mut named = Rules::new();
        for (number, rules) in groups.iter().flat_map(|(_, rules)| rules) {
            match rules.is_empty() {
                true => add(&mut named, *number, None),
                false => rules
                    .iter()
                    .for_each(|rule| add(&mut named, *number, Some(rule.clone()))),
            }
        }
        last = Some((SeccompAction::Allow, fallback, named));
    }
    let others = groups
        .into_iter()
        .filter(|(action, _)| *action != SeccompAction::Allow);
    let others = others.map(|(action, rules)| (action, SeccompAction::Allow, rules));
    let mut filters: Vec<_> = others.chain(last).collect();
    // Filters are installed by a system call, which is refused when a filter before them refuses it: that one is the last.
    filters.sort_by_key(|(_, otherwise, rules)| match otherwise {
        SeccompAction::Allow => rules.contains_key(&INSTALL),
        _ => !rules.get(&INSTALL).is_some_and(Vec::is_empty),
    });
    let missing = newest(profile).filter(|_| refuses && profile.default_errno_ret.is_none());
    let compiled = |(matched, otherwise, rules): (SeccompAction, SeccompAction, Rules)| {
        let is_fallback = otherwise != SeccompAction::Allow;
        let filter = SeccompFilter::new(rules, otherwise, matched, ARCH.0);
        let program = filter.and_then(BpfProgram::try_from);
        let mut program = program.map_err(|error| error.to_string())?;
        if let Some(newest) = missing.filter(|_| is_fallback) {
            let at = ARCH_CHECK.min(program.len());
            drop(program.splice(at..at, newer_are_missing(newest)));
        }
        Ok::<BpfProgram, String>(program)
    };
    filters.into_iter().map(compiled).collect()
}

/// The number of a call; `None` for one of another architecture or kernel.
fn number(name: &str) -> Option<syscalls::Sysno> {
    let number: Option<syscalls::Sysno> = name.parse().ok();
    // On 64-bit ARM the table has this call by the name that the C library gives it.
    number.or_else(|| match name {
        "newfstatat" => "fstatat".parse().ok(),
        _ => None,
    })
}

/// The largest number that a profile has an entry for, whether that counts or not.
fn newest(profile: &Profile) -> Option<u32> {
    let entries = profile.syscalls.iter();
    let names = entries.flat_map(|entry| entry.names.iter().chain(&entry.name));
    let numbers = names.filter_map(|name| number(name));
    numbers.filter_map(|it| u32::try_from(it.id()).ok()).max()
}

/// The part of a filter for calls that came after a profile was written: they do not exist, as far as programs see. As in runc,
/// not for profiles that name their own error. Calls of x32, which have a bit of their own, are among them. It is no filter of
/// its own, because a second one could not be installed after one that refuses to install filters.
fn newer_are_missing(newest: u32) -> [sock_filter; 3] {
    let step = |code: u32, jf: u8, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    [
        // The number of the system call is the first field of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, newest),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::from(missing)),
    ]
}

/// Adds a rule; one without conditions makes those with conditions redundant.
fn add(rules: &mut Rules, number: i64, rule: Option<SeccompRule>) {
    match (rules.get_mut(&number), rule) {
        (_, None) => drop(rules.insert(number, Vec::new())),
        (Some(known), Some(rule)) if !known.is_empty() => known.push(rule),
        (Some(_), Some(_)) => {}
        (None, Some(rule)) => drop(rules.insert(number, vec![rule])),
    }
}

fn counts(entry: &Syscalls, capabilities: &[String]) -> bool {
    let has = |name: &String| capabilities.contains(name);
    let here = |name: &String| name == ARCH.1;
    let caps = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (include, exclude) = (&entry.includes, &entry.excludes);
    caps(&include.caps).iter().all(has)
        && include
            .arches
            .as_ref()
            .is_none_or(|all| all.is_empty() || all.iter().any(here))
        && !caps(&exclude.caps).iter().any(has)
        && !caps(&exclude.arches).iter().any(here)
}

fn action(name: &str, errno: Option<u32>) -> Result<SeccompAction, String> {
    let errno = errno.unwrap_or(libc::EPERM as u32);
    Ok(match name {
        "SCMP_ACT_ALLOW" => SeccompAction::Allow,
        "SCMP_ACT_ERRNO" => SeccompAction::Errno(errno),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => SeccompAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => SeccompAction::KillProcess,
        "SCMP_ACT_TRAP" => SeccompAction::Trap,
        "SCMP_ACT_LOG" => SeccompAction::Log,
        "SCMP_ACT_TRACE" => SeccompAction::Trace(errno),
        _ => return Err(format!("unsupported action {name:?}")),
    })
}

/// A rule from conditions on arguments; `None` without any.
fn rule(arguments: &[Argument]) -> Result<Option<SeccompRule>, String> {
    let mut conditions = Vec::new();
    for argument in arguments {
        let (op, value) = match argument.op.as_str() {
            "SCMP_CMP_NE" => (SeccompCmpOp::Ne, argument.value),
            "SCMP_CMP_LT" => (SeccompCmpOp::Lt, argument.value),
            "SCMP_CMP_LE" => (SeccompCmpOp::Le, argument.value),
            "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, argument.value),
            "SCMP_CMP_GE" => (SeccompCmpOp::Ge, argument.value),
            "SCMP_CMP_GT" => (SeccompCmpOp::Gt, argument.value),
            // The mask is the first value.
            "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(argument.value), argument.value_two),
            other => return Err(format!("unsupported comparison {other:?}")),
        };
        let length = match argument.half {
            true => SeccompCmpArgLen::Dword,
            false => SeccompCmpArgLen::Qword,
        };
        let condition = SeccompCondition::new(argument.index, length, op, value);
        conditions.push(condition.map_err(|error| error.to_string())?);
    }
    if conditions.is_empty() {
        return Ok(None);
    }
    SeccompRule::new(conditions)
        .map(Some)
        .map_err(|error| error.to_string())
}
