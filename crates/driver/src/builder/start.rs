//! Starts what a [`Builder`] configures: state from the checkpoint, gRPC services, registration, background tasks.

use std::collections::BTreeMap;
use std::path::Path;
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

use super::sockets::rolling_socket;
use super::{Builder, kubelet, lock};
use crate::api::ResourceApi;
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
use crate::unhealthy::Tainting;
use crate::{Driver, Plugin};

impl<D: Driver> Builder<D> {
    /// Starts the servers. On return the DRA service answers, and the kubelet can find the registration socket.
    ///
    /// # Errors
    /// A missing option, a directory or socket that cannot be used, another instance that runs.
    pub async fn start(self) -> Result<Plugin, Error> {
        let config = |text: &str| Error::Config(text.to_owned());
        if self.driver_name.is_empty() {
            return Err(config("driver name must be set"));
        }
        let client = self
            .client
            .ok_or_else(|| config("Kubernetes client must be set"))?;
        let mut health = self.driver.health();
        let (desired, mut wanted) = watch::channel(None);
        let mut injection = None;
        if self.injected_failures {
            let node = self.node_name.clone();
            let node = node.ok_or_else(|| config("injected failures need a node name"))?;
            let name = self.driver_name.clone();
            let made = Injection::new(client.clone(), node, name, wanted, health);
            wanted = made.published();
            health = Some(made.health());
            injection = Some(made);
        }
        let mut supported = Vec::new();
        supported.extend(self.v1.then_some(service_name::DRA_V1));
        supported.extend(self.v1beta1.then_some(service_name::DRA_V1BETA1));
        if supported.is_empty() {
            return Err(config(
                "no supported DRA gRPC API is implemented and enabled",
            ));
        }
        let tainting = match (self.taint_unhealthy, &health) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(config("taints for unhealthy devices need Driver::health"));
            }
            (Some(effect), Some(health)) => {
                let tainting = Tainting::new(&self.driver_name, effect)?;
                Some((tainting, health.clone()))
            }
        };
        if health.is_some() {
            supported.extend([service_name::HEALTH_V1, service_name::HEALTH_V1ALPHA1]);
        }
        if let Some(kind) = &self.cdi_kind {
            allot_cdi::check_written_kind(kind)?;
        }
        // Before anything is written: nothing must be left below a wrong root directory.
        kubelet::wait(&self.registrar_dir, self.kubelet_timeout).await?;

        let data_dir = self
            .data_dir
            .unwrap_or_else(|| Path::new("/var/lib/kubelet/plugins").join(&self.driver_name));
        std::fs::create_dir_all(&data_dir).map_err(|source| Error::Io {
            path: data_dir.clone(),
            source,
        })?;
        let instance = lock::acquire(&data_dir, self.rolling_update.is_some()).await?;
        let (plugin_socket, registrar_socket) = match &self.rolling_update {
            Some(uid) => (
                data_dir.join(format!("dra-{uid}.sock")),
                rolling_socket(&self.registrar_dir, &self.driver_name, uid),
            ),
            None => (
                data_dir.join("dra.sock"),
                self.registrar_dir
                    .join(format!("{}-reg.sock", self.driver_name)),
            ),
        };

        let metadata = self.metadata.then(|| {
            Arc::new(Writer {
                driver: self.driver_name.clone(),
                data_dir: data_dir.clone(),
                cdi_dir: self.cdi_dir.clone(),
                lock: parking_lot::Mutex::default(),
            })
        });
        let cdi = self.cdi_kind.map(|kind| Cdi {
            kind,
            directory: self.cdi_dir,
            common: self.cdi_common,
        });
        let checkpoint_path = self.checkpoint.then(|| data_dir.join("checkpoint.json"));
        if self.rolling_update.is_none() {
            // A process that was killed may have left files that it was writing. They do no harm, but may become many.
            let common = cdi.as_ref().map(Cdi::common_file);
            for path in checkpoint_path.iter().chain(&common) {
                let _ = allot_cdi::file::remove_unfinished(path);
            }
        }
        if let Some(cdi) = &cdi {
            cdi.write_common()?;
        }
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
            driver: self.driver,
            api: Arc::clone(&api),
            cdi,
            metadata: metadata.clone(),
            serialization: match (self.serialize, &self.rolling_update) {
                (false, _) => Serialization::Claims(Claims::default()),
                (true, None) => Serialization::Process(Mutex::new(())),
                (true, Some(_)) => {
                    Serialization::Host(Mutex::new(()), data_dir.join("serialize.lock"))
                }
            },
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
        let mut services = Services::new();
        if self.v1 {
            services = services.with(DraPluginServer::new(ServiceV1(Arc::clone(&core))));
        }
        if self.v1beta1 {
            services = services.with(DraPluginServerV1beta1::new(ServiceV1beta1(Arc::clone(
                &core,
            ))));
        }
        if let Some(source) = health {
            let awaits_first = injection.is_some();
            let service = HealthService {
                source,
                awaits_first,
            };
            services = services
                .with(DraResourceHealthServerV1::new(service.clone()))
                .with(DraResourceHealthServer::new(service));
        }
        let serve = |what, path: &Path, services: Services| {
            let incoming = Incoming::bind(path).map_err(|source| Error::Io {
                path: path.to_owned(),
                source,
            })?;
            let stopped = stop.clone().cancelled_owned();
            Ok::<_, Error>(async move {
                let result = services.serve(incoming, stopped).await;
                result.map_err(|source| Error::Serve { what, source })
            })
        };
        tasks.spawn(serve("DRA gRPC server", &plugin_socket, services)?);

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
        tasks.spawn(serve("registrar gRPC server", &registrar_socket, services)?);

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
}
