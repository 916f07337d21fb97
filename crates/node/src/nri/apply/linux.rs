//! The parts of an adjustment that are about Linux alone.

use allot_cdi::{IntelRdt, NetDevice};
use allot_protos::nri::{
    Field, IoPrioClass, LinuxContainerAdjustment, LinuxIoPriority, LinuxMemoryPolicy,
    LinuxNamespace, LinuxRdt, LinuxScheduler, LinuxSchedulerFlag, LinuxSchedulerPolicy, MpolFlag,
    MpolMode,
};
use oci_spec::runtime;
use serde_json::{Value, json};

use super::{Reason, Refused, bare, checked, is_default, seccomp};
use crate::nri::owners::removed;
use crate::spec::{ContainerSpec, Isolation};
use crate::{interfaces, oci, rdt};

/// The range of the kernel.
const SCORES: std::ops::RangeInclusive<i64> = -1000..=1000;

pub(super) fn apply(
    wanted: &LinuxContainerAdjustment,
    spec: &mut ContainerSpec,
    refused: &dyn Fn(Field, Option<&str>, Reason) -> Refused,
) -> Result<(), Refused> {
    let not_here = |field, reason: &str| Err(refused(field, None, reason.to_owned()));
    if !wanted.cgroups_path.is_empty() {
        return not_here(
            Field::CgroupsPath,
            "the node agent decides about the cgroups of containers",
        );
    }
    if let Some(score) = &wanted.oom_score_adj {
        let known = i32::try_from(score.value).ok();
        let known = known.filter(|_| SCORES.contains(&score.value));
        let known = known.ok_or_else(|| {
            let reason = format!("{} is not from -1000 to 1000", score.value);
            refused(Field::OomScoreAdj, None, reason)
        });
        spec.limits.oom_score_adj = Some(known?);
    }
    let process = &mut spec.adjusted.process;
    if let Some(priority) = &wanted.io_priority {
        let value = io_priority(priority);
        let value = value.map_err(|reason| refused(Field::IoPriority, None, reason))?;
        set(process, "ioPriority", value);
    }
    if let Some(wanted) = &wanted.scheduler {
        let value = scheduler(wanted);
        let value = value.map_err(|reason| refused(Field::LinuxSched, None, reason))?;
        set(process, "scheduler", value);
    }
    if let Some(policy) = &wanted.memory_policy {
        let value = memory_policy(policy);
        let value = value.map_err(|reason| refused(Field::MemoryPolicy, None, reason))?;
        set(&mut spec.adjusted.linux, "memoryPolicy", value);
    }
    if let Some(policy) = &wanted.seccomp_policy {
        let reason = |reason| refused(Field::SeccompPolicy, None, reason);
        spec.security.seccomp = seccomp(policy).map_err(reason)?;
        // The shim does it again; here a fault is that of the plugin.
        oci::seccomp::compile(&spec.security).map_err(reason)?;
    }
    for namespace in &wanted.namespaces {
        let entry = Some(bare(&namespace.r#type));
        set_namespace(namespace, spec)
            .map_err(|reason| refused(Field::Namespace, entry, reason))?;
    }
    for (name, value) in &wanted.sysctl {
        match removed(name) {
            Some(name) => spec.security.sysctls.remove(name),
            None => spec.security.sysctls.insert(name.clone(), value.clone()),
        };
    }
    net_devices(wanted, spec, refused)?;
    if let Some(wanted) = &wanted.rdt {
        let set = intel_rdt(wanted, spec, rdt::check);
        set.map_err(|(field, reason)| refused(field, None, reason.to_string()))?;
    }
    Ok(())
}

/// Cache and memory bandwidth (Intel RDT) of a container, by a check of whether this machine can apply them. What plugins leave out
/// is as the devices of the container demand; without a closID the container has a group of its own.
pub(super) fn intel_rdt(
    wanted: &LinuxRdt,
    spec: &mut ContainerSpec,
    check: impl Fn(&IntelRdt, Isolation) -> Result<(), rdt::Unavailable>,
) -> Result<(), (Field, rdt::Unavailable)> {
    if wanted.remove {
        spec.intel_rdt = None;
    }
    let fields = [
        (Field::RdtClosId, wanted.clos_id.is_some()),
        (Field::RdtSchemata, wanted.schemata.is_some()),
        (
            Field::RdtEnableMonitoring,
            wanted.enable_monitoring.is_some(),
        ),
    ];
    let Some((field, _)) = fields.into_iter().find(|(_, is_set)| *is_set) else {
        return Ok(());
    };
    let settings = spec.intel_rdt.get_or_insert_default();
    if let Some(id) = &wanted.clos_id {
        settings.clos_id = Some(id.value.clone());
    }
    if let Some(schemata) = &wanted.schemata {
        settings.schemata.clone_from(&schemata.value);
    }
    if let Some(monitoring) = &wanted.enable_monitoring {
        settings.enable_monitoring = Some(monitoring.value);
    }
    // Plugins are only where containers have this isolation. The runtime enters it when the container is started, which is later.
    check(settings, Isolation::Namespaces).map_err(|reason| (field, reason))
}

/// The interfaces of the node that a container gets, by their names there.
fn net_devices(
    wanted: &LinuxContainerAdjustment,
    spec: &mut ContainerSpec,
    refused: &dyn Fn(Field, Option<&str>, Reason) -> Refused,
) -> Result<(), Refused> {
    for (entry, device) in &wanted.net_devices {
        let host = bare(entry);
        spec.net_devices.retain(|it| it.host_interface_name != host);
        if removed(entry).is_some() {
            continue;
        }
        let reason = |reason| refused(Field::LinuxNetDevices, Some(host), reason);
        if spec.network.is_none() {
            return Err(reason(
                "the pod has no network namespace of its own".to_owned(),
            ));
        }
        let name = Some(device.name.as_str()).filter(|name| !name.is_empty());
        spec.net_devices.push(NetDevice {
            host_interface_name: host.to_owned(),
            name: name.unwrap_or(host).to_owned(),
        });
        let checked = interfaces::check(&spec.net_devices);
        checked.map_err(|error| reason(error.to_string()))?;
    }
    Ok(())
}

/// Sets a member, or removes it.
fn set(members: &mut serde_json::Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
}

fn unknown(what: &str, value: i32) -> Reason {
    format!("unknown {what} {value}")
}

fn io_priority(wanted: &LinuxIoPriority) -> Result<Option<Value>, Reason> {
    let class = IoPrioClass::try_from(wanted.class).map_err(|_| unknown("class", wanted.class))?;
    if class == IoPrioClass::IoprioClassNone {
        return Ok(None);
    }
    if !(0..=7).contains(&wanted.priority) {
        return Err(format!("{} is not from 0 to 7", wanted.priority));
    }
    let value = json!({"class": class.as_str_name(), "priority": wanted.priority});
    checked::<runtime::LinuxIOPriority>(value).map(Some)
}

fn scheduler(wanted: &LinuxScheduler) -> Result<Option<Value>, Reason> {
    let policy = LinuxSchedulerPolicy::try_from(wanted.policy);
    let policy = policy.map_err(|_| unknown("policy", wanted.policy))?;
    if policy == LinuxSchedulerPolicy::SchedNone {
        return Ok(None);
    }
    let flags = wanted.flags.iter().map(|flag| {
        let known = LinuxSchedulerFlag::try_from(*flag);
        // The names of the library that carries it out.
        Ok(match known.map_err(|_| unknown("flag", *flag))? {
            LinuxSchedulerFlag::SchedFlagResetOnFork => "SCHED_RESET_ON_FORK",
            LinuxSchedulerFlag::SchedFlagDlOverrun => "SCHED_FLAG_D_L_OVERRUN",
            known => known.as_str_name(),
        })
    });
    let flags: Vec<&str> = flags.collect::<Result<_, Reason>>()?;
    let value = json!({
        "policy": policy.as_str_name(),
        "nice": wanted.nice,
        "priority": wanted.priority,
        "flags": flags,
        "runtime": wanted.runtime,
        "deadline": wanted.deadline,
        "period": wanted.period,
    });
    checked::<runtime::Scheduler>(value).map(Some)
}

fn memory_policy(wanted: &LinuxMemoryPolicy) -> Result<Option<Value>, Reason> {
    if is_default(wanted) && wanted.flags.is_empty() && wanted.nodes.is_empty() {
        return Ok(None);
    }
    let mode = MpolMode::try_from(wanted.mode).map_err(|_| unknown("mode", wanted.mode))?;
    let flags = wanted.flags.iter().map(|flag| {
        let known = MpolFlag::try_from(*flag).map_err(|_| unknown("flag", *flag))?;
        Ok(known.as_str_name())
    });
    let flags: Vec<&str> = flags.collect::<Result<_, Reason>>()?;
    let mut value = json!({"mode": mode.as_str_name(), "flags": flags});
    if !wanted.nodes.is_empty() {
        value["nodes"] = json!(wanted.nodes);
    }
    checked::<runtime::LinuxMemoryPolicy>(value).map(Some)
}

/// The network namespace can be another one, or the node's. The others are those of the container.
fn set_namespace(wanted: &LinuxNamespace, spec: &mut ContainerSpec) -> Result<(), Reason> {
    let gone = removed(&wanted.r#type).is_some();
    match (bare(&wanted.r#type), gone) {
        ("network", true) => spec.network = None,
        ("network", false) if std::path::Path::new(&wanted.path).is_absolute() => {
            spec.network = Some(wanted.path.clone().into());
        }
        ("network", false) => return Err("it has no path".to_owned()),
        _ => return Err("only the network namespace can be another one".to_owned()),
    }
    Ok(())
}
