//! The wire contracts between a kubelet and its plugins: DRA, plugin registration, device health and
//! PodResources, and with its container runtime (CRI), with upstream's package names, message names and field numbers;
//! and the Unix-socket transport that these services need.
//!
//! Invariants:
//! - one module per service version; the messages are plain data, conversions live with their users;
//! - a server built on [`transport`] accepts every `:authority` a Go client sends (see [`transport::Lenient`]),
//!   without a patched HTTP/2 implementation.
//!
//! It must not depend on the meaning of a claim, a pod or a device.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use allot_protos::{registration, transport};
//!
//! let channel = transport::connect("/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock".as_ref()).await?;
//! let mut client = registration::registration_client::RegistrationClient::new(channel);
//! let info = client.get_info(registration::InfoRequest {}).await?.into_inner();
//! assert_eq!(info.r#type, "DRAPlugin");
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod hpack;
pub mod transport;

/// `runtime.v1`: the container runtime interface, as far as the node agent uses it.
#[allow(missing_docs, clippy::all)]
pub mod cri_v1 {
    include!(concat!(env!("OUT_DIR"), "/cri_v1/runtime.v1.rs"));
}

/// `k8s.io.kubelet.pkg.apis.dra.v1`: the DRA service of Kubernetes 1.34 and later.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1 {
    include!(concat!(
        env!("OUT_DIR"),
        "/dra_v1/k8s.io.kubelet.pkg.apis.dra.v1.rs"
    ));
}

/// `k8s.io.kubelet.pkg.apis.dra.v1beta1`: the DRA service of Kubernetes 1.31 to 1.33 and of older drivers.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1beta1 {
    include!(concat!(
        env!("OUT_DIR"),
        "/dra_v1beta1/k8s.io.kubelet.pkg.apis.dra.v1beta1.rs"
    ));
}

/// `v1alpha4.Node`: the DRA service of Kubernetes 1.31.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1alpha4 {
    include!(concat!(env!("OUT_DIR"), "/dra_v1alpha4/v1alpha4.rs"));
}

/// `v1alpha3.Node`: the DRA service of Kubernetes 1.28 to 1.30, with resource handles.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1alpha3 {
    include!(concat!(env!("OUT_DIR"), "/dra_v1alpha3/v1alpha3.rs"));
}

/// `v1alpha2.Node`: the DRA service of Kubernetes 1.27, one resource handle per call.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1alpha2 {
    include!(concat!(env!("OUT_DIR"), "/dra_v1alpha2/v1alpha2.rs"));
}

/// `v1alpha1.Node`: the DRA service of Kubernetes 1.26, one claim per call.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1alpha1 {
    include!(concat!(env!("OUT_DIR"), "/dra_v1alpha1/v1alpha1.rs"));
}

/// `v1alpha1.DRAResourceHealth`: device health streamed by a driver.
#[allow(missing_docs, clippy::all)]
pub mod dra_health_v1alpha1 {
    include!(concat!(env!("OUT_DIR"), "/dra_health_v1alpha1/v1alpha1.rs"));
}

/// `v1.DRAResourceHealth`: the same from Kubernetes 1.37 on, with the messages of [`dra_health_v1alpha1`].
#[allow(missing_docs, clippy::all)]
pub mod dra_health_v1 {
    include!(concat!(env!("OUT_DIR"), "/dra_health_v1/v1.rs"));
}

/// `nri.pkg.api.v1alpha1`: the messages of plugins that adjust containers, as containerd has them.
#[allow(missing_docs, clippy::all)]
pub mod nri {
    include!(concat!(
        env!("OUT_DIR"),
        "/nri_v1alpha1/nri.pkg.api.v1alpha1.rs"
    ));
}

/// `ttrpc`: what carries the calls of [`nri`].
#[allow(missing_docs, clippy::all)]
pub mod ttrpc {
    include!(concat!(env!("OUT_DIR"), "/ttrpc/ttrpc.rs"));
}

/// `pluginregistration.Registration`: how a plugin introduces itself.
#[allow(missing_docs, clippy::all)]
pub mod registration {
    include!(concat!(
        env!("OUT_DIR"),
        "/pluginregistration_v1/pluginregistration.rs"
    ));
}

/// `v1.PodResourcesLister`: the devices of the containers on this node.
#[allow(missing_docs, clippy::all)]
pub mod podresources_v1 {
    include!(concat!(env!("OUT_DIR"), "/podresources_v1/v1.rs"));
}

/// `v1alpha1.PodResourcesLister`: the same for older monitoring agents.
#[allow(missing_docs, clippy::all)]
pub mod podresources_v1alpha1 {
    include!(concat!(
        env!("OUT_DIR"),
        "/podresources_v1alpha1/v1alpha1.rs"
    ));
}

/// The type under which a DRA driver registers (`PluginInfo.type`).
pub const DRA_PLUGIN_TYPE: &str = "DRAPlugin";

/// Service names as they appear in `PluginInfo.supported_versions`; not the gRPC service names.
pub mod service_name {
    /// [`crate::dra_v1`].
    pub const DRA_V1: &str = "v1.DRAPlugin";
    /// [`crate::dra_v1beta1`].
    pub const DRA_V1BETA1: &str = "v1beta1.DRAPlugin";
    /// [`crate::dra_v1alpha1`] to [`crate::dra_v1alpha4`]: a version of the plugin and not the name of a service.
    /// Which service it has is determined by calling.
    pub const DRA_CLASSIC: &str = "1.0.0";
    /// [`crate::dra_health_v1`].
    pub const HEALTH_V1: &str = "v1.DRAResourceHealth";
    /// [`crate::dra_health_v1alpha1`].
    pub const HEALTH_V1ALPHA1: &str = "v1alpha1.DRAResourceHealth";
}
