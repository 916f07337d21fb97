//! Which devices the kernel lets a container open, with cgroups v2: a BPF program that is attached to the container's
//! cgroup. Cgroups v1 has files for it, which libcontainer writes.
//!
//! The rules are those of the OCI specification; the numbers are those of `linux/bpf.h`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use crate::error::{AtPath as _, PathError};

/// Access to a device node.
const MAKE: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const ALL: u32 = MAKE | READ | WRITE;

/// Kinds of device nodes.
const BLOCK: u32 = 1;
const CHARACTER: u32 = 2;

/// Rules of a container; the kernel takes a million instructions, and a rule has at most six.
const MOST: usize = 10_000;

/// One rule: a field that is `None` matches everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: Option<u32>,
    access: u32,
    major: Option<u32>,
    minor: Option<u32>,
}

/// Kind, major and minor number, and access of a default device; `None` means any.
type Usual = (Option<u32>, Option<u32>, Option<u32>, u32);

/// Devices that every container may use: `null`, `zero`, `full`, `random`, `urandom`, `tty`, `console`, `ptmx` and
/// terminals, as libcontainer has it for cgroups v1. Creating nodes needs a capability.
const USUAL: [Usual; 11] = [
    (Some(CHARACTER), None, None, MAKE),
    (Some(BLOCK), None, None, MAKE),
    (Some(CHARACTER), Some(1), Some(3), ALL),
    (Some(CHARACTER), Some(1), Some(5), ALL),
    (Some(CHARACTER), Some(1), Some(7), ALL),
    (Some(CHARACTER), Some(1), Some(8), ALL),
    (Some(CHARACTER), Some(1), Some(9), ALL),
    (Some(CHARACTER), Some(5), Some(0), ALL),
    (Some(CHARACTER), Some(5), Some(1), ALL),
    (Some(CHARACTER), Some(5), Some(2), ALL),
    (Some(CHARACTER), Some(136), None, ALL),
];

/// Why the kernel does not enforce the device rules of a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceRulesError {
    /// A program for them would be too long.
    #[error("more than {} device rules", MOST)]
    TooMany,
    /// The kernel refuses the program.
    #[error("device rules: {0}")]
    Program(#[from] std::io::Error),
    /// The cgroup cannot be opened.
    #[error(transparent)]
    Cgroup(#[from] PathError),
}

/// Puts the rules of a container in force for the cgroup at a directory.
///
/// # Errors
/// The kernel refuses.
pub(super) fn enforce(rules: &[LinuxDeviceCgroup], cgroup: &Path) -> Result<(), DeviceRulesError> {
    let mut all: Vec<Rule> = rules.iter().take(MOST).map(rule).collect();
    if rules.len() > MOST {
        return Err(DeviceRulesError::TooMany);
    }
    let usual = USUAL.iter().map(|(kind, major, minor, access)| Rule {
        allow: true,
        kind: *kind,
        access: *access,
        major: *major,
        minor: *minor,
    });
    all.extend(usual);
    let program = load(&program(&all))?;
    let directory = std::fs::File::open(cgroup).at(cgroup)?;
    Ok(attach(&program, &directory)?)
}

fn rule(rule: &LinuxDeviceCgroup) -> Rule {
    let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
    let access = rule.access().as_deref().unwrap_or("rwm");
    let bits = access.chars().map(|letter| match letter {
        'r' => READ,
        'w' => WRITE,
        'm' => MAKE,
        _ => 0,
    });
    Rule {
        allow: rule.allow(),
        kind: match rule.typ() {
            Some(LinuxDeviceType::B) => Some(BLOCK),
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
            _ => None,
        },
        access: bits.fold(0, |all, bit| all | bit),
        major: number(rule.major()),
        minor: number(rule.minor()),
    }
}

/// An instruction: operation, registers (source in the upper half), offset of a jump, constant.
type Instruction = (u8, u8, i16, i32);

/// Operations that are used here.
const LOAD_WORD: u8 = 0x61;
const MOVE_CONSTANT: u8 = 0xb7;
const MOVE_REGISTER_32: u8 = 0xbc;
const AND_CONSTANT_32: u8 = 0x54;
const SHIFT_RIGHT_32: u8 = 0x74;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_UNEQUAL: u8 = 0x55;
const EXIT: u8 = 0x95;

/// The program: the last matching rule decides, so that the last one is checked first. A rule that permits matches if
/// it permits all of the access, one that forbids if it forbids any of it. Without a match the access is forbidden.
fn program(rules: &[Rule]) -> Vec<Instruction> {
    // Of the context: kind of node and access in one word, major and minor number.
    let mut code = vec![
        (LOAD_WORD, 0x12, 0, 0),
        (AND_CONSTANT_32, 0x02, 0, 0xffff),
        (LOAD_WORD, 0x13, 0, 0),
        (SHIFT_RIGHT_32, 0x03, 0, 16),
        (LOAD_WORD, 0x14, 4, 0),
        (LOAD_WORD, 0x15, 8, 0),
    ];
    for rule in rules.iter().rev() {
        let mut tests: Vec<Instruction> = Vec::new();
        if let Some(kind) = rule.kind {
            tests.push((JUMP_UNEQUAL, 0x02, 0, kind as i32));
        }
        if rule.access != ALL {
            tests.push((MOVE_REGISTER_32, 0x31, 0, 0));
            if rule.allow {
                tests.push((AND_CONSTANT_32, 0x01, 0, !(rule.access as i32) & ALL as i32));
                tests.push((JUMP_UNEQUAL, 0x01, 0, 0));
            } else {
                tests.push((AND_CONSTANT_32, 0x01, 0, rule.access as i32));
                tests.push((JUMP_EQUAL, 0x01, 0, 0));
            }
        }
        for (register, number) in [(0x04, rule.major), (0x05, rule.minor)] {
            if let Some(number) = number {
                tests.push((JUMP_UNEQUAL, register, 0, number as i32));
            }
        }
        // Over the rest of the tests and the two instructions of the answer.
        let length = tests.len();
        for (position, test) in tests.iter_mut().enumerate() {
            if matches!(test.0, JUMP_UNEQUAL | JUMP_EQUAL) {
                test.2 = (length - position + 1) as i16;
            }
        }
        code.extend(tests);
        code.push((MOVE_CONSTANT, 0x00, 0, i32::from(rule.allow)));
        code.push((EXIT, 0, 0, 0));
        if length == 0 {
            // It fits everything. The kernel refuses programs with parts that cannot be reached.
            return code;
        }
    }
    code.push((MOVE_CONSTANT, 0x00, 0, 0));
    code.push((EXIT, 0, 0, 0));
    code
}

/// Loads a program for devices of cgroups.
fn load(code: &[Instruction]) -> std::io::Result<OwnedFd> {
    const LOAD: libc::c_long = 5;
    const CGROUP_DEVICE: u32 = 15;
    /// The beginning of `union bpf_attr` for loading.
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel: u32,
        flags: u32,
    }
    let bytes: Vec<u8> = code
        .iter()
        .flat_map(|(operation, registers, offset, constant)| {
            let mut bytes = [0; 8];
            bytes[0] = *operation;
            // The target is in the lower half.
            bytes[1] = *registers;
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            bytes[4..8].copy_from_slice(&constant.to_ne_bytes());
            bytes
        })
        .collect();
    let license = c"Apache";
    let attributes = Attributes {
        kind: CGROUP_DEVICE,
        count: code.len() as u32,
        code: bytes.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
    };
    // SAFETY: the attributes, the code and the license outlive the call; the size is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            LOAD,
            &raw const attributes,
            std::mem::size_of_val(&attributes),
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel created this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Attaches a program to a cgroup, beside existing ones: all must permit the access.
fn attach(program: &OwnedFd, cgroup: &std::fs::File) -> std::io::Result<()> {
    const ATTACH: libc::c_long = 8;
    const CGROUP_DEVICE: u32 = 6;
    const BESIDE_OTHERS: u32 = 2;
    /// The beginning of `union bpf_attr` for attaching.
    #[repr(C)]
    struct Attributes {
        target: u32,
        program: u32,
        kind: u32,
        flags: u32,
    }
    let attributes = Attributes {
        target: cgroup.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        kind: CGROUP_DEVICE,
        flags: BESIDE_OTHERS,
    };
    // SAFETY: the attributes outlive the call and the size is theirs; both descriptors are open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            ATTACH,
            &raw const attributes,
            std::mem::size_of_val(&attributes),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
