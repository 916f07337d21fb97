//! The servers and background tasks of a plugin that has started.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use allot_protos::dra_health_v1::dra_resource_health_server::DraResourceHealthServer as DraResourceHealthServerV1;
use allot_protos::dra_health_v1alpha1::dra_resource_health_server::DraResourceHealthServer;
use allot_protos::dra_v1::dra_plugin_server::DraPluginServer;
use allot_protos::dra_v1beta1::dra_plugin_server::DraPluginServer as DraPluginServerV1beta1;
use allot_protos::registration::PluginInfo;
use allot_protos::registration::registration_server::RegistrationServer;
use allot_protos::transport::{Incoming, Services};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::sockets::serve_at;
use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::health::HealthService;
use crate::injected::Injection;
use crate::plugin::until;
use crate::publisher::{Publisher, Scope};
use crate::registrar::{Registrar, RegistrationStatus};
use crate::service::{Core, ServiceV1, ServiceV1beta1};
use crate::unhealthy::{Desired, Tainting};
use crate::{DeviceHealth, Driver};

/// The health of all devices, as the driver reports it.
pub(super) type HealthReports = watch::Receiver<Vec<DeviceHealth>>;

/// Where the published devices and their health come from.
pub(super) struct Sources {
    /// The devices to publish, before the taints of unhealthy ones.
    pub(super) wanted: watch::Receiver<Desired>,
    pub(super) health: Option<HealthReports>,
    /// Failures that annotations of the node ask for. `wanted` and `health` are what it makes of the driver's.
    pub(super) injection: Option<Injection>,
    /// The taints of unhealthy devices, with the health that they follow.
    pub(super) tainting: Option<(Tainting, HealthReports)>,
}

impl Sources {
    pub(super) fn health_service(&self) -> Option<HealthService> {
        self.health.clone().map(|source| HealthService {
            source,
            awaits_first: self.injection.is_some(),
        })
    }
}

/// Tasks that run until the plugin stops, or one of them fails.
#[derive(Default)]
pub(super) struct Background {
    pub(super) stop: CancellationToken,
    pub(super) tasks: JoinSet<Result<(), Error>>,
}

impl Background {
    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(until(self.stop.clone(), work));
    }

    /// Repairs the files of prepared claims, and unprepares claims that are gone. Holds the lock of
    /// the data directory for as long.
    pub(super) fn keep_state<D: Driver>(&mut self, core: &Arc<Core<D>>, lock: File) {
        let (files, claims) = (Arc::clone(core), Arc::clone(core));
        self.spawn(async move {
            let _lock = lock;
            tokio::join!(files.keep_files(), claims.unprepare_gone());
        });
    }

    /// Binds a socket, and serves it also after its file was deleted.
    pub(super) fn serve(
        &mut self,
        what: &'static str,
        path: &Path,
        services: Services,
    ) -> Result<(), Error> {
        let path = path.to_owned();
        let incoming = Incoming::bind(&path).map_err(|source| Error::Io {
            path: path.clone(),
            source,
        })?;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let served = serve_at(&path, incoming, &services, &stop).await;
            served.map_err(|source| Error::Serve { what, source })
        });
        Ok(())
    }

    /// Serves the registration, and returns what the kubelet says to it.
    pub(super) fn register(
        &mut self,
        info: PluginInfo,
        socket: &Path,
    ) -> Result<watch::Receiver<Option<RegistrationStatus>>, Error> {
        let (status, registration) = watch::channel(None);
        let services = Services::new().with(RegistrationServer::new(Registrar { info, status }));
        self.serve("registrar gRPC server", socket, services)?;
        Ok(registration)
    }

    /// Answers probes, and requests for metrics.
    pub(super) fn diagnose<D: Driver>(
        &mut self,
        core: &Core<D>,
        registration: watch::Receiver<Option<RegistrationStatus>>,
        listener: TcpListener,
    ) {
        let diagnostics = Diagnostics {
            metrics: Arc::clone(&core.metrics),
            registration,
            checkpoint: Arc::clone(&core.checkpoint),
        };
        self.spawn(diagnostics.serve(listener));
    }

    /// Publishes the devices in a scope, with the taints of unhealthy ones; without a scope nothing.
    pub(super) fn publish<D: Driver>(
        &mut self,
        core: &Arc<Core<D>>,
        sources: Sources,
        scope: Option<Scope>,
    ) {
        let mut wanted = sources.wanted;
        if let Some(injection) = sources.injection {
            self.spawn(injection.run());
        }
        if let Some((tainting, health)) = sources.tainting {
            let (published, tainted) = watch::channel(None);
            self.spawn(tainting.keep(wanted, health, published));
            wanted = tainted;
        }
        let Some(scope) = scope else {
            return;
        };
        let (api, name) = (Arc::clone(&core.api), core.driver_name.clone());
        let core = Arc::clone(core);
        let publisher = Publisher::new(api, name, scope, move |error| core.report(&error));
        self.spawn(publisher.run(wanted));
    }
}

/// The services of the plugin socket.
pub(super) fn dra_services<D: Driver>(
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
