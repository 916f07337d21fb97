//! Resources that plugins request: of the container that is created or changed, and of others.

use allot_protos::nri::{
    ContainerUpdate, Field, LinuxContainerUpdate, LinuxCpu, LinuxMemory, LinuxResources,
};

use super::super::owners::{Conflict, Owners};
use super::{AddError, Scope, check_count, resources_of};

/// What plugins request for running containers.
#[derive(Debug, Default)]
pub(in super::super) struct Updates {
    /// By container, in the order in which they were first requested.
    pub(in super::super) all: Vec<ContainerUpdate>,
    owners: Owners,
    /// A container that is being created, which cannot be updated.
    created: Option<String>,
}

/// The entries of all lists.
pub(super) fn entries(resources: &LinuxResources) -> usize {
    resources.hugepage_limits.len() + resources.devices.len() + resources.unified.len()
}

impl Updates {
    /// Updates of other containers, while this one is being created.
    pub(in super::super) fn during_creation(id: &str) -> Self {
        Self {
            created: Some(id.to_owned()),
            ..Self::default()
        }
    }

    /// Updates with those of a container that is being changed: plugins can change them.
    pub(in super::super) fn of(id: &str, resources: LinuxResources) -> Self {
        Self {
            all: vec![update(id, resources, false)],
            ..Self::default()
        }
    }

    /// Adds what a plugin requests.
    ///
    /// # Errors
    /// It contradicts another plugin, and does not permit that it fails.
    pub(in super::super) fn add(
        &mut self,
        wanted: &[ContainerUpdate],
        plugin: &str,
    ) -> Result<(), AddError> {
        let of_one = |it: &ContainerUpdate| entries(&resources_of(it)) + 1;
        check_count(wanted.iter().map(of_one).sum(), plugin)?;
        for wanted in wanted {
            let id = &wanted.container_id;
            if self.created.as_ref() == Some(id) {
                return Err(AddError::Created(plugin.to_owned(), id.clone()));
            }
            let known = self.all.iter().position(|it| it.container_id == *id);
            let mut merged = match known {
                Some(known) => resources_of(&self.all[known]),
                None => LinuxResources::default(),
            };
            let before = self.owners.0.owners.get(id).cloned();
            let scope = Scope { id, plugin };
            let owners = &mut self.owners;
            match scope.resources(owners, &resources_of(wanted), &mut merged) {
                Ok(()) => {}
                Err(_) if wanted.ignore_failure => {
                    // Nothing of it counts.
                    let all = &mut self.owners.0.owners;
                    all.insert(id.clone(), before.unwrap_or_default());
                    continue;
                }
                Err(conflict) => return Err(conflict.into()),
            }
            match known {
                Some(known) => {
                    let before = self.all[known].ignore_failure;
                    self.all[known] = update(id, merged, before && wanted.ignore_failure);
                }
                None => self.all.push(update(id, merged, wanted.ignore_failure)),
            }
        }
        Ok(())
    }
}

fn update(id: &str, resources: LinuxResources, ignore_failure: bool) -> ContainerUpdate {
    ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(LinuxContainerUpdate {
            resources: Some(resources),
        }),
        ignore_failure,
    }
}

impl Scope<'_> {
    /// Adds requested resources to those that there are.
    pub(super) fn resources(
        self,
        owners: &mut Owners,
        wanted: &LinuxResources,
        all: &mut LinuxResources,
    ) -> Result<(), Conflict> {
        if let Some(memory) = &wanted.memory {
            self.memory(owners, memory, all.memory.get_or_insert_default())?;
        }
        if let Some(cpu) = &wanted.cpu {
            self.cpu(owners, cpu, all.cpu.get_or_insert_default())?;
        }
        for limit in &wanted.hugepage_limits {
            owners.claim(
                self.id,
                Field::HugepageLimits,
                Some(&limit.page_size),
                self.plugin,
            )?;
            all.hugepage_limits
                .retain(|it| it.page_size != limit.page_size);
            all.hugepage_limits.push(limit.clone());
        }
        all.devices.extend(wanted.devices.iter().cloned());
        for (name, value) in &wanted.unified {
            owners.claim(self.id, Field::CgroupsUnified, Some(name), self.plugin)?;
            all.unified.insert(name.clone(), value.clone());
        }
        self.field(
            owners,
            Field::BlockioClass,
            &wanted.blockio_class,
            &mut all.blockio_class,
        )?;
        self.field(
            owners,
            Field::RdtClass,
            &wanted.rdt_class,
            &mut all.rdt_class,
        )?;
        self.field(owners, Field::PidsLimit, &wanted.pids, &mut all.pids)
    }

    /// A field with one value.
    pub(super) fn field<T: Clone>(
        self,
        owners: &mut Owners,
        field: Field,
        wanted: &Option<T>,
        all: &mut Option<T>,
    ) -> Result<(), Conflict> {
        if let Some(wanted) = wanted {
            owners.claim(self.id, field, None, self.plugin)?;
            *all = Some(wanted.clone());
        }
        Ok(())
    }

    fn memory(
        self,
        owners: &mut Owners,
        wanted: &LinuxMemory,
        all: &mut LinuxMemory,
    ) -> Result<(), Conflict> {
        self.field(owners, Field::MemLimit, &wanted.limit, &mut all.limit)?;
        self.field(
            owners,
            Field::MemReservation,
            &wanted.reservation,
            &mut all.reservation,
        )?;
        self.field(owners, Field::MemSwapLimit, &wanted.swap, &mut all.swap)?;
        self.field(
            owners,
            Field::MemKernelLimit,
            &wanted.kernel,
            &mut all.kernel,
        )?;
        self.field(
            owners,
            Field::MemTcpLimit,
            &wanted.kernel_tcp,
            &mut all.kernel_tcp,
        )?;
        self.field(
            owners,
            Field::MemSwappiness,
            &wanted.swappiness,
            &mut all.swappiness,
        )?;
        let (killer, hierarchy) = (&wanted.disable_oom_killer, &wanted.use_hierarchy);
        self.field(
            owners,
            Field::MemDisableOomKiller,
            killer,
            &mut all.disable_oom_killer,
        )?;
        self.field(
            owners,
            Field::MemUseHierarchy,
            hierarchy,
            &mut all.use_hierarchy,
        )
    }

    fn cpu(
        self,
        owners: &mut Owners,
        wanted: &LinuxCpu,
        all: &mut LinuxCpu,
    ) -> Result<(), Conflict> {
        self.field(owners, Field::CpuShares, &wanted.shares, &mut all.shares)?;
        self.field(owners, Field::CpuQuota, &wanted.quota, &mut all.quota)?;
        self.field(owners, Field::CpuPeriod, &wanted.period, &mut all.period)?;
        let (runtime, period) = (&wanted.realtime_runtime, &wanted.realtime_period);
        self.field(
            owners,
            Field::CpuRealtimeRuntime,
            runtime,
            &mut all.realtime_runtime,
        )?;
        self.field(
            owners,
            Field::CpuRealtimePeriod,
            period,
            &mut all.realtime_period,
        )?;
        for (field, wanted, all) in [
            (Field::CpuSetCpUs, &wanted.cpus, &mut all.cpus),
            (Field::CpuSetMems, &wanted.mems, &mut all.mems),
        ] {
            if !wanted.is_empty() {
                owners.claim(self.id, field, None, self.plugin)?;
                all.clone_from(wanted);
            }
        }
        Ok(())
    }
}
