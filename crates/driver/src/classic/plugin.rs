//! The part of a classic driver that runs on every node, as the kubelet of 1.26 to 1.30 talks to it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use allot_protos::registration::PluginInfo;
use allot_protos::registration::registration_server::RegistrationServer;
use allot_protos::transport::{Incoming, Services};
use allot_protos::{
    DRA_PLUGIN_TYPE, dra_v1alpha1 as v1alpha1, dra_v1alpha2 as v1alpha2, dra_v1alpha3 as v1alpha3,
    service_name,
};
use futures::{Stream, StreamExt};
use tokio::sync::{Mutex, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::Instance;
use super::structured::{self, Handle};
use crate::registrar::Registrar;
use crate::{ClaimRef, Error, Failure, RegistrationStatus};

/// What a driver does on a node. Calls never overlap.
pub trait NodeDriver: Send + Sync + 'static {
    /// Prepares a claim on this node; returns CDI names, `vendor/class=name`. Must be idempotent.
    ///
    /// # Errors
    /// The text reaches the pod's events; the kubelet tries again later.
    fn prepare(
        &self,
        claim: &ClaimRef,
        handle: &Handle,
    ) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Reverts [`NodeDriver::prepare`]. Must succeed when there is nothing to do.
    ///
    /// # Errors
    /// The pod stays terminating and the kubelet retries.
    fn unprepare(&self, claim: &ClaimRef) -> impl Future<Output = Result<(), Failure>> + Send;

    /// What this node has, for the scheduler of 1.30; each value is the full list. `None` (the default) for a driver
    /// whose controller allocates.
    fn resources(&self) -> Option<watch::Receiver<Vec<Instance>>> {
        None
    }
}

/// A driver on a node. It offers the services v1alpha1, v1alpha2 and v1alpha3 on one socket.
#[derive(Debug)]
pub struct NodePlugin<D> {
    name: String,
    driver: D,
    registrar_dir: PathBuf,
    socket: PathBuf,
    address: Option<PathBuf>,
    status: watch::Sender<Option<RegistrationStatus>>,
}

impl<D: NodeDriver> NodePlugin<D> {
    /// A plugin with its sockets below the kubelet's root directory.
    pub fn new(driver_name: impl Into<String>, driver: D, kubelet_dir: impl AsRef<Path>) -> Self {
        let (name, kubelet_dir) = (driver_name.into(), kubelet_dir.as_ref());
        Self {
            registrar_dir: kubelet_dir.join("plugins_registry"),
            socket: kubelet_dir.join("plugins").join(&name).join("dra.sock"),
            address: None,
            status: watch::channel(None).0,
            name,
            driver,
        }
    }

    /// Directory of the registration socket `<driver>-reg.sock`. It must exist: a kubelet watches it.
    #[must_use]
    pub fn registrar_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.registrar_dir = directory.into();
        self
    }

    /// Path of the service socket; its directory is created when missing.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = path.into();
        self
    }

    /// The socket's path for the kubelet, if it sees the file system differently.
    #[must_use]
    pub fn address(mut self, path: impl Into<PathBuf>) -> Self {
        self.address = Some(path.into());
        self
    }

    /// Changes whenever the kubelet accepts or refuses the plugin; `None` until then.
    pub fn registration(&self) -> watch::Receiver<Option<RegistrationStatus>> {
        self.status.subscribe()
    }

    /// Runs until `shutdown`; removes the sockets then.
    ///
    /// # Errors
    /// A directory or socket that cannot be used, a server that fails.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let bind = |path: &Path| {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            Incoming::bind(path)
        };
        let bind = |path: &Path| {
            bind(path).map_err(|source| Error::Io {
                path: path.to_owned(),
                source,
            })
        };
        let service = bind(&self.socket)?;
        let endpoint = self.address.unwrap_or_else(|| self.socket.clone());
        let registrar = Registrar {
            info: PluginInfo {
                r#type: DRA_PLUGIN_TYPE.to_owned(),
                endpoint: endpoint.display().to_string(),
                supported_versions: vec![service_name::DRA_CLASSIC.to_owned()],
                name: self.name.clone(),
            },
            status: self.status,
        };
        let node = Node(Arc::new(Shared {
            driver: self.driver,
            one: Mutex::new(()),
        }));
        let services = Services::new()
            .with(v1alpha1::node_server::NodeServer::new(node.clone()))
            .with(v1alpha2::node_server::NodeServer::new(node.clone()))
            .with(v1alpha3::node_server::NodeServer::new(node));
        let registration = bind(&self.registrar_dir.join(format!("{}-reg.sock", self.name)))?;
        let serve = services.serve(service, shutdown.clone().cancelled_owned());
        let register = Services::new()
            .with(RegistrationServer::new(registrar))
            .serve(registration, shutdown.cancelled_owned());
        let failed = |what| move |source| Error::Serve { what, source };
        let served = async { serve.await.map_err(failed("DRA gRPC server")) };
        let registered = async { register.await.map_err(failed("registrar gRPC server")) };
        tokio::try_join!(served, registered).map(drop)
    }
}

struct Shared<D> {
    driver: D,
    /// Held while the driver works.
    one: Mutex<()>,
}

struct Node<D>(Arc<Shared<D>>);

impl<D> Clone for Node<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: NodeDriver> Node<D> {
    async fn prepare(&self, claim: &ClaimRef, handle: &Handle) -> Result<Vec<String>, Failure> {
        let _one = self.0.one.lock().await;
        let prepared = self.0.driver.prepare(claim, handle).await;
        prepared.inspect_err(|error| {
            tracing::warn!(%claim, %error, "claim could not be prepared");
        })
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Failure> {
        let _one = self.0.one.lock().await;
        self.0.driver.unprepare(claim).await
    }
}

/// The services with one claim per call; they differ in what the kubelet repeats when it gives a claim back.
macro_rules! serve_one {
    ($wire:ident) => {
        #[tonic::async_trait]
        impl<D: NodeDriver> $wire::node_server::Node for Node<D> {
            async fn node_prepare_resource(
                &self,
                request: Request<$wire::NodePrepareResourceRequest>,
            ) -> Result<Response<$wire::NodePrepareResourceResponse>, Status> {
                let request = request.into_inner();
                let claim = ClaimRef {
                    namespace: request.namespace,
                    name: request.claim_name,
                    uid: request.claim_uid,
                };
                let handle = Handle::Opaque(request.resource_handle);
                let cdi_devices = self
                    .prepare(&claim, &handle)
                    .await
                    .map_err(|error| Status::unknown(error.to_string()))?;
                Ok(Response::new($wire::NodePrepareResourceResponse {
                    cdi_devices,
                }))
            }

            async fn node_unprepare_resource(
                &self,
                request: Request<$wire::NodeUnprepareResourceRequest>,
            ) -> Result<Response<$wire::NodeUnprepareResourceResponse>, Status> {
                let request = request.into_inner();
                let claim = ClaimRef {
                    namespace: request.namespace,
                    name: request.claim_name,
                    uid: request.claim_uid,
                };
                self.unprepare(&claim)
                    .await
                    .map_err(|error| Status::unknown(error.to_string()))?;
                Ok(Response::new($wire::NodeUnprepareResourceResponse {}))
            }
        }
    };
}

serve_one!(v1alpha1);
serve_one!(v1alpha2);

type Resources =
    Pin<Box<dyn Stream<Item = Result<v1alpha3::NodeListAndWatchResourcesResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<D: NodeDriver> v1alpha3::node_server::Node for Node<D> {
    type NodeListAndWatchResourcesStream = Resources;

    async fn node_prepare_resources(
        &self,
        request: Request<v1alpha3::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1alpha3::NodePrepareResourcesResponse>, Status> {
        let mut claims: HashMap<String, v1alpha3::NodePrepareResourceResponse> = HashMap::new();
        for claim in request.into_inner().claims {
            let (claim, handle) = split(claim);
            let answer = claims.entry(claim.uid.clone()).or_default();
            match self.prepare(&claim, &handle).await {
                Ok(devices) => answer.cdi_devices.extend(devices),
                Err(error) => answer.error = error.to_string(),
            }
        }
        Ok(Response::new(v1alpha3::NodePrepareResourcesResponse {
            claims,
        }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1alpha3::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1alpha3::NodeUnprepareResourcesResponse>, Status> {
        let mut claims: HashMap<String, v1alpha3::NodeUnprepareResourceResponse> = HashMap::new();
        for claim in request.into_inner().claims {
            let (claim, _) = split(claim);
            let result = self.unprepare(&claim).await;
            let answer = claims.entry(claim.uid).or_default();
            answer
                .error
                .extend(result.err().map(|error| error.to_string()));
        }
        Ok(Response::new(v1alpha3::NodeUnprepareResourcesResponse {
            claims,
        }))
    }

    async fn node_list_and_watch_resources(
        &self,
        _: Request<v1alpha3::NodeListAndWatchResourcesRequest>,
    ) -> Result<Response<Resources>, Status> {
        let Some(resources) = self.0.driver.resources() else {
            return Err(Status::unimplemented(
                "this driver has no structured resources",
            ));
        };
        let message = |instances: Vec<Instance>| {
            let instances = instances.iter().map(structured::instance).collect();
            let named_resources = Some(v1alpha3::NamedResourcesResources { instances });
            Ok(v1alpha3::NodeListAndWatchResourcesResponse {
                resources: vec![v1alpha3::ResourceModel { named_resources }],
            })
        };
        Ok(Response::new(Box::pin(
            WatchStream::new(resources).map(message),
        )))
    }
}

fn split(claim: v1alpha3::Claim) -> (ClaimRef, Handle) {
    let handle = match claim.structured_resource_handle.into_iter().next() {
        Some(handle) => Handle::Structured(structured::handle(handle)),
        None => Handle::Opaque(claim.resource_handle),
    };
    let claim = ClaimRef {
        namespace: claim.namespace,
        name: claim.name,
        uid: claim.uid,
    };
    (claim, handle)
}
