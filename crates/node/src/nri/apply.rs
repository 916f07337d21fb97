//! Requested adjustments become part of the description of a container, from which its OCI specification is made. What this
//! runtime cannot do is refused with the name of the plugin and the field: a plugin would take it for done.

use std::path::{Path, PathBuf};

use allot_cdi::{DeviceNode, Hook};
use allot_protos::nri::{self, Field, Hooks, LinuxDevice, MpolMode};
use serde_json::{Value, json};

use super::merge::Adjustments;
use super::owners::{called, removed};
use super::resources::{self, Unsupported};
use crate::config::Config;
use crate::hooks;
use crate::oci;
use crate::spec::{ContainerSpec, Mount, Seccomp};

mod linux;
#[cfg(test)]
mod tests;

/// A request that this runtime cannot carry out.
#[derive(Debug, thiserror::Error)]
#[error("NRI plugin {plugin:?} requires {what}: {reason}")]
pub(super) struct Refused {
    pub(super) plugin: String,
    pub(super) what: String,
    pub(super) reason: String,
}

/// Why something cannot be done.
type Reason = String;

/// Mount points that every container has, and device nodes.
const SYSTEM: [&str; 14] = [
    "/dev",
    "/dev/full",
    "/dev/mqueue",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/shm",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
    "/proc",
    "/sys",
    "/sys/fs/cgroup",
];

/// Carries out what plugins have requested. CDI devices have to be there already.
///
/// # Errors
/// The first request that cannot be carried out.
pub(super) fn apply(
    wanted: &Adjustments,
    config: &Config,
    enforces_limits: bool,
    spec: &mut ContainerSpec,
) -> Result<(), Refused> {
    let id = spec.id.clone();
    let refused = |field: Field, entry: Option<&str>, reason: Reason| Refused {
        plugin: wanted.owners.name(&id, field, entry).to_owned(),
        what: called(field, entry),
        reason,
    };
    let all = &wanted.all;
    for (name, value) in &all.annotations {
        match removed(name) {
            Some(name) => spec.adjusted.annotations.remove(name),
            None => spec
                .adjusted
                .annotations
                .insert(name.clone(), value.clone()),
        };
    }
    for variable in &all.env {
        set_variable(&mut spec.env, variable)
            .map_err(|reason| refused(Field::Env, Some(bare(&variable.key)), reason))?;
    }
    if !all.args.is_empty() {
        spec.args.clone_from(&all.args);
    }
    if let Some(hooks) = &all.hooks {
        let hooks = own_hooks(hooks, config);
        let hooks = hooks.map_err(|reason| refused(Field::OciHooks, None, reason))?;
        spec.hooks.extend(hooks);
    }
    let linux = all.linux.clone().unwrap_or_default();
    for device in &linux.devices {
        set_device(spec, device)
            .map_err(|reason| refused(Field::Devices, Some(bare(&device.path)), reason))?;
    }
    if let Some(wanted) = &linux.resources {
        let set = resources::limits(wanted, enforces_limits, &mut spec.limits);
        set.map_err(
            |Unsupported {
                 field,
                 entry,
                 reason,
             }| refused(field, entry.as_deref(), reason),
        )?;
        for rule in &wanted.devices {
            let rule = resources::device_rule(rule);
            // No field has the owner of such a rule.
            let rule = rule.map_err(|reason| refused(Field::Devices, None, reason))?;
            spec.adjusted.device_rules.push(rule);
        }
    }
    linux::apply(&linux, spec, &refused)?;
    for limit in &all.rlimits {
        let entry = Some(limit.r#type.as_str());
        let value = json!({"type": limit.r#type, "soft": limit.soft, "hard": limit.hard});
        let known = checked::<oci_spec::runtime::PosixRlimit>(value);
        let known = known.map_err(|reason| refused(Field::Rlimits, entry, reason))?;
        let limits = &mut spec.adjusted.rlimits;
        limits.retain(|it| it["type"] != known["type"]);
        limits.push(known);
    }
    for mount in &all.mounts {
        set_mount(spec, mount, config)
            .map_err(|reason| refused(Field::Mounts, Some(bare(&mount.destination)), reason))?;
    }
    if !all.mounts.is_empty() {
        // As upstream: one that is below another is mounted after it.
        let parts = |mount: &Mount| mount.target.components().count();
        spec.mounts.sort_by_key(parts);
    }
    Ok(())
}

fn bare(name: &str) -> &str {
    removed(name).unwrap_or(name)
}

/// A value in the form of the OCI specification, if it is one of this type.
fn checked<T: serde::de::DeserializeOwned>(value: Value) -> Result<Value, Reason> {
    let known: Result<T, _> = serde_json::from_value(value.clone());
    known.map(|_| value).map_err(|error| error.to_string())
}

fn set_variable(env: &mut Vec<String>, wanted: &nri::KeyValue) -> Result<(), Reason> {
    let name = bare(&wanted.key);
    if name.is_empty() || name.contains(['=', '\0']) || wanted.value.contains('\0') {
        return Err("not a variable".to_owned());
    }
    let is_it = |text: &String| {
        text.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('='))
    };
    if removed(&wanted.key).is_some() {
        env.retain(|text| !is_it(text));
        return Ok(());
    }
    let text = format!("{name}={}", wanted.value);
    match env.iter_mut().find(|text| is_it(text)) {
        Some(known) => *known = text,
        None => env.push(text),
    }
    Ok(())
}

fn own_hooks(hooks: &Hooks, config: &Config) -> Result<Vec<Hook>, Reason> {
    let points = [
        ("prestart", &hooks.prestart),
        ("createRuntime", &hooks.create_runtime),
        ("createContainer", &hooks.create_container),
        ("startContainer", &hooks.start_container),
        ("poststart", &hooks.poststart),
        ("poststop", &hooks.poststop),
    ];
    let all = points
        .into_iter()
        .flat_map(|(point, hooks)| hooks.iter().map(move |it| (point, it)));
    all.map(|(point, hook)| {
        if !Path::new(&hook.path).is_absolute() {
            return Err(format!("{point}: {:?} is not an absolute path", hook.path));
        }
        let hook = Hook {
            hook_name: point.to_owned(),
            path: hook.path.clone(),
            args: hook.args.clone(),
            env: hook.env.clone(),
            timeout: hook.timeout.as_ref().map(|timeout| timeout.value),
        };
        Ok(hooks::own(config, hook))
    })
    .collect()
}

fn set_device(spec: &mut ContainerSpec, wanted: &LinuxDevice) -> Result<(), Reason> {
    let path = bare(&wanted.path);
    if !Path::new(path).is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    if SYSTEM.contains(&path) {
        return Err("every container has it".to_owned());
    }
    spec.devices.retain(|device| device.path != path);
    if removed(&wanted.path).is_some() {
        return Ok(());
    }
    if !matches!(wanted.r#type.as_str(), "b" | "c" | "u") {
        return Err(format!(
            "devices of the type {:?} are not supported",
            wanted.r#type
        ));
    }
    let mode = wanted.file_mode.as_ref().map(|mode| mode.value & 0o7777);
    spec.devices.push(DeviceNode {
        path: path.to_owned(),
        kind: Some(wanted.r#type.clone()),
        major: Some(wanted.major),
        minor: Some(wanted.minor),
        file_mode: mode,
        // As upstream, which adds no right to create nodes of character devices.
        permissions: Some(if wanted.r#type == "b" { "rwm" } else { "rw" }.to_owned()),
        uid: wanted.uid.as_ref().map(|it| it.value),
        gid: wanted.gid.as_ref().map(|it| it.value),
        ..DeviceNode::default()
    });
    Ok(())
}

/// Options of mounts that are passed on.
const OPTIONS: [&str; 24] = [
    "async",
    "atime",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "ratime",
    "rnoatime",
    "rnodev",
    "rnoexec",
    "rnosuid",
    "relatime",
    "rrelatime",
    "strictatime",
    "suid",
    "sync",
    "rdev",
];

fn set_mount(spec: &mut ContainerSpec, wanted: &nri::Mount, config: &Config) -> Result<(), Reason> {
    let plain = |path: &Path| -> PathBuf { Path::new("/").join(path).components().collect() };
    let target = plain(Path::new(bare(&wanted.destination)));
    if target == Path::new("/") || oci::leads_up(&target) {
        return Err("nothing can be mounted there".to_owned());
    }
    let before = spec.mounts.len();
    spec.mounts.retain(|mount| plain(&mount.target) != target);
    if removed(&wanted.destination).is_some() {
        let system = SYSTEM.iter().any(|it| target == Path::new(it));
        return match system && before == spec.mounts.len() {
            true => Err("it cannot be removed".to_owned()),
            false => Ok(()),
        };
    }
    if !matches!(wanted.r#type.as_str(), "" | "bind" | "none") {
        return Err(format!(
            "file systems of the type {:?} are not supported",
            wanted.r#type
        ));
    }
    if !Path::new(&wanted.source).is_absolute() {
        return Err(format!(
            "the source {:?} is not an absolute path",
            wanted.source
        ));
    }
    let mut mount = Mount {
        source: config.own_path(Path::new(&wanted.source)),
        target,
        shallow: true,
        ..Mount::default()
    };
    for option in &wanted.options {
        match option.as_str() {
            "bind" | "rbind" | "rw" | "private" | "rprivate" => {}
            "ro" => mount.read_only = true,
            "rro" => (mount.read_only, mount.shallow) = (true, false),
            "slave" | "rslave" => mount.follow = true,
            known if OPTIONS.contains(&known) => mount.options.push(option.clone()),
            _ => return Err(format!("the option {option:?} is not supported")),
        }
    }
    spec.mounts.push(mount);
    Ok(())
}

/// A seccomp policy as text, in the form that profiles have.
fn seccomp(policy: &nri::LinuxSeccomp) -> Result<Seccomp, Reason> {
    if !policy.flags.is_empty() || !policy.listener_path.is_empty() {
        return Err("flags and listeners are not supported".to_owned());
    }
    let calls = policy.syscalls.iter().map(|call| {
        let args = call.args.iter().map(|argument| {
            json!({"index": argument.index, "value": argument.value,
                "valueTwo": argument.value_two, "op": argument.op})
        });
        let args: Vec<Value> = args.collect();
        let mut value = json!({"names": call.names, "action": call.action, "args": args});
        if let Some(errno) = &call.errno_ret {
            value["errnoRet"] = json!(errno.value);
        }
        value
    });
    let mut profile = json!({
        "defaultAction": policy.default_action,
        "syscalls": calls.collect::<Vec<Value>>(),
    });
    if let Some(errno) = &policy.default_errno {
        profile["defaultErrnoRet"] = json!(errno.value);
    }
    Ok(Seccomp::Profile(profile.to_string()))
}

/// Whether a memory policy is the kernel's own.
fn is_default(policy: &nri::LinuxMemoryPolicy) -> bool {
    policy.mode == MpolMode::MpolDefault as i32
}
