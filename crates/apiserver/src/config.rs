//! Options of the server.

use std::collections::BTreeMap;

use crate::identity::User;
use crate::registry::RuntimeConfig;

/// Options; the defaults serve tests and `allot up`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which API versions are served beyond the default.
    pub runtime_config: RuntimeConfig,
    /// Static bearer tokens.
    pub tokens: BTreeMap<String, User>,
    /// Requests without credentials get the identity `system:anonymous` instead of 401.
    pub anonymous: bool,
    /// Authorization modes in order.
    pub authorization: Vec<AuthorizationMode>,
    /// Admission plugins that are switched off.
    pub disabled_admission: Vec<String>,
    /// Admission plugins that are switched on beyond the default.
    pub enabled_admission: Vec<String>,
    /// Issuer of service-account tokens.
    pub service_account_issuer: String,
    /// PKCS#8 key (ES256) for service-account tokens; one is made at start if absent.
    pub service_account_key: Option<Vec<u8>>,
    /// Client certificate and key for kubelets, PEM.
    pub kubelet_client: Option<KubeletClient>,
    /// Addresses that the `kubernetes` service stands for.
    pub advertise: Option<std::net::SocketAddr>,
    /// Feature gates of the resource API.
    pub features: allot_model::features::Features,
    /// Longest time for a request that is not a stream.
    pub request_timeout: std::time::Duration,
}

/// How the server proves itself to kubelets.
#[derive(Debug, Clone)]
pub struct KubeletClient {
    /// Certificate chain, PEM.
    pub certificate: String,
    /// Private key, PEM.
    pub key: String,
    /// CA that kubelet serving certificates must come from; not verified if absent, as kube-apiserver does.
    pub ca: Option<String>,
}

/// One authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Node agents, by what runs on their node.
    Node,
    /// Roles and bindings.
    Rbac,
    /// Everything is allowed.
    AlwaysAllow,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            runtime_config: RuntimeConfig::default(),
            tokens: BTreeMap::new(),
            anonymous: true,
            authorization: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            disabled_admission: Vec::new(),
            enabled_admission: Vec::new(),
            service_account_issuer: "https://kubernetes.default.svc".to_owned(),
            service_account_key: None,
            kubelet_client: None,
            advertise: None,
            features: Default::default(),
            request_timeout: std::time::Duration::from_secs(60),
        }
    }
}
