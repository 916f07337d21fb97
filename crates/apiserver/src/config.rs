//! Options of the server.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use crate::identity::User;
use crate::limits::Limits;
use crate::registry::RuntimeConfig;

mod addresses;
mod admission;
pub mod authentication;
pub mod authorization;
mod credentials;
mod decode;
mod front_proxy;
mod kubeconfig;
mod log_verbosity;
pub mod pod_security;
mod token_webhook;
mod tokens;

pub use addresses::{RangeError, ServiceAddresses, ServiceRange};
pub use authentication::{Anonymous, TokenIssuer};
pub use authorization::{AuthorizationMode, ReviewVersion};
pub use credentials::Credentials;
pub(crate) use credentials::WebhookUser;
pub use front_proxy::{FrontProxy, RequestHeaders};
pub(crate) use front_proxy::{Unusable, is_identity};

/// Options; the defaults serve tests and `allot up`.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which API versions are served beyond the default.
    pub runtime_config: RuntimeConfig,
    /// Static bearer tokens.
    pub tokens: BTreeMap<String, User>,
    /// Issuers of bearer tokens that prove an identity, beside this server.
    pub token_issuers: Vec<Arc<TokenIssuer>>,
    /// The webhook that authenticates bearer tokens which the server does not know.
    pub token_webhook: Option<TokenWebhook>,
    /// Whether the tokens in secrets of type `bootstrap.kubernetes.io/token` prove an identity.
    pub bootstrap_tokens: bool,
    /// Which requests without credentials get the identity `system:anonymous` instead of 401.
    pub anonymous: Anonymous,
    /// Authorization modes in order.
    pub authorization: Vec<AuthorizationMode>,
    /// Admission plugins to enable in addition to the default ones.
    pub enabled_admission: Vec<String>,
    /// Admission plugins that are switched off.
    pub disabled_admission: Vec<String>,
    /// Configuration of admission plugins.
    pub admission: AdmissionOptions,
    /// Tokens of service accounts.
    pub account_tokens: AccountTokens,
    /// Client certificate and key for kubelets, PEM.
    pub kubelet_client: Option<KubeletClient>,
    /// Name of the machine for the server's identity Lease; empty: the address of the server.
    pub host_name: String,
    /// Identities in headers: towards extension API servers, and from proxies before this server.
    pub front_proxy: FrontProxy,
    /// Address of this server for the service `kubernetes`; no such service if absent.
    pub advertise: Option<std::net::SocketAddr>,
    /// Whether a controller creates the service account `default` of every namespace, so that pods always wait for it.
    pub accounts_are_made: bool,
    /// Addresses that services get.
    pub service_addresses: ServiceAddresses,
    /// Ports that services open on nodes.
    pub node_ports: NodePorts,
    /// The flags that the server was started with, and their values, for `/flagz`.
    pub flags: BTreeMap<&'static str, String>,
    /// Changes the verbosity of the log for `/debug/flags/v`; the path is not served if absent.
    pub log_verbosity: Option<LogVerbosity>,
    /// Feature gates of the resource API.
    pub features: allot_model::features::Features,
    /// The audit policy and the destination of the audit log.
    pub audit: Option<std::sync::Arc<crate::audit::Audit>>,
    /// Limits and time-outs.
    pub limits: Limits,
    /// Value of the header `Strict-Transport-Security` of all answers; none is sent if absent.
    pub strict_transport_security: Option<http::HeaderValue>,
}

pub use admission::{
    AdmissionOptions, EventLimit, EventLimitKind, ImagePolicy, LimitedResource, Toleration,
    TolerationDefaults, WebhookOptions,
};
pub use kubeconfig::{Credential, Kubeconfig, Trusted};
pub use log_verbosity::LogVerbosity;
pub use token_webhook::TokenWebhook;
pub use tokens::AccountTokens;

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

impl Default for Config {
    fn default() -> Self {
        Config {
            runtime_config: RuntimeConfig::default(),
            tokens: BTreeMap::new(),
            token_issuers: Vec::new(),
            token_webhook: None,
            bootstrap_tokens: false,
            anonymous: Anonymous::Everywhere,
            authorization: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            enabled_admission: Vec::new(),
            disabled_admission: Vec::new(),
            admission: AdmissionOptions::default(),
            account_tokens: AccountTokens::default(),
            kubelet_client: None,
            host_name: String::new(),
            front_proxy: FrontProxy::default(),
            advertise: None,
            accounts_are_made: false,
            service_addresses: ServiceAddresses::default(),
            node_ports: NodePorts::default(),
            flags: BTreeMap::new(),
            log_verbosity: None,
            features: Default::default(),
            audit: None,
            limits: Limits::default(),
            strict_transport_security: None,
        }
    }
}

/// The header `Strict-Transport-Security` from the directives that `--strict-transport-security-directives` names.
///
/// ```
/// use allot_apiserver::config::transport_security;
///
/// let directives = ["max-age=60".to_owned(), "preload".to_owned()];
/// assert_eq!(transport_security(&directives).unwrap().unwrap(), "max-age=60; preload");
/// assert!(transport_security(&["max-age=x".to_owned()]).is_err());
/// ```
///
/// # Errors
/// kube-apiserver's text for a directive that RFC 6797 does not have.
pub fn transport_security(directives: &[String]) -> Result<Option<http::HeaderValue>, String> {
    let known = |directive: &String| match directive.strip_prefix("max-age=") {
        Some(age) => !age.is_empty() && age.bytes().all(|byte| byte.is_ascii_digit()),
        None => matches!(directive.as_str(), "includeSubDomains" | "preload"),
    };
    if !directives.iter().all(known) {
        return Err(
            "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
             preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
                .to_owned(),
        );
    }
    // Known directives are plain ASCII.
    Ok((!directives.is_empty())
        .then(|| http::HeaderValue::from_str(&directives.join("; ")).ok())
        .flatten())
}

/// The ports that services may open on nodes, as `--service-node-port-range` names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePorts(pub RangeInclusive<u16>);

impl Default for NodePorts {
    fn default() -> Self {
        NodePorts(30000..=32767)
    }
}

impl fmt::Display for NodePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for NodePorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('-').and_then(|(first, last)| {
            Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
        });
        match parts {
            Some((first, last)) if 0 < first && first <= last => Ok(NodePorts(first..=last)),
            _ => Err(format!(
                "{text:?} is no range of ports such as {}",
                Self::default()
            )),
        }
    }
}
