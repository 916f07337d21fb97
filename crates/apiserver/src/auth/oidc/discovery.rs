//! The documents in which issuers say where their keys are.

use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::quote::quote;
use rustls::ClientConfig;
use serde::Deserialize;

use super::fetch;

/// Between two attempts to get one, as upstream.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(10);
const DOCUMENT: &str = "/.well-known/openid-configuration";

/// What counts of the document of an issuer.
#[derive(Deserialize)]
struct Discovered {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

/// Where the keys of an issuer are, as its document says, which is at its URL unless another place is given.
///
/// # Errors
/// The document cannot be fetched, is of another issuer, or names no place.
pub(super) async fn discover(
    tls: &Arc<ClientConfig>,
    url: &str,
    discovery_url: &str,
) -> Result<String, String> {
    let document = match discovery_url {
        "" => format!("{}{DOCUMENT}", url.strip_suffix('/').unwrap_or(url)),
        at => at.to_owned(),
    };
    let document = fetch::get(tls, &document).await?;
    let found: Discovered = serde_json::from_slice(&document)
        .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
    if found.issuer != *url {
        return Err(format!(
            "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
            quote(url),
            quote(crate::webhook::excerpt(&found.issuer))
        ));
    }
    if found.jwks_uri.is_empty() {
        return Err("provider did not return JWKS URL".to_owned());
    }
    Ok(found.jwks_uri)
}
