//! Prepares claims by planning their interfaces and allocating addresses, and unprepares them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_driver::{
    Boot, Claim, ClaimRef, ContainerEdits, Driver, Failure, Hook, Prepared, PreparedClaim,
    PreparedDevice, StatusQueue,
};
use allot_netlink::mac_text;
use futures::StreamExt;
use ipnet::IpNet;
use k8s_openapi::api::resource::v1::DeviceRequestAllocationResult;
use tokio::time::Instant;

use super::held::Held;
use super::inventory::{Found, SHARES, Selection, discover};
use super::parameters::{InterfaceConfig, Mode};
use super::plan::{Original, Plan, Planned, Plans, key};
use super::pools::{Consumer, Lease, Pool, Store, lease, release};
use super::release::restore;
use super::status::report;
use super::store::Pools;
use super::{DRIVER_NAME, POD_NETWORK};

/// Timeout of the hook, in seconds.
const HOOK_TIMEOUT: i64 = 30;
/// Timeout of all releases at the start, which delay registration.
const RELEASE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent releases at the start.
const RELEASES: usize = 16;

/// The DRA driver for network interfaces.
pub(super) struct Interfaces {
    pub(super) node: String,
    pub(super) selection: Selection,
    pub(super) plans: Plans,
    pub(super) hook: PathBuf,
    pub(super) pools: Pools,
    pub(super) held: Arc<Held>,
    /// Device statuses to write to claims.
    pub(super) status: StatusQueue,
}

impl Interfaces {
    /// Plans the interface for one device, without addresses from pools.
    fn plan(
        &self,
        claim: &Claim,
        result: &DeviceRequestAllocationResult,
        found: &[Found],
        before: Option<&Plan>,
    ) -> Result<Planned, Failure> {
        let name = &result.device;
        // Every config is parsed so that an invalid one is always reported; the last one has the highest priority.
        let mut config = InterfaceConfig::default();
        for parameters in claim.configs(DRIVER_NAME, result) {
            config = InterfaceConfig::parse(parameters)?;
        }
        let key = key(name, result.share_id.as_deref());
        let earlier = before.and_then(|plan| plan.interfaces.iter().find(|it| it.key == key));
        if let Some(earlier) = earlier.filter(|it| it.config == config) {
            // The interface may already be in the pod; the earlier plan records its original state on the node.
            return Ok(earlier.clone());
        }
        let device = found.iter().find(|it| it.device.name == *name);
        let device = device.ok_or_else(|| format!("device {name}: there is no such interface"))?;
        if let Some(holder) = self.held.holder(&device.link, &claim.reference().uid) {
            let name = &device.link.name;
            return Err(format!(
                "interface {name} is not restored yet from the claim with UID {holder}"
            )
            .into());
        }
        check_use(device, &config, result, self.selection.shares)?;
        let mut addresses = config.addresses.clone();
        if config.mode == Mode::HostDevice && addresses.is_empty() && config.ip_pools.is_empty() {
            addresses.clone_from(&device.addresses);
        }
        Ok(Planned {
            key,
            pool: result.pool.clone(),
            device: name.clone(),
            share_id: result.share_id.clone(),
            parent: device.link.name.clone(),
            parent_mac: mac_text(&device.link.mac),
            identity: device.identity.clone(),
            config,
            pools: BTreeSet::new(),
            addresses,
            original: Original::of(&device.link, &device.addresses, device.hardware.as_ref()),
            published: device.device.clone(),
        })
    }

    /// Names the pools of an interface: those of its parameters, and those that contain its static addresses.
    ///
    /// # Errors
    /// A static address is reserved in a pool, or is in a pool that cannot be read.
    fn name_pools(planned: &mut Planned, pools: &[Pool]) -> Result<(), String> {
        planned
            .pools
            .extend(planned.config.ip_pools.iter().cloned());
        for address in planned.config.addresses.iter().map(IpNet::addr) {
            for pool in pools {
                if pool
                    .covers(address)
                    .map_err(|error| format!("addresses: {error}"))?
                {
                    planned.pools.insert(pool.name.clone());
                }
            }
        }
        Ok(())
    }

    /// Allocates addresses from pools for an interface. A static address is allocated from the oldest pool that contains it:
    /// those that overlap with that pool allocate nothing.
    async fn addresses(
        &self,
        planned: &mut Planned,
        pools: &[Pool],
        owner: &Lease,
        consumer: &Consumer,
    ) -> Result<(), Failure> {
        let mut own = owner.clone();
        own.device.clone_from(&planned.key);
        for address in planned.config.addresses.iter().map(IpNet::addr) {
            let mut oldest: Option<&Pool> = None;
            for pool in pools {
                if pool.covers(address)? && oldest.is_none_or(|oldest| pool.is_older(oldest)) {
                    oldest = Some(pool);
                }
            }
            if let Some(pool) = oldest {
                let mut fixed = own.clone();
                fixed.device = format!("{} {address}", own.device);
                lease(&self.pools, &pool.name, &fixed, Some(address), consumer).await?;
            }
        }
        let mut leased: Vec<IpNet> = Vec::new();
        for name in &planned.config.ip_pools {
            let address = lease(&self.pools, name, &own, None, consumer).await?;
            let six = address.addr().is_ipv6();
            if leased.iter().any(|it| it.addr().is_ipv6() == six) {
                let family = if six { "IPv6" } else { "IPv4" };
                return Err(format!("ipPools: two pools of {family}").into());
            }
            leased.push(address);
        }
        for address in leased {
            if !planned.addresses.contains(&address) {
                planned.addresses.push(address);
            }
        }
        Ok(())
    }

    /// The plan of a claim in the driver's files, also while it is being released. One that is damaged says nothing: without
    /// it the claim's addresses are found by its UID, and the kernel takes interfaces back with the pod's namespace, but
    /// they keep the configuration of the pod.
    fn recorded(&self, uid: &str) -> std::io::Result<Option<Plan>> {
        let read = match self.plans.read(uid) {
            Ok(None) => self.plans.read_released(uid),
            read => read,
        };
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                tracing::warn!(%error, "a plan is damaged: its interfaces are not restored");
                Ok(None)
            }
            read => read,
        }
    }

    fn edits(&self, planned: &Planned, uid: &str) -> ContainerEdits {
        let plan = self.plans.file(uid);
        ContainerEdits {
            hooks: vec![Hook {
                hook_name: "createRuntime".to_owned(),
                path: self.hook.to_string_lossy().into_owned(),
                args: [
                    "allot",
                    "driver",
                    "net",
                    "attach",
                    "--plan",
                    &plan.to_string_lossy(),
                    "--device",
                    &planned.key,
                ]
                .map(str::to_owned)
                .to_vec(),
                timeout: Some(HOOK_TIMEOUT),
                ..Hook::default()
            }],
            ..ContainerEdits::default()
        }
    }

    /// Completes releases that were begun, all of them within [`RELEASE`].
    async fn complete(&self, begun: Vec<Plan>) {
        let deadline = Instant::now() + RELEASE;
        let release = |plan: Plan| async move {
            let claim = plan.claim.clone();
            let undone = tokio::time::timeout_at(deadline, self.undo(&claim, Some(plan))).await;
            if let Err(error) =
                undone.unwrap_or_else(|_| Err("the API server does not answer".into()))
            {
                tracing::warn!(%claim, error, "its interfaces and addresses are not released yet");
            }
        };
        let releases: Vec<_> = begun.into_iter().map(release).collect();
        let releases = futures::stream::iter(releases).buffer_unordered(RELEASES);
        releases.for_each(|()| std::future::ready(())).await;
    }

    /// Disables the plan, restores the interfaces, and only then releases the addresses.
    async fn undo(&self, claim: &ClaimRef, plan: Option<Plan>) -> Result<(), Failure> {
        let uid = &claim.uid;
        self.plans.begin_release(uid)?;
        let (interfaces, held) = (
            plan.iter().flat_map(|plan| &plan.interfaces),
            self.held.all(),
        );
        // One that is still in the pod does not keep the others from the node.
        let restored: Vec<_> = interfaces
            .map(|planned| restore(planned, uid, &self.plans, &held))
            .collect();
        restored.into_iter().collect::<Result<(), _>>()?;
        let pools = plan.as_ref().map(Plan::pools);
        release(&self.pools, pools.as_ref(), uid, &self.node).await?;
        self.plans.end_release(uid)?;
        self.held.forget(uid);
        report(&self.status, &self.plans, claim);
        Ok(())
    }
}

/// Checks whether a device can be used with this configuration.
fn check_use(
    device: &Found,
    config: &InterfaceConfig,
    result: &DeviceRequestAllocationResult,
    shares: u32,
) -> Result<(), Failure> {
    let name = &device.link.name;
    if let Some(mtu) = config.mtu.filter(|mtu| *mtu > device.link.mtu)
        && config.mode != Mode::HostDevice
    {
        let most = device.link.mtu;
        return Err(format!("interface {name}: MTU {mtu} is more than its {most}").into());
    }
    if config.mode != Mode::HostDevice {
        return match device.link.up {
            true => Ok(()),
            false => Err(format!("interface {name} is down").into()),
        };
    }
    if device.uplink {
        return Err(format!(
            "interface {name} has a default route of the node, which would be cut off; use another mode"
        )
        .into());
    }
    if device.link.controller.is_some() {
        return Err(format!("interface {name} is a part of another one").into());
    }
    let consumed = result.consumed_capacity.as_ref();
    let consumed = consumed.and_then(|all| all.get(SHARES)).map(|it| &it.0);
    if shares > 1 && consumed.map(String::as_str) != Some(&*shares.to_string()) {
        return Err(format!(
            "interface {name} is shared: the mode host-device needs all of it, a request with capacity {SHARES}: {shares}"
        )
        .into());
    }
    Ok(())
}

/// The pod that the claim is reserved for. An interface can only be in one network namespace.
fn consumer(claim: &Claim) -> Result<(String, String), Failure> {
    let consumers = claim.object()["status"]["reservedFor"].as_array();
    let consumers: Vec<_> = consumers
        .into_iter()
        .flatten()
        .filter(|it| it["resource"] == "pods")
        .collect();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    match consumers[..] {
        [pod] => Ok((text(&pod["name"]), text(&pod["uid"]))),
        [] => Err("the claim is not reserved for a pod".into()),
        _ => Err("several pods share the claim, and an interface is in the network of one".into()),
    }
}

impl Driver for Interfaces {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let reference = claim.reference();
        let uid = &reference.uid;
        let (pod, pod_uid) = consumer(claim)?;
        let before: Option<Plan> = claim.saved_state().await?;
        let found = discover(&self.selection)?;
        let used = |result: &&DeviceRequestAllocationResult| result.admin_access != Some(true);
        let results = claim.results(DRIVER_NAME).filter(used);
        let mut plan = Plan {
            claim: reference.clone(),
            interfaces: Vec::new(),
        };
        let mut devices = Vec::new();
        for result in results {
            let planned = self.plan(claim, result, &found, before.as_ref())?;
            let device = PreparedDevice::from_result(result)
                .edits(self.edits(&planned, uid))
                .cdi_annotation(POD_NETWORK, "pod");
            devices.push(device);
            // One device can satisfy several requests.
            if !plan.interfaces.iter().any(|it| it.key == planned.key) {
                plan.interfaces.push(planned);
            }
        }
        let with_static = |planned: &Planned| !planned.config.addresses.is_empty();
        let pools = match plan.interfaces.iter().any(with_static) {
            true => self.pools.list().await?,
            false => Vec::new(),
        };
        for planned in &mut plan.interfaces {
            Self::name_pools(planned, &pools)?;
        }
        // Records what is about to be allocated, so that it can be found again after the process is killed.
        claim.save_state(&plan).await?;
        let owner = Lease {
            claim: reference.to_string(),
            claim_uid: uid.clone(),
            node: self.node.clone(),
            pod: format!("{}/{pod}", reference.namespace),
            pod_uid,
            ..Lease::default()
        };
        let consumer = Consumer {
            node: self.node.clone(),
            namespace: reference.namespace.clone(),
            pod,
        };
        for planned in &mut plan.interfaces {
            self.addresses(planned, &pools, &owner, &consumer).await?;
        }
        self.plans.write(&plan)?;
        self.held.set(uid, &plan.interfaces);
        report(&self.status, &self.plans, reference);
        tracing::info!(claim = %reference, interfaces = plan.interfaces.len(), "prepared");
        Prepared::from(devices).with_state(&plan)
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        // The plan file contains the same data as the checkpoint, in case the checkpoint was lost.
        let plan = match claim.state::<Plan>()? {
            Some(plan) => Some(plan),
            None => self.recorded(&claim.reference().uid)?,
        };
        self.undo(claim.reference(), plan).await
    }

    async fn restore(&self, claims: &[PreparedClaim], _: Boot) -> Result<(), Failure> {
        let mut known = BTreeSet::new();
        let released = self.plans.released();
        for claim in claims {
            let uid = claim.reference().uid.as_str();
            known.insert(uid);
            let Some(plan) = claim.state::<Plan>()? else {
                continue;
            };
            self.held.set(uid, &plan.interfaces);
            // A claim whose release began is not attached again.
            if claim.is_complete() && !released.iter().any(|it| it == uid) {
                self.plans.write(&plan)?;
            }
        }
        // If the checkpoint was lost, a pod may still use the claim of a remaining plan: the kubelet calls again. The release
        // of others is completed, in case it does not.
        let lost = |uids: Vec<String>| uids.into_iter().filter(|uid| !known.contains(uid.as_str()));
        let mut begun = Vec::new();
        for uid in lost(self.plans.claims()).chain(lost(released)) {
            match self.recorded(&uid) {
                Ok(Some(plan)) => {
                    self.held.set(&uid, &plan.interfaces);
                    if !self.plans.file(&uid).exists() {
                        begun.push(plan);
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a plan can not be read"),
            }
        }
        self.complete(begun).await;
        Ok(())
    }
}

/// Copies the hook program to the path from which the container runtime executes it.
///
/// # Errors
/// A file system operation failed.
pub(super) fn install_hook(directory: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let program = std::env::current_exe()?;
    let target = directory.join("allot-net-hook");
    let interim = directory.join(".allot-net-hook.new");
    std::fs::create_dir_all(directory)?;
    let _ = std::fs::remove_file(&interim);
    // On the same file system, a hard link avoids the copy.
    if std::fs::hard_link(&program, &interim).is_err() {
        std::fs::copy(&program, &interim)?;
        std::fs::set_permissions(&interim, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::rename(&interim, &target)?;
    Ok(target)
}

#[cfg(test)]
mod tests;
