//! The registration service: the kubelet requests the plugin's info and reports whether it accepted
//! it.

use allot_protos::registration as wire;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// The last registration status that the kubelet reported (`NotifyRegistrationStatus`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationStatus {
    /// The kubelet registered the plugin.
    pub registered: bool,
    /// The kubelet's error; empty if it registered the plugin.
    pub error: String,
}

#[derive(Clone)]
pub(crate) struct Registrar {
    pub(crate) info: wire::PluginInfo,
    pub(crate) status: watch::Sender<Option<RegistrationStatus>>,
}

#[tonic::async_trait]
impl wire::registration_server::Registration for Registrar {
    async fn get_info(
        &self,
        _: Request<wire::InfoRequest>,
    ) -> Result<Response<wire::PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> Result<Response<wire::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!(driver = self.info.name, "registered with the kubelet");
        } else {
            tracing::error!(
                driver = self.info.name,
                error = status.error,
                "the kubelet refused the registration"
            );
        }
        self.status.send_replace(Some(RegistrationStatus {
            registered: status.plugin_registered,
            error: status.error,
        }));
        Ok(Response::new(wire::RegistrationStatusResponse {}))
    }
}
