//! An admission webhook that refuses claims with wrong parameters when they are created, with the function that
//! [`crate::Driver::prepare`] reads them with. Without it a user learns of a misspelt field only from the events of a pod
//! that does not start.
//!
//! It is a process of its own, usually a Deployment of the same image as the driver:
//!
//! ```no_run
//! # #[derive(serde::Deserialize)]
//! # #[serde(deny_unknown_fields)]
//! # struct LedConfig {}
//! # impl LedConfig {
//! #     fn parse(parameters: &serde_json::Value) -> Result<Self, serde_json::Error> {
//! #         serde::Deserialize::deserialize(parameters)
//! #     }
//! # }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use allot_driver::webhook::Webhook;
//!
//! let server = Webhook::new()
//!     .driver("leds.example.com", LedConfig::parse)
//!     .certificate("/cert/tls.crt", "/cert/tls.key")
//!     .address(([0, 0, 0, 0], 8443).into())
//!     .start()
//!     .await?;
//! server.serve_until(allot_driver::termination()).await;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! - only parameters of the named drivers are read, and parameters that a stored object has already are not checked again:
//!   an object that is older than the webhook can be changed, for example by a controller that removes its finalizer;
//! - a request that cannot be judged (unreadable, too large, a panic of the driver's function) is never allowed: it is
//!   answered with an HTTP error, and the `failurePolicy` of the configuration decides;
//! - connections, bodies, reviews at the same time and the time of each are bounded; a review takes its place when its
//!   body is complete, so that slow clients delay no other review.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;

use crate::error::Error;

mod certificate;
mod review;
mod serve;
#[cfg(test)]
mod tests;

pub use certificate::Certificate;
use serve::Shared;

/// The path of reviews, which a ValidatingWebhookConfiguration names. It is that of upstream's example driver.
pub const PATH: &str = "/validate-resource-claim-parameters";

/// Judges parameters: the text of the error is for users.
type Check = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;
/// The functions by the name of the driver.
type Checks = BTreeMap<String, Check>;

/// The options of a webhook.
pub struct Webhook {
    checks: Checks,
    certificate: Option<(PathBuf, PathBuf)>,
    address: SocketAddr,
}

impl Default for Webhook {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("drivers", &self.checks.keys())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Without drivers and certificate, on port 8443 of all IPv4 addresses.
    pub fn new() -> Self {
        Self {
            checks: Checks::new(),
            certificate: None,
            address: (Ipv4Addr::UNSPECIFIED, 8443).into(),
        }
    }

    /// Checks the parameters for `driver` with `parse`, whose error is what the user reads. The value is not used. May be
    /// called for several drivers.
    ///
    /// `parse` runs on a thread that may block. One that takes longer than the webhook waits (10 s) keeps its place among
    /// the reviews that run at the same time.
    #[must_use]
    pub fn driver<T, E: Display>(
        mut self,
        driver: impl Into<String>,
        parse: impl Fn(&Value) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let check = move |parameters: &Value| match parse(parameters) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        self.checks.insert(driver.into(), Box::new(check));
        self
    }

    /// The PEM files of the certificate chain and its key. They are read again when they change: a renewed certificate
    /// applies from the next connection on.
    #[must_use]
    pub fn certificate(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some((chain.into(), key.into()));
        self
    }

    /// Where to listen; port 0 picks a free port, see [`Server::address`].
    #[must_use]
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Reads the certificate and listens. Connections are served by [`Server::serve_until`].
    ///
    /// # Errors
    /// No driver or certificate, an unusable certificate, an address that cannot be listened on.
    pub async fn start(self) -> Result<Server, Error> {
        let config = |text: &str| Error::Config(text.to_owned());
        if self.checks.is_empty() {
            return Err(config("the webhook has no driver: call Webhook::driver"));
        }
        let (chain, key) = self.certificate.ok_or_else(|| {
            config("the webhook has no certificate: call Webhook::certificate; API servers use HTTPS only")
        })?;
        let certificate = Certificate::load(chain, key)?;
        let address = self.address;
        let listen = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        Ok(Server {
            listener,
            address,
            certificate: Arc::new(certificate),
            shared: Arc::new(Shared::new(self.checks)),
        })
    }
}

/// A webhook that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves [`PATH`], and `/healthz`, `/livez` and `/readyz` for probes, until `shutdown` completes; requests in
    /// progress are answered after that.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()>) {
        tracing::info!(address = %self.address, "the webhook serves");
        serve::serve(self.listener, self.certificate, self.shared, shutdown).await;
    }
}
