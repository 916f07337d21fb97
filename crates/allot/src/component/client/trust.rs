//! Trust in servers: as with Go's clients, the CA of the server must be valid as well. The library does not check that.

use std::sync::Arc;

use allot_certificates::Trust;
use allot_certificates::roots::{Roots, is_valid};
use kube::client::ConfigExt;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};

/// TLS for the server of a configuration.
///
/// # Errors
/// Certificates or keys that cannot be used.
pub(super) fn tls(config: &kube::Config) -> anyhow::Result<ClientConfig> {
    let mut tls = config.rustls_client_config()?;
    if config.accept_invalid_certs {
        return Ok(tls);
    }
    let provider = Arc::clone(tls.crypto_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match (&config.root_cert_file, &config.root_cert) {
        (Some(file), _) => {
            let trust = Trust::of_file(file.clone(), provider);
            Arc::new(trust.map_err(anyhow::Error::msg)?)
        }
        (None, Some(roots)) => Arc::new(of(roots.iter().cloned().map(Into::into), provider)),
        (None, None) => {
            let all = rustls_native_certs::load_native_certs().certs;
            Arc::new(of(all.into_iter(), provider))
        }
    };
    tls.dangerous().set_certificate_verifier(verifier);
    Ok(tls)
}

/// Leaves out the authorities that are not valid now, for clients that do not look at that.
pub(super) fn forget_expired(config: &mut kube::Config) {
    if let Some(roots) = &mut config.root_cert {
        roots.retain(|root| is_valid(root, UnixTime::now()));
    }
}

fn of(
    certificates: impl Iterator<Item = CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Trust {
    Trust::new(Roots::readable(certificates), provider)
}
