//! Starts what a [`Builder`] configures, step by step: options are checked, then the state is restored from the checkpoint, then
//! servers and background tasks begin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_client::KeyMutex;
use allot_protos::registration::PluginInfo;
use allot_protos::{DRA_PLUGIN_TYPE, service_name};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};

use super::background::{Background, HealthReports, Sources, dra_services};
use super::sockets::rolling_socket;
use super::{Builder, kubelet, lock};
use crate::api::ResourceApi;
use crate::bounds::bounded;
use crate::checkpoint::Checkpoint;
use crate::controls::Controls;
use crate::error::Error;
use crate::injected::{HEEDS_INJECTED_FAILURES, Injection};
use crate::metadata_writer::Writer;
use crate::publisher::{Owner, Scope};
use crate::service::{Cdi, Core, Serialization};
use crate::unhealthy::{Desired, Tainting};
use crate::{Driver, Plugin};

impl<D: Driver> Builder<D> {
    /// Starts the servers. On return the DRA service answers, and the kubelet can find the registration socket.
    ///
    /// # Errors
    /// A missing option, a directory or socket that cannot be used, another instance that runs.
    pub async fn start(mut self) -> Result<Plugin, Error> {
        let client = self.checked_client()?;
        let (desired, wanted) = watch::channel(None);
        let sources = self.sources(&client, wanted)?;
        let info = self.plugin_info(sources.health.is_some())?;
        if let Some(kind) = &self.cdi_kind {
            allot_cdi::check_written_kind(kind)?;
        }
        // Before anything is written: nothing must be left below a wrong root directory.
        kubelet::wait(&self.registrar_dir, self.kubelet_timeout).await?;

        let data_dir = self.create_data_dir()?;
        let instance = lock::acquire(&data_dir, self.rolling_update.is_some()).await?;
        let (plugin_socket, registrar_socket) = self.sockets(&data_dir);
        let listener = self.diagnostics_listener().await?;
        let scope = self.scope(sources.injection.is_some());
        let (v1, v1beta1) = (self.v1, self.v1beta1);
        let core = Arc::new(self.core(&data_dir, client)?);
        core.restore_claims().await?;
        core.restore_files(true).await;

        let mut background = Background::default();
        background.keep_state(&core, instance);
        let services = dra_services(&core, v1, v1beta1, sources.health_service());
        background.serve("DRA gRPC server", &plugin_socket, services)?;
        let info = PluginInfo {
            endpoint: plugin_socket.display().to_string(),
            ..info
        };
        let registration = background.register(info, &registrar_socket)?;
        let diagnostics_address = listener.as_ref().and_then(|it| it.local_addr().ok());
        if let Some(listener) = listener {
            background.diagnose(&core, registration.clone(), listener);
        }
        let can_publish = scope.node.is_some() || scope.cluster_pool.is_some();
        background.publish(&core, sources, can_publish.then_some(scope));
        Ok(Plugin {
            stop: background.stop,
            tasks: background.tasks,
            registration,
            metadata: core.metadata.clone(),
            diagnostics_address,
            controls: Controls {
                desired,
                can_publish,
                metrics: Arc::clone(&core.metrics),
                api: Arc::clone(&core.api),
                driver_name: core.driver_name.clone(),
            },
        })
    }

    /// The client, with deadlines for its requests.
    fn checked_client(&mut self) -> Result<kube::Client, Error> {
        if self.driver_name.is_empty() {
            return Err(config("driver name must be set"));
        }
        let client = self.client.take();
        Ok(bounded(
            client.ok_or_else(|| config("Kubernetes client must be set"))?,
        ))
    }

    /// What is published and how healthy it is: what the driver says in `wanted` and by its health, and what changes that.
    fn sources(
        &mut self,
        client: &kube::Client,
        mut wanted: watch::Receiver<Desired>,
    ) -> Result<Sources, Error> {
        let mut health = self.driver.health();
        let mut injection = None;
        if self.injected_failures {
            let made = self.injection(client.clone(), wanted, health)?;
            wanted = made.published();
            health = Some(made.health());
            injection = Some(made);
        }
        Ok(Sources {
            tainting: self.tainting(health.as_ref())?,
            wanted,
            health,
            injection,
        })
    }

    /// Failures that annotations of the node ask for, over the devices and the health that the driver reports.
    fn injection(
        &self,
        client: kube::Client,
        wanted: watch::Receiver<Desired>,
        health: Option<HealthReports>,
    ) -> Result<Injection, Error> {
        let node = self.node_name.clone();
        let node = node.ok_or_else(|| config("injected failures need a node name"))?;
        let name = self.driver_name.clone();
        Ok(Injection::new(client, node, name, wanted, health))
    }

    /// What the registration tells a kubelet, but for the socket.
    fn plugin_info(&self, has_health: bool) -> Result<PluginInfo, Error> {
        let supported = self.supported_services(has_health)?;
        Ok(PluginInfo {
            r#type: DRA_PLUGIN_TYPE.to_owned(),
            name: self.driver_name.clone(),
            endpoint: String::new(),
            supported_versions: supported.into_iter().map(str::to_owned).collect(),
        })
    }

    /// The gRPC services that the kubelet can call, by their full names.
    fn supported_services(&self, has_health: bool) -> Result<Vec<&'static str>, Error> {
        let mut supported = Vec::new();
        supported.extend(self.v1.then_some(service_name::DRA_V1));
        supported.extend(self.v1beta1.then_some(service_name::DRA_V1BETA1));
        if supported.is_empty() {
            return Err(config(
                "no supported DRA gRPC API is implemented and enabled",
            ));
        }
        if has_health {
            supported.extend([service_name::HEALTH_V1, service_name::HEALTH_V1ALPHA1]);
        }
        Ok(supported)
    }

    /// The taints of unhealthy devices, with the health that they follow.
    fn tainting(
        &mut self,
        health: Option<&HealthReports>,
    ) -> Result<Option<(Tainting, HealthReports)>, Error> {
        match (self.taint_unhealthy.take(), health) {
            (None, _) => Ok(None),
            (Some(_), None) => Err(config("taints for unhealthy devices need Driver::health")),
            (Some(effect), Some(health)) => {
                let tainting = Tainting::new(&self.driver_name, effect)?;
                Ok(Some((tainting, health.clone())))
            }
        }
    }

    /// The directory of checkpoint, socket and lock; created if it does not exist.
    fn create_data_dir(&mut self) -> Result<PathBuf, Error> {
        let data_dir = self.data_dir.take();
        let data_dir = data_dir
            .unwrap_or_else(|| Path::new("/var/lib/kubelet/plugins").join(&self.driver_name));
        std::fs::create_dir_all(&data_dir).map_err(|source| Error::Io {
            path: data_dir.clone(),
            source,
        })?;
        Ok(data_dir)
    }

    /// The sockets of the DRA service and of the registration. During a rolling update each instance has its own.
    fn sockets(&self, data_dir: &Path) -> (PathBuf, PathBuf) {
        let (name, registrar_dir) = (&self.driver_name, &self.registrar_dir);
        match &self.rolling_update {
            Some(uid) => (
                data_dir.join(format!("dra-{uid}.sock")),
                rolling_socket(registrar_dir, name, uid),
            ),
            None => (
                data_dir.join("dra.sock"),
                registrar_dir.join(format!("{name}-reg.sock")),
            ),
        }
    }

    /// The socket for probes and metrics, if there is to be one.
    async fn diagnostics_listener(&self) -> Result<Option<TcpListener>, Error> {
        let Some(address) = self.diagnostics else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| Error::Listen { address, source })?;
        Ok(Some(listener))
    }

    /// Whose devices are published.
    fn scope(&mut self, heeds_injected_failures: bool) -> Scope {
        let heeds = heeds_injected_failures.then(|| "true".to_owned());
        let uid = self.node_uid.take();
        Scope {
            node: self.node_name.take().map(|name| Owner { name, uid }),
            cluster_pool: self.cluster_pool.take(),
            labels: BTreeMap::from([(HEEDS_INJECTED_FAILURES.to_owned(), heeds)]),
        }
    }

    /// The state of the service, as the checkpoint has it.
    fn core(mut self, data_dir: &Path, client: kube::Client) -> Result<Core<D>, Error> {
        let metadata = self.metadata_writer(data_dir);
        let checkpoint_path = self.checkpoint.then(|| data_dir.join("checkpoint.json"));
        let cdi = self.cdi(checkpoint_path.as_deref())?;
        Ok(Core {
            serialization: self.serialization(data_dir),
            driver_name: self.driver_name,
            driver: self.driver,
            api: Arc::new(ResourceApi::new(client)),
            cdi,
            metadata,
            checkpoint: Arc::new(Mutex::new(Checkpoint::open(checkpoint_path.clone())?)),
            checkpoint_path,
            metrics: Arc::default(),
        })
    }

    fn metadata_writer(&self, data_dir: &Path) -> Option<Arc<Writer>> {
        self.metadata.then(|| {
            Arc::new(Writer {
                driver: self.driver_name.clone(),
                data_dir: data_dir.to_owned(),
                cdi_dir: self.cdi_dir.clone(),
                lock: parking_lot::Mutex::default(),
            })
        })
    }

    /// The CDI files, the common one written.
    fn cdi(&mut self, checkpoint: Option<&Path>) -> Result<Option<Cdi>, Error> {
        let cdi = self.cdi_kind.take().map(|kind| Cdi {
            kind,
            directory: std::mem::take(&mut self.cdi_dir),
            common: std::mem::take(&mut self.cdi_common),
        });
        if self.rolling_update.is_none() {
            // A process that was killed may have left files that it was writing. They do no harm, but may become many.
            let common = cdi.as_ref().map(Cdi::common_file);
            for path in checkpoint.into_iter().chain(common.as_deref()) {
                let _ = allot_cdi::file::remove_unfinished(path);
            }
        }
        if let Some(cdi) = &cdi {
            cdi.write_common()?;
        }
        Ok(cdi)
    }

    /// Which calls of the kubelet exclude each other.
    fn serialization(&self, data_dir: &Path) -> Serialization {
        match (self.serialize, &self.rolling_update) {
            (false, _) => Serialization::Claims(KeyMutex::default()),
            (true, None) => Serialization::Process(Mutex::new(())),
            (true, Some(_)) => Serialization::Host(Mutex::new(()), data_dir.join("serialize.lock")),
        }
    }
}

fn config(text: &str) -> Error {
    Error::Config(text.to_owned())
}
