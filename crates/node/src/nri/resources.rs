//! Resources in the form of the interface, and limits of containers.

use std::path::Path;

use allot_protos::nri::{
    Field, HugepageLimit, LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxPids, LinuxResources,
    OptionalInt64, OptionalUInt64,
};
use serde_json::{Value, json};

use super::owners::called;
use crate::oci::cgroup::{self, CPU_PERIOD};
use crate::spec::{Limits, PodLimits};

/// Why resources cannot be set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) field: Field,
    pub(super) entry: Option<String>,
    pub(super) reason: String,
}

/// Sets the limits that are in the resources; others stay.
///
/// # Errors
/// The field that cannot be set, and why.
pub(super) fn limits(
    wanted: &LinuxResources,
    enforces_limits: bool,
    limits: &mut Limits,
) -> Result<(), Unsupported> {
    let second = cgroup::is_second_version(Path::new(cgroup::ROOT));
    set_limits(wanted, enforces_limits, second, limits)
}

fn set_limits(
    wanted: &LinuxResources,
    enforces_limits: bool,
    second: bool,
    limits: &mut Limits,
) -> Result<(), Unsupported> {
    let refuse = |field, entry: Option<&str>, reason: &str| Unsupported {
        field,
        entry: entry.map(str::to_owned),
        reason: reason.to_owned(),
    };
    let mut fields = Vec::new();
    let memory = wanted.memory.unwrap_or_default();
    let cpu = wanted.cpu.clone().unwrap_or_default();
    let not_here = [
        (Field::MemReservation, memory.reservation.is_some()),
        (Field::MemSwapLimit, memory.swap.is_some()),
        (Field::MemKernelLimit, memory.kernel.is_some()),
        (Field::MemTcpLimit, memory.kernel_tcp.is_some()),
        (Field::MemSwappiness, memory.swappiness.is_some()),
        (
            Field::MemDisableOomKiller,
            memory.disable_oom_killer.is_some(),
        ),
        (Field::MemUseHierarchy, memory.use_hierarchy.is_some()),
        (Field::CpuRealtimeRuntime, cpu.realtime_runtime.is_some()),
        (Field::CpuRealtimePeriod, cpu.realtime_period.is_some()),
        (Field::BlockioClass, wanted.blockio_class.is_some()),
        (Field::RdtClass, wanted.rdt_class.is_some()),
    ];
    if let Some((field, _)) = not_here.into_iter().find(|(_, is_set)| *is_set) {
        return Err(refuse(field, None, "it is not supported on this node"));
    }
    if let Some(shares) = &cpu.shares {
        fields.push(Field::CpuShares);
        limits.cpu_shares = Some(shares.value);
    }
    if let Some(quota) = &cpu.quota {
        fields.push(Field::CpuQuota);
        limits.cpu_quota = Some(quota.value);
    }
    if let Some(period) = &cpu.period {
        fields.push(Field::CpuPeriod);
        limits.cpu_period = Some(period.value);
    }
    for (field, list, limit) in [
        (Field::CpuSetCpUs, &cpu.cpus, &mut limits.cpus),
        (Field::CpuSetMems, &cpu.mems, &mut limits.mems),
    ] {
        if list.is_empty() {
            continue;
        }
        if !list
            .bytes()
            .all(|it| it.is_ascii_digit() || b",-".contains(&it))
        {
            return Err(refuse(field, None, "not a list of numbers"));
        }
        fields.push(field);
        *limit = Some(list.clone());
    }
    if let Some(limit) = &memory.limit {
        fields.push(Field::MemLimit);
        // As upstream, zero is none.
        limits.memory = Some(limit.value).filter(|it| *it != 0).or(limits.memory);
    }
    if let Some(LinuxPids { limit }) = wanted.pids {
        if limit < 0 {
            let reason = "containers without a limit are not permitted";
            return Err(refuse(Field::PidsLimit, None, reason));
        }
        fields.push(Field::PidsLimit);
        limits.pids = Some(limit);
    }
    for HugepageLimit { page_size, limit } in &wanted.hugepage_limits {
        let plain = |it: u8| it.is_ascii_alphanumeric();
        if page_size.is_empty() || !page_size.bytes().all(plain) || i64::try_from(*limit).is_err() {
            return Err(refuse(
                Field::HugepageLimits,
                Some(page_size),
                "not a size of pages",
            ));
        }
        fields.push(Field::HugepageLimits);
        limits.huge_pages.insert(page_size.clone(), *limit);
    }
    for (name, value) in &wanted.unified {
        let entry = Some(name.as_str());
        if !second {
            let reason = "this node has the first version of cgroups";
            return Err(refuse(Field::CgroupsUnified, entry, reason));
        }
        // Names of files of controllers. Those of the cgroup itself would move processes.
        let plain = |it: u8| it.is_ascii_alphanumeric() || b"._".contains(&it);
        let named = name.split_once('.').is_some_and(|(controller, file)| {
            !controller.is_empty() && !file.is_empty() && controller != "cgroup"
        });
        if !named || !name.bytes().all(plain) {
            let reason = "not a file of a controller";
            return Err(refuse(Field::CgroupsUnified, entry, reason));
        }
        fields.push(Field::CgroupsUnified);
        limits.unified.insert(name.clone(), value.clone());
    }
    match fields.first().filter(|_| !enforces_limits) {
        Some(field) => Err(refuse(
            *field,
            None,
            "cgroups cannot be written on this node",
        )),
        None => Ok(()),
    }
}

/// The limits of an update of a running container.
///
/// # Errors
/// The field that cannot be changed, and why.
pub(super) fn update(wanted: &LinuxResources, enforces_limits: bool) -> Result<Limits, String> {
    let mut changed = Limits::default();
    let set = limits(wanted, enforces_limits, &mut changed);
    set.map_err(|it| format!("{}: {}", called(it.field, it.entry.as_deref()), it.reason))?;
    let fixed = [
        (Field::HugepageLimits, !wanted.hugepage_limits.is_empty()),
        (Field::Devices, !wanted.devices.is_empty()),
    ];
    match fixed.into_iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => Err(format!(
            "{}: containers that run keep theirs",
            called(field, None)
        )),
        None => Ok(changed),
    }
}

/// A rule of the device controller, in the form of the OCI specification.
///
/// # Errors
/// It is none.
pub(super) fn device_rule(rule: &LinuxDeviceCgroup) -> Result<Value, String> {
    let kind = match rule.r#type.as_str() {
        "" => "a",
        kind @ ("a" | "b" | "c") => kind,
        kind => return Err(format!("unknown type {kind:?} of a device rule")),
    };
    if rule.access.is_empty() || !rule.access.bytes().all(|it| b"rwm".contains(&it)) {
        return Err(format!("unknown access {:?} of a device rule", rule.access));
    }
    let mut value = json!({"allow": rule.allow, "type": kind, "access": rule.access});
    for (name, number) in [("major", &rule.major), ("minor", &rule.minor)] {
        if let Some(number) = number {
            value[name] = json!(number.value);
        }
    }
    Ok(value)
}

/// The limits of a container in the form of the interface.
pub(super) fn described(limits: &Limits) -> LinuxResources {
    let signed = |value: Option<i64>| value.map(|value| OptionalInt64 { value });
    let unsigned = |value: Option<u64>| value.map(|value| OptionalUInt64 { value });
    let period = limits.cpu_period.or(limits.cpu_quota.map(|_| CPU_PERIOD));
    LinuxResources {
        cpu: Some(LinuxCpu {
            shares: unsigned(limits.cpu_shares),
            quota: signed(limits.cpu_quota),
            period: unsigned(period),
            cpus: limits.cpus.clone().unwrap_or_default(),
            mems: limits.mems.clone().unwrap_or_default(),
            ..LinuxCpu::default()
        }),
        memory: Some(LinuxMemory {
            limit: signed(limits.memory),
            ..LinuxMemory::default()
        }),
        pids: limits.pids.map(|limit| LinuxPids { limit }),
        hugepage_limits: limits
            .huge_pages
            .iter()
            .map(|(page_size, limit)| HugepageLimit {
                page_size: page_size.clone(),
                limit: *limit,
            })
            .collect(),
        unified: limits.unified.clone(),
        ..LinuxResources::default()
    }
}

/// The limits of a pod as a whole.
pub(super) fn of_pod(limits: PodLimits) -> LinuxResources {
    described(&Limits {
        cpu_shares: limits.cpu_shares,
        cpu_quota: limits.cpu_quota,
        memory: limits.memory,
        pids: limits.pids,
        ..Limits::default()
    })
}

#[cfg(test)]
mod tests {
    use allot_protos::nri::{OptionalString, OptionalUInt64};

    use super::*;

    fn cpu(cpu: LinuxCpu) -> LinuxResources {
        LinuxResources {
            cpu: Some(cpu),
            ..LinuxResources::default()
        }
    }

    #[test]
    fn resources_become_limits_and_back() {
        let wanted = LinuxResources {
            memory: Some(LinuxMemory {
                limit: Some(OptionalInt64 { value: 1 << 20 }),
                ..LinuxMemory::default()
            }),
            cpu: Some(LinuxCpu {
                shares: Some(OptionalUInt64 { value: 512 }),
                quota: Some(OptionalInt64 { value: 5000 }),
                period: Some(OptionalUInt64 { value: 10_000 }),
                cpus: "0-1,3".to_owned(),
                mems: "0".to_owned(),
                ..LinuxCpu::default()
            }),
            pids: Some(LinuxPids { limit: 7 }),
            hugepage_limits: vec![HugepageLimit {
                page_size: "2MB".to_owned(),
                limit: 4096,
            }],
            unified: [("memory.high".to_owned(), "9".to_owned())].into(),
            ..LinuxResources::default()
        };
        let mut limits = Limits::default();
        set_limits(&wanted, true, true, &mut limits).expect("set");
        assert_eq!(limits.cpus.as_deref(), Some("0-1,3"));
        assert_eq!(limits.cpu_period, Some(10_000));
        assert_eq!(described(&limits), wanted);
    }

    /// A period of 100 ms was taken for none, and that of a plugin's earlier update stayed in force.
    #[test]
    fn regression_the_default_period_can_be_set_again() {
        let period = Some(OptionalUInt64 { value: CPU_PERIOD });
        let wanted = cpu(LinuxCpu {
            period,
            ..LinuxCpu::default()
        });
        let changed = update(&wanted, true).expect("set");
        assert_eq!(changed.cpu_period, Some(CPU_PERIOD));
    }

    #[test]
    fn what_is_not_in_force_is_refused_by_its_name() {
        let check = |wanted: LinuxResources, enforced: bool, second: bool, field: Field| {
            let mut limits = Limits::default();
            let refused = set_limits(&wanted, enforced, second, &mut limits);
            assert_eq!(refused.expect_err("refused").field, field);
        };
        let unified = |name: &str| LinuxResources {
            unified: [(name.to_owned(), "1".to_owned())].into(),
            ..LinuxResources::default()
        };
        check(unified("memory.high"), true, false, Field::CgroupsUnified);
        for name in [
            "cgroup.procs",
            "../memory.max",
            "memory/high.x",
            "memory",
            ".x",
            "",
        ] {
            check(unified(name), true, true, Field::CgroupsUnified);
        }
        let cpus = |text: &str| {
            cpu(LinuxCpu {
                cpus: text.to_owned(),
                ..LinuxCpu::default()
            })
        };
        check(cpus("0\n1"), true, true, Field::CpuSetCpUs);
        check(cpus("0"), false, true, Field::CpuSetCpUs);
        let class = LinuxResources {
            rdt_class: Some(OptionalString::default()),
            ..LinuxResources::default()
        };
        check(class, true, true, Field::RdtClass);
        let pids = LinuxResources {
            pids: Some(LinuxPids { limit: -1 }),
            ..LinuxResources::default()
        };
        check(pids, true, true, Field::PidsLimit);
        let memory = LinuxResources {
            memory: Some(LinuxMemory {
                swap: Some(OptionalInt64 { value: 1 }),
                ..LinuxMemory::default()
            }),
            ..LinuxResources::default()
        };
        check(memory, true, true, Field::MemSwapLimit);
    }

    #[test]
    fn running_containers_keep_their_pages() {
        let pages = LinuxResources {
            hugepage_limits: vec![HugepageLimit {
                page_size: "2MB".to_owned(),
                limit: 0,
            }],
            ..LinuxResources::default()
        };
        assert!(update(&pages, true).is_err());
        let limits = update(
            &cpu(LinuxCpu {
                cpus: "1".into(),
                ..LinuxCpu::default()
            }),
            true,
        );
        assert_eq!(limits.expect("limits").cpus.as_deref(), Some("1"));
    }
}
