//! What several plugins request for one container, put together. Each plugin sees what those before it have requested.

use allot_protos::nri::{
    Container, ContainerAdjustment, ContainerUpdate, Field, Hooks, KeyValue, LinuxContainer,
    LinuxContainerAdjustment, LinuxDevice, LinuxRdt, LinuxResources, Mount,
};

use super::owners::{Conflict, Owners, mark, removed};

mod resources;

pub(super) use resources::Updates;

/// What a plugin requests at once at most: each entry is a step of the start, and is compared with others.
const MOST: usize = 4096;

/// Why what a plugin requests is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddError {
    /// Two plugins want to set the same.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// More than a container has.
    #[error("plugin {0:?} requests {1} entries, more than {MOST}")]
    TooMany(String, usize),
    /// The container does not exist yet.
    #[error("plugin {0:?} asked update of {1:?} during creation")]
    Created(String, String),
}

/// Refuses more entries than are possible.
fn check_count(count: usize, plugin: &str) -> Result<(), AddError> {
    match count > MOST {
        true => Err(AddError::TooMany(plugin.to_owned(), count)),
        false => Ok(()),
    }
}

/// The entries of all lists of an adjustment.
fn entries(wanted: &ContainerAdjustment) -> usize {
    let own = [
        wanted.annotations.len(),
        wanted.mounts.len(),
        wanted.env.len(),
        wanted.args.len(),
        wanted.rlimits.len(),
        wanted.cdi_devices.len(),
    ];
    let hooks = wanted.hooks.as_ref().map_or(0, |hooks| {
        hooks.prestart.len()
            + hooks.create_runtime.len()
            + hooks.create_container.len()
            + hooks.start_container.len()
            + hooks.poststart.len()
            + hooks.poststop.len()
    });
    let linux = wanted.linux.as_ref().map_or(0, |linux| {
        let resources = linux.resources.as_ref().map_or(0, resources::entries);
        linux.devices.len()
            + linux.namespaces.len()
            + linux.sysctl.len()
            + linux.net_devices.len()
            + resources
    });
    own.iter().sum::<usize>() + hooks + linux
}

/// What plugins request for a container that is being created.
#[derive(Debug, Default)]
pub(crate) struct Adjustments {
    /// Everything that was requested so far.
    pub(super) all: ContainerAdjustment,
    /// Which plugin requested it.
    pub(super) owners: Owners,
}

/// An entry of a list that plugins change by its name.
trait Entry: Clone {
    const FIELD: Field;
    /// The name, with a mark if the entry is to be removed.
    fn name(&self) -> &str;
}

impl Entry for Mount {
    const FIELD: Field = Field::Mounts;
    fn name(&self) -> &str {
        &self.destination
    }
}

impl Entry for LinuxDevice {
    const FIELD: Field = Field::Devices;
    fn name(&self) -> &str {
        &self.path
    }
}

impl Entry for KeyValue {
    const FIELD: Field = Field::Env;
    fn name(&self) -> &str {
        &self.key
    }
}

/// The linux part of an adjustment.
fn linux(all: &mut ContainerAdjustment) -> &mut LinuxContainerAdjustment {
    all.linux.get_or_insert_default()
}

impl Adjustments {
    /// The names of the CDI devices.
    pub(crate) fn cdi_devices(&self) -> Vec<String> {
        let devices = self.all.cdi_devices.iter();
        devices.map(|device| device.name.clone()).collect()
    }

    /// Adds what a plugin requests, here and to what the next plugin sees.
    ///
    /// # Errors
    /// An earlier plugin has requested something else, or it is too much.
    pub(super) fn add(
        &mut self,
        container: &mut Container,
        wanted: ContainerAdjustment,
        plugin: &str,
    ) -> Result<(), AddError> {
        check_count(entries(&wanted), plugin)?;
        let id = container.id.clone();
        let seen = container.linux.get_or_insert_default();
        let owners = &mut self.owners;
        let scope = Scope { id: &id, plugin };
        let all = &mut self.all;
        scope.map(
            owners,
            Field::Annotations,
            wanted.annotations,
            &mut all.annotations,
            &mut container.annotations,
        )?;
        scope.list(
            owners,
            wanted.mounts,
            &mut all.mounts,
            &mut container.mounts,
        )?;
        let mut variables = container
            .env
            .iter()
            .map(String::as_str)
            .map(variable)
            .collect();
        scope.list(owners, wanted.env, &mut all.env, &mut variables)?;
        let text = |it: KeyValue| format!("{}={}", it.key, it.value);
        container.env = variables.into_iter().map(text).collect();
        if let Some((first, rest)) = wanted.args.split_first() {
            let args = match first.is_empty() {
                true => {
                    owners.clear(&id, Field::Args, None, plugin);
                    rest.to_vec()
                }
                false => wanted.args,
            };
            owners.claim(&id, Field::Args, None, plugin)?;
            all.args.clone_from(&args);
            container.args = args;
        }
        if let Some(hooks) = wanted.hooks {
            owners.join(&id, Field::OciHooks, plugin);
            add_hooks(container.hooks.get_or_insert_default(), hooks.clone());
            add_hooks(all.hooks.get_or_insert_default(), hooks);
        }
        for limit in wanted.rlimits {
            owners.claim(&id, Field::Rlimits, Some(&limit.r#type), plugin)?;
            container.rlimits.push(limit.clone());
            all.rlimits.push(limit);
        }
        for device in wanted.cdi_devices {
            owners.claim(&id, Field::CdiDevices, Some(&device.name), plugin)?;
            all.cdi_devices.push(device);
        }
        match wanted.linux {
            Some(wanted) => Ok(scope.linux(owners, wanted, linux(all), seen)?),
            None => Ok(()),
        }
    }
}

/// A variable of a container.
fn variable(text: &str) -> KeyValue {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    KeyValue {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn add_hooks(all: &mut Hooks, hooks: Hooks) {
    all.prestart.extend(hooks.prestart);
    all.create_runtime.extend(hooks.create_runtime);
    all.create_container.extend(hooks.create_container);
    all.start_container.extend(hooks.start_container);
    all.poststart.extend(hooks.poststart);
    all.poststop.extend(hooks.poststop);
}

/// The container and plugin that a request is of.
#[derive(Clone, Copy)]
struct Scope<'a> {
    id: &'a str,
    plugin: &'a str,
}

impl Scope<'_> {
    /// Names with values, of which some may be marked for removal.
    fn map<V: Clone + Default>(
        self,
        owners: &mut Owners,
        field: Field,
        wanted: impl IntoIterator<Item = (String, V)>,
        all: &mut std::collections::BTreeMap<String, V>,
        seen: &mut std::collections::BTreeMap<String, V>,
    ) -> Result<(), Conflict> {
        let (gone, new): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|(name, _)| removed(name).is_some());
        for (name, _) in gone {
            let bare = removed(&name).unwrap_or_default();
            owners.clear(self.id, field, Some(bare), self.plugin);
            all.remove(bare);
            seen.remove(bare);
            all.insert(name, V::default());
        }
        for (name, value) in new {
            owners.claim(self.id, field, Some(&name), self.plugin)?;
            // What replaces it needs no removal.
            all.remove(&mark(&name));
            all.insert(name.clone(), value.clone());
            seen.insert(name, value);
        }
        Ok(())
    }

    /// Entries by their names, of which some may be marked for removal.
    fn list<T: Entry>(
        self,
        owners: &mut Owners,
        wanted: Vec<T>,
        all: &mut Vec<T>,
        seen: &mut Vec<T>,
    ) -> Result<(), Conflict> {
        let (gone, new): (Vec<T>, Vec<T>) = wanted
            .into_iter()
            .partition(|it| removed(it.name()).is_some());
        for entry in gone {
            let bare = removed(entry.name()).unwrap_or_default();
            owners.clear(self.id, T::FIELD, Some(bare), self.plugin);
            all.retain(|it| it.name() != bare && it.name() != entry.name());
            seen.retain(|it| it.name() != bare);
            all.push(entry);
        }
        for entry in new {
            owners.claim(self.id, T::FIELD, Some(entry.name()), self.plugin)?;
            all.retain(|it| removed(it.name()) != Some(entry.name()));
            seen.retain(|it| it.name() != entry.name());
            seen.push(entry.clone());
            all.push(entry);
        }
        Ok(())
    }

    /// A field with one value, which the next plugin sees.
    fn set<T: Clone>(
        self,
        owners: &mut Owners,
        field: Field,
        wanted: Option<T>,
        all: &mut Option<T>,
        seen: &mut Option<T>,
    ) -> Result<(), Conflict> {
        self.field(owners, field, &wanted, all)?;
        if wanted.is_some() {
            *seen = wanted;
        }
        Ok(())
    }

    fn linux(
        self,
        owners: &mut Owners,
        wanted: LinuxContainerAdjustment,
        all: &mut LinuxContainerAdjustment,
        seen: &mut LinuxContainer,
    ) -> Result<(), Conflict> {
        self.list(owners, wanted.devices, &mut all.devices, &mut seen.devices)?;
        if let Some(wanted) = wanted.resources {
            let current = seen.resources.get_or_insert_default();
            self.resources(owners, &wanted, current)?;
            let all = all.resources.get_or_insert_default();
            // The owners are those of the line before.
            self.resources(&mut Owners::default(), &wanted, all)?;
        }
        if !wanted.cgroups_path.is_empty() {
            owners.claim(self.id, Field::CgroupsPath, None, self.plugin)?;
            seen.cgroups_path.clone_from(&wanted.cgroups_path);
            all.cgroups_path = wanted.cgroups_path;
        }
        let (score, priority) = (wanted.oom_score_adj, wanted.io_priority);
        let (policy, scheduler) = (wanted.seccomp_policy, wanted.scheduler);
        let field = Field::OomScoreAdj;
        self.set(
            owners,
            field,
            score,
            &mut all.oom_score_adj,
            &mut seen.oom_score_adj,
        )?;
        let field = Field::IoPriority;
        self.set(
            owners,
            field,
            priority,
            &mut all.io_priority,
            &mut seen.io_priority,
        )?;
        let field = Field::SeccompPolicy;
        self.set(
            owners,
            field,
            policy,
            &mut all.seccomp_policy,
            &mut seen.seccomp_policy,
        )?;
        let field = Field::LinuxSched;
        self.set(
            owners,
            field,
            scheduler,
            &mut all.scheduler,
            &mut seen.scheduler,
        )?;
        for namespace in wanted.namespaces {
            let kind = removed(&namespace.r#type).unwrap_or(&namespace.r#type);
            owners.claim(self.id, Field::Namespace, Some(kind), self.plugin)?;
            seen.namespaces.retain(|it| it.r#type != kind);
            if kind == namespace.r#type {
                seen.namespaces.push(namespace.clone());
            }
            all.namespaces.push(namespace);
        }
        let field = Field::Sysctl;
        self.map(
            owners,
            field,
            wanted.sysctl,
            &mut all.sysctl,
            &mut seen.sysctl,
        )?;
        let field = Field::LinuxNetDevices;
        let devices = wanted.net_devices;
        self.map(
            owners,
            field,
            devices,
            &mut all.net_devices,
            &mut seen.net_devices,
        )?;
        if let Some(rdt) = wanted.rdt {
            self.rdt(owners, rdt, all.rdt.get_or_insert_default())?;
        }
        // Upstream does not tell the next plugin.
        let field = Field::MemoryPolicy;
        self.field(owners, field, &wanted.memory_policy, &mut all.memory_policy)
    }

    fn rdt(
        self,
        owners: &mut Owners,
        wanted: LinuxRdt,
        all: &mut LinuxRdt,
    ) -> Result<(), Conflict> {
        const FIELDS: [Field; 3] = [
            Field::RdtClosId,
            Field::RdtSchemata,
            Field::RdtEnableMonitoring,
        ];
        if wanted.remove {
            for field in FIELDS {
                owners.clear(self.id, field, None, self.plugin);
            }
            *all = LinuxRdt {
                remove: true,
                ..LinuxRdt::default()
            };
        }
        let [id, schemata, monitoring] = FIELDS;
        self.field(owners, id, &wanted.clos_id, &mut all.clos_id)?;
        self.field(owners, schemata, &wanted.schemata, &mut all.schemata)?;
        let enabled = &mut all.enable_monitoring;
        self.field(owners, monitoring, &wanted.enable_monitoring, enabled)
    }
}

/// Adds resources to those that are known of a container.
pub(super) fn overlay(known: &mut LinuxResources, wanted: &LinuxResources) {
    let scope = Scope { id: "", plugin: "" };
    // Without other owners there is no conflict.
    let _ = scope.resources(&mut Owners::default(), wanted, known);
}

/// Resources of an update; empty ones if it has none.
pub(super) fn resources_of(update: &ContainerUpdate) -> LinuxResources {
    let linux = update.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.clone());
    resources.unwrap_or_default()
}

#[cfg(test)]
mod tests;
