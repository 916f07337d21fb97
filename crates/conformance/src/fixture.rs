//! A node for one driver: directories, API server, kubelet and the driver's process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::api::{Api, ApiError, SetupError};
use crate::boot::Boot;
use crate::command::{Command, CommandPaths};
use crate::options::{Options, Target};
use crate::outcome::{Stop, ensure, fail, skip};
use crate::process::{Log, Process, Usage};
use allot_kubelet::{CALL_LIMIT, ClaimRef, Device, Kubelet, Plugin, Version};

mod amounts;
mod calls;
mod claims;
mod files;
mod slices;
#[cfg(test)]
mod tests;

pub(crate) use claims::{
    ClaimRequest, OTHER_DEVICE, OTHER_DRIVER, OTHER_POOL, path, prepared_device,
};
pub(crate) use files::size;
pub(crate) use slices::{DeviceRef, SLICES, complete, number, text};

/// Polling interval.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time that a pod has to end if it names none.
const GRACE: Duration = Duration::from_secs(30);

/// The directories that a driver under test uses.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    /// The parent directory of the drivers' data, or the driver's own.
    pub(crate) plugins: PathBuf,
    pub(crate) registry: PathBuf,
    pub(crate) cdi: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) kubeconfig: PathBuf,
}

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
            Target::Command(_) => {
                // Paths of sockets are short: the system's temporary directory may not be.
                let directory = tempfile::Builder::new()
                    .prefix("ac")
                    .tempdir_in("/tmp")
                    .or_else(|_| tempfile::tempdir());
                let directory =
                    directory.map_err(|error| SetupError::new("temporary directory", error))?;
                let root = directory.path().to_owned();
                let places = Paths {
                    plugins: root.join("plugins"),
                    registry: root.join("plugins_registry"),
                    cdi: root.join("cdi"),
                    scratch: root.join("scratch"),
                    kubeconfig: root.join("kubeconfig"),
                    root,
                };
                for path in [
                    &places.plugins,
                    &places.registry,
                    &places.cdi,
                    &places.scratch,
                ] {
                    std::fs::create_dir_all(path)
                        .map_err(|error| SetupError::new(path.display(), error))?;
                }
                (Some(directory), places)
            }
            Target::Running {
                registry,
                plugin,
                cdi,
                kubeconfig,
            } => {
                let places = Paths {
                    root: plugin.clone(),
                    plugins: plugin.clone(),
                    registry: registry.clone(),
                    cdi: cdi.clone(),
                    scratch: plugin.clone(),
                    kubeconfig: kubeconfig.clone(),
                };
                for path in [registry, plugin] {
                    if !path.is_dir() {
                        return Err(SetupError::NoDirectory(path.clone()));
                    }
                }
                (None, places)
            }
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

    /// A second instance of the driver: the same command as another pod.
    pub(crate) fn spawn_second(&self) -> Result<Process, Stop> {
        self.spawn(&new_instance())
    }

    fn spawn(&self, instance: &str) -> Result<Process, Stop> {
        let Target::Command(command) = &self.options.target else {
            return fail("the test kit does not manage the process of this driver");
        };
        self.spawn_command(command, instance)
    }

    fn spawn_command(&self, command: &Command, instance: &str) -> Result<Process, Stop> {
        let places = CommandPaths {
            kubeconfig: &self.places.kubeconfig,
            node: &self.options.node,
            kubelet: &self.places.root,
            plugins: &self.places.plugins,
            registry: &self.places.registry,
            cdi: &self.places.cdi,
            scratch: &self.places.scratch,
            instance,
        };
        let filled = command.fill(&places);
        let program = filled.words.first().cloned().unwrap_or_default();
        let filled = match &self.boot {
            Some(boot) => boot.show(filled),
            None => filled,
        };
        Process::spawn(&filled, &self.log).or_else(|error| fail(format!("{program}: {error}")))
    }

    /// Starts the driver, if the test kit runs it, without waiting.
    pub(crate) async fn start(&mut self) -> Result<(), Stop> {
        if self.options.is_command() {
            self.process = Some(self.spawn(&self.instance)?);
        }
        Ok(())
    }

    /// Ends the driver with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Ends the driver with SIGTERM; fails if it takes longer than the grace period of a pod. `what` is the process in the error.
    pub(crate) async fn terminate(&mut self, what: &str) -> Result<(), Stop> {
        let grace = GRACE.min(self.timeout());
        let ended = match &mut self.process {
            Some(process) => process.terminate(grace).await,
            None => None,
        };
        ensure!(
            ended.is_some(),
            "{what} did not end within {grace:?} after SIGTERM"
        );
        Ok(())
    }

    /// Ends the driver as a reboot does: what is in memory and in the CDI directory is gone, and from now on the boot has another
    /// ID. Returns what the driver can see of that.
    pub(crate) async fn reboot(&mut self, answer: &[Device]) -> Result<String, Stop> {
        self.kill().await;
        self.wipe_cdi(answer);
        let boot = Boot::new(&self.places.root);
        let boot = boot.or_else(|error| fail(format!("cannot make a boot ID: {error}")))?;
        let told = boot.told();
        self.boot = Some(boot);
        Ok(told)
    }

    /// Waits for a registration after the first `before`; fails early when the process has ended.
    pub(crate) async fn registered(
        &mut self,
        driver: Option<&str>,
        before: u64,
    ) -> Result<Plugin, Stop> {
        let deadline = Instant::now() + self.timeout();
        loop {
            if let Some(plugin) = self
                .kubelet
                .plugin(driver)
                .filter(|plugin| plugin.number > before)
            {
                return Ok(plugin);
            }
            if let Some(status) = self.process.as_mut().and_then(Process::exited) {
                return fail(format!(
                    "the driver ended before it was registered: {status}"
                ));
            }
            if Instant::now() >= deadline {
                let timeout = self.timeout();
                return fail(format!(
                    "the driver was not registered within {timeout:?}{}",
                    self.why()
                ));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Starts the driver again and waits until it is registered.
    pub(crate) async fn start_again(&mut self) -> Result<(), Stop> {
        let before = self.kubelet.registrations();
        self.start().await?;
        self.until_registered(before).await
    }

    /// Waits until the driver has registered more than `before` times.
    async fn until_registered(&mut self, before: u64) -> Result<(), Stop> {
        let driver = self.driver.clone();
        self.registered(Some(&driver), before).await.map(drop)
    }

    /// Like [`Fixture::start_again`], with the earlier release of the driver.
    pub(crate) async fn start_earlier(&mut self) -> Result<(), Stop> {
        let options = self.options();
        let Some(command) = &options.earlier else {
            return skip("no earlier release of the driver is given: --earlier-command");
        };
        self.kill().await;
        // It starts again: no release has to read the state of a later one.
        for file in self.state_files() {
            std::fs::remove_file(&file)
                .or_else(|error| fail(format!("{}: {error}", file.display())))?;
        }
        let before = self.kubelet.registrations();
        // An upgrade replaces the pod.
        self.process = Some(self.spawn_command(command, &new_instance())?);
        self.until_registered(before).await
    }

    /// kill -9, then like [`Fixture::start_again`].
    pub(crate) async fn restart(&mut self) -> Result<(), Stop> {
        self.kill().await;
        self.start_again().await
    }

    /// The process of the driver is another one from now on; the one before ends.
    pub(crate) async fn adopt(&mut self, process: Process) {
        self.kill().await;
        self.process = Some(process);
    }

    pub(crate) fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
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

fn new_instance() -> String {
    uuid::Uuid::new_v4().to_string()
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
