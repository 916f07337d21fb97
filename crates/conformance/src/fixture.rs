//! A node for one driver: directories, API server, kubelet and the driver's process.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::api::{Api, ApiError, SetupError};
use crate::boot::Boot;
use crate::options::{Options, Target};
use crate::outcome::{Stop, fail};
use crate::process::{Log, Process, Usage};
use allot_kubelet::{CALL_LIMIT, ClaimRef, Kubelet, Plugin, Version};

mod amounts;
mod calls;
mod claims;
mod files;
mod lifecycle;
mod paths;
mod slices;
#[cfg(test)]
mod tests;

pub(crate) use claims::{
    ClaimRequest, OTHER_DEVICE, OTHER_DRIVER, OTHER_POOL, path, prepared_device,
};
pub(crate) use files::size;
use lifecycle::new_instance;
pub(crate) use paths::Paths;
pub(crate) use slices::{DeviceRef, SLICES, complete, number, text};

/// Polling interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
pub(crate) struct Fixture {
    options: Arc<Options>,
    pub(crate) places: Paths,
    pub(crate) api: Api,
    pub(crate) kubelet: Kubelet,
    process: Option<Process>,
    /// The UID of the pod whose container the process is: it stays when the container is restarted.
    instance: String,
    /// After a reboot; before it that of the machine.
    boot: Option<Boot>,
    log: Arc<Log>,
    driver: String,
    devices: Vec<DeviceRef>,
    node_uid: String,
    number: u32,
    /// Created by the current case.
    claims: Vec<ClaimRef>,
    _directory: Option<TempDir>,
}

impl Fixture {
    /// A node without a driver.
    pub(crate) async fn new(options: Arc<Options>) -> Result<Self, SetupError> {
        let (directory, places) = match &options.target {
            Target::Command(_) => Paths::temporary().map(|(made, paths)| (Some(made), paths))?,
            Target::Running {
                registry,
                plugin,
                cdi,
                kubeconfig,
            } => (None, Paths::of_running(registry, plugin, cdi, kubeconfig)?),
        };
        let api = match options.is_command() {
            true => Api::start(&places.kubeconfig).await?,
            false => Api::connect(&places.kubeconfig).await?,
        };
        let node = node(&api, &options.node, options.is_command()).await?;
        let mut kubelet = Kubelet::new(&places.registry);
        kubelet.start();
        Ok(Self {
            options,
            places,
            api,
            kubelet,
            process: None,
            instance: new_instance(),
            boot: None,
            log: Arc::default(),
            driver: String::new(),
            devices: Vec::new(),
            node_uid: node["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            number: 0,
            claims: Vec::new(),
            _directory: directory,
        })
    }

    /// Starts the driver, and waits until it is registered and has published its devices.
    pub(crate) async fn bring_up(&mut self) -> Result<(), Stop> {
        self.start().await?;
        let wanted = self.options.driver.clone();
        let plugin = self.registered(wanted.as_deref(), 0).await?;
        self.driver = plugin.info.name;
        self.devices = self.published().await?;
        Ok(())
    }

    pub(crate) fn options(&self) -> Arc<Options> {
        Arc::clone(&self.options)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    pub(crate) fn node_uid(&self) -> &str {
        &self.node_uid
    }

    /// Devices that claims can have.
    pub(crate) fn devices(&self) -> &[DeviceRef] {
        &self.devices
    }

    pub(crate) fn versions(&self) -> Vec<String> {
        let plugin = self.kubelet.plugin(Some(&self.driver));
        plugin
            .map(|plugin| plugin.info.supported_versions)
            .unwrap_or_default()
    }

    pub(crate) fn plugin(&self) -> Result<Plugin, Stop> {
        match self.kubelet.plugin(Some(&self.driver)) {
            Some(plugin) => Ok(plugin),
            None => fail(format!(
                "the driver is not registered any more{}",
                self.why()
            )),
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.kubelet
            .plugin(Some(&self.driver))
            .map_or(Version::V1, |plugin| plugin.version())
    }

    /// The limit for a call.
    pub(crate) fn limit(&self) -> Duration {
        self.options.timeout.min(CALL_LIMIT)
    }

    /// The end of the driver's output.
    pub(crate) fn output(&self, lines: usize) -> String {
        self.log.tail(lines)
    }

    /// Marks a place in the driver's output.
    pub(crate) fn position(&self) -> u64 {
        self.log.position()
    }

    pub(crate) fn output_since(&self, position: u64) -> String {
        self.log.since(position)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.process
            .as_ref()
            .map(Process::usage)
            .unwrap_or_default()
    }

    /// Diagnostics about a driver that does not register.
    fn why(&self) -> String {
        let mut problems = self.kubelet.problems();
        let wanted = self.options.driver.as_ref();
        let others = self.kubelet.drivers().into_iter();
        let others = others.filter(|name| *name != self.driver && wanted != Some(name));
        problems.extend(others.map(|name| format!("{name:?} is registered")));
        match problems.is_empty() {
            true => String::new(),
            false => format!(": {}", problems.join("; ")),
        }
    }

    /// Polls until `check` returns a value.
    pub(crate) async fn until<T, F>(&self, what: &str, check: impl FnMut() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Option<T>>,
    {
        self.until_within(self.timeout(), what, check).await
    }

    /// Polls until `check` returns a value, for what a driver does by itself and periodically. It gets half as much time again: the
    /// official Go helper repairs a deleted slice after a minute, which is the usual limit.
    pub(crate) async fn until_repaired<T, F>(
        &self,
        what: &str,
        check: impl FnMut() -> F,
    ) -> Result<T, Stop>
    where
        F: Future<Output = Option<T>>,
    {
        let limit = self.timeout() + self.timeout() / 2;
        self.until_within(limit, what, check).await
    }

    async fn until_within<T, F>(
        &self,
        limit: Duration,
        what: &str,
        mut check: impl FnMut() -> F,
    ) -> Result<T, Stop>
    where
        F: Future<Output = Option<T>>,
    {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = check().await {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return fail(format!("{what} did not happen within {limit:?}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Ends what a case may have left switched on.
    pub(crate) fn reset(&self) {
        self.api.release();
        self.kubelet.refuse(false);
    }

    /// Removes the objects of a case, for a driver that continues with the next.
    pub(crate) async fn clean_up(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        if let Ok(plugin) = self.plugin() {
            // A driver that cannot do it has been reported already.
            let _ = plugin
                .unprepare(plugin.version(), &claims, self.limit())
                .await;
        }
        for claim in &claims {
            let _ = self.api.delete(&claims::path(claim)).await;
        }
    }

    /// Stops everything.
    pub(crate) async fn end(mut self) {
        self.reset();
        self.kubelet.stop().await;
        self.kill().await;
    }
}

/// The Node object; created in a server of the test kit.
async fn node(api: &Api, name: &str, make: bool) -> Result<Value, ApiError> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": claims::ADMIN_NAMESPACE,
        "labels": {"resource.kubernetes.io/admin-access": "true"}}});
    match api
        .call(Method::POST, "/api/v1/namespaces", Some(&namespace))
        .await
    {
        Err(error) if error.code != 409 => return Err(error),
        _ => {}
    }
    match make {
        true => {
            let labels = json!({"kubernetes.io/hostname": name});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
            api.call(Method::POST, "/api/v1/nodes", Some(&node)).await
        }
        false => api.get(&format!("/api/v1/nodes/{name}")).await,
    }
}
