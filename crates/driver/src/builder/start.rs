//! Starts what a [`Builder`] configures: state from the checkpoint, gRPC services, registration, background tasks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_protos::dra_health_v1::dra_resource_health_server::DraResourceHealthServer as DraResourceHealthServerV1;
use allot_protos::dra_health_v1alpha1::dra_resource_health_server::DraResourceHealthServer;
use allot_protos::dra_v1::dra_plugin_server::DraPluginServer;
use allot_protos::dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginServerV1beta1;
use allot_protos::registration::PluginInfo;
use allot_protos::registration::registration_server::RegistrationServer;
use allot_protos::transport::{Incoming, Services};
use allot_protos::{DRA_PLUGIN_TYPE, service_name};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::sockets::{rolling_socket, serve_at};
use super::{Builder, kubelet, lock};
use crate::api::ResourceApi;
use crate::bounds::bounded;
use crate::checkpoint::Checkpoint;
use crate::controls::Controls;
use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::health::HealthService;
use crate::injected::{HEEDS_INJECTED_FAILURES, Injection};
use crate::metadata_writer::Writer;
use crate::metrics::Metrics;
use crate::plugin::until;
use crate::publisher::{self, Owner, Scope};
use crate::registrar::Registrar;
use crate::service::{Cdi, Claims, Core, Serialization, ServiceV1, ServiceV1beta1};
use crate::unhealthy::{Desired, Tainting};
use crate::{DeviceHealth, Driver, Plugin};

/// The health of all devices, as the driver reports it.
type HealthReports = watch::Receiver<Vec<DeviceHealth>>;

impl<D: Driver> Builder<D> {
    /// Starts the servers. On return the DRA service answers, and the kubelet can find the registration socket.
    ///
    /// # Errors
    /// A missing option, a directory or socket that cannot be used, another instance that runs.
    pub async fn start(mut self) -> Result<Plugin, Error> {
        if self.driver_name.is_empty() {
            return Err(config("driver name must be set"));
        }
        let client = self.client.take();
        let client = bounded(client.ok_or_else(|| config("Kubernetes client must be set"))?);
        let mut health = self.driver.health();
        let (desired, mut wanted) = watch::channel(None);
        let mut injection = None;
        if self.injected_failures {
            let made = self.injection(client.clone(), wanted, health)?;
            wanted = made.published();
            health = Some(made.health());
            injection = Some(made);
        }
        let supported = self.supported_services(health.is_some())?;
        let tainting = self.tainting(health.as_ref())?;
        if let Some(kind) = &self.cdi_kind {
            allot_cdi::check_written_kind(kind)?;
        }
        // Before anything is written: nothing must be left below a wrong root directory.
        kubelet::wait(&self.registrar_dir, self.kubelet_timeout).await?;

        let data_dir = self.create_data_dir()?;
        let instance = lock::acquire(&data_dir, self.rolling_update.is_some()).await?;
        let (plugin_socket, registrar_socket) = self.sockets(&data_dir);
        let metadata = self.metadata_writer(&data_dir);
        let checkpoint_path = self.checkpoint.then(|| data_dir.join("checkpoint.json"));
        let cdi = self.cdi(checkpoint_path.as_deref())?;
        let diagnostics = match self.diagnostics {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                Some(listener.map_err(|source| Error::Listen { address, source })?)
            }
        };
        let metrics = Arc::new(Metrics::default());
        let api = Arc::new(ResourceApi::new(client));
        let core = Arc::new(Core {
            driver_name: self.driver_name.clone(),
            serialization: self.serialization(&data_dir),
            driver: self.driver,
            api: Arc::clone(&api),
            cdi,
            metadata: metadata.clone(),
            checkpoint: Arc::new(Mutex::new(Checkpoint::open(checkpoint_path.clone())?)),
            checkpoint_path,
            metrics: Arc::clone(&metrics),
        });

        core.restore_claims().await?;
        core.restore_files(true).await;

        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (files, claims) = (Arc::clone(&core), Arc::clone(&core));
        let look_after = async move {
            // Held until the instance has ended.
            let _instance = instance;
            tokio::join!(files.keep_files(), claims.unprepare_gone());
        };
        tasks.spawn(until(stop.clone(), look_after));
        let health = health.map(|source| HealthService {
            source,
            awaits_first: injection.is_some(),
        });
        let services = dra_services(&core, self.v1, self.v1beta1, health);
        tasks.spawn(serve("DRA gRPC server", &plugin_socket, services, &stop)?);

        let (status, registration) = watch::channel(None);
        let registrar = Registrar {
            info: PluginInfo {
                r#type: DRA_PLUGIN_TYPE.to_owned(),
                name: self.driver_name.clone(),
                endpoint: plugin_socket.display().to_string(),
                supported_versions: supported.into_iter().map(str::to_owned).collect(),
            },
            status,
        };
        let services = Services::new().with(RegistrationServer::new(registrar));
        tasks.spawn(serve(
            "registrar gRPC server",
            &registrar_socket,
            services,
            &stop,
        )?);

        let diagnostics_address = diagnostics.as_ref().and_then(|it| it.local_addr().ok());
        if let Some(listener) = diagnostics {
            let diagnostics = Diagnostics {
                metrics: Arc::clone(&metrics),
                registration: registration.clone(),
                checkpoint: Arc::clone(&core.checkpoint),
            };
            tasks.spawn(until(stop.clone(), diagnostics.serve(listener)));
        }

        let heeds = injection.is_some().then(|| "true".to_owned());
        let labels = BTreeMap::from([(HEEDS_INJECTED_FAILURES.to_owned(), heeds)]);
        if let Some(injection) = injection {
            tasks.spawn(until(stop.clone(), injection.run()));
        }
        if let Some((tainting, health)) = tainting {
            let (published, tainted) = watch::channel(None);
            tasks.spawn(until(
                stop.clone(),
                tainting.keep(wanted, health, published),
            ));
            wanted = tainted;
        }
        let uid = self.node_uid;
        let scope = Scope {
            node: self.node_name.map(|name| Owner { name, uid }),
            cluster_pool: self.cluster_pool,
            labels,
        };
        let can_publish = scope.node.is_some() || scope.cluster_pool.is_some();
        if can_publish {
            let api = Arc::clone(&api);
            let driver_name = self.driver_name.clone();
            let publisher = publisher::Publisher::new(api, driver_name, scope, move |error| {
                core.report(&error);
            });
            tasks.spawn(until(stop.clone(), publisher.run(wanted)));
        }
        Ok(Plugin {
            stop,
            tasks,
            registration,
            metadata,
            diagnostics_address,
            controls: Controls {
                desired,
                can_publish,
                metrics,
                api,
                driver_name: self.driver_name,
            },
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
            (false, _) => Serialization::Claims(Claims::default()),
            (true, None) => Serialization::Process(Mutex::new(())),
            (true, Some(_)) => Serialization::Host(Mutex::new(()), data_dir.join("serialize.lock")),
        }
    }
}

fn config(text: &str) -> Error {
    Error::Config(text.to_owned())
}

/// The services of the plugin socket.
fn dra_services<D: Driver>(
    core: &Arc<Core<D>>,
    v1: bool,
    v1beta1: bool,
    health: Option<HealthService>,
) -> Services {
    let mut services = Services::new();
    if v1 {
        services = services.with(DraPluginServer::new(ServiceV1(Arc::clone(core))));
    }
    if v1beta1 {
        let service = ServiceV1beta1(Arc::clone(core));
        services = services.with(DraPluginServerV1beta1::new(service));
    }
    if let Some(service) = health {
        services = services
            .with(DraResourceHealthServerV1::new(service.clone()))
            .with(DraResourceHealthServer::new(service));
    }
    services
}

/// Binds a socket. The future serves it until `stop`, also after its file was deleted.
fn serve(
    what: &'static str,
    path: &Path,
    services: Services,
    stop: &CancellationToken,
) -> Result<impl Future<Output = Result<(), Error>> + use<>, Error> {
    let path = path.to_owned();
    let incoming = Incoming::bind(&path).map_err(|source| Error::Io {
        path: path.clone(),
        source,
    })?;
    let stop = stop.clone();
    Ok(async move {
        let served = serve_at(&path, incoming, &services, &stop).await;
        served.map_err(|source| Error::Serve { what, source })
    })
}
