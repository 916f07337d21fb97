//! Warnings about TLS secrets whose certificate or key a server cannot load.

use allot_apimachinery::pem::blocks;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::validate::text;

const CERTIFICATE: &str = "CERTIFICATE";

/// Warnings about a secret: upstream loads the pair of a TLS secret. Whether the key belongs to the certificate is not
/// checked here.
pub(super) fn warnings(secret: &Value) -> Vec<String> {
    if text(secret, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let [certificate, key] = ["tls.crt", "tls.key"].map(|key| {
        let data = STANDARD.decode(text(&secret["data"], key));
        String::from_utf8_lossy(&data.unwrap_or_default()).into_owned()
    });
    let error = load(&certificate, &key).err();
    error.iter().map(ToString::to_string).collect()
}

/// Why a certificate and its key cannot be loaded; the texts are those of Go's `tls.X509KeyPair`.
#[derive(Debug, thiserror::Error)]
enum KeyPairError {
    #[error("tls: failed to find any PEM data in {0} input")]
    NoPem(&'static str),
    #[error(
        "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
    )]
    KeyForCertificate,
    #[error(
        "tls: failed to find \"{CERTIFICATE}\" PEM block in certificate input after skipping PEM blocks of the following types: [{0}]"
    )]
    NoCertificate(String),
    #[error("tls: found a certificate rather than a key in the PEM for the private key")]
    CertificateForKey,
    #[error(
        "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{0}]"
    )]
    NoKey(String),
    #[error("x509: malformed certificate")]
    Certificate,
    #[error("tls: failed to parse private key")]
    Key,
}

/// Checks that a certificate and its key can be loaded, as Go's `tls.X509KeyPair`.
fn load(certificate: &str, key: &str) -> Result<(), KeyPairError> {
    let found = blocks(certificate);
    let Some(first) = found.iter().find(|block| block.label == CERTIFICATE) else {
        let types: Vec<&str> = found.iter().map(|block| block.label.as_str()).collect();
        return Err(match types.as_slice() {
            [] => KeyPairError::NoPem("certificate"),
            [only] if only.ends_with("PRIVATE KEY") => KeyPairError::KeyForCertificate,
            types => KeyPairError::NoCertificate(types.join(" ")),
        });
    };
    let found = blocks(key);
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let Some(key) = found.iter().find(|block| is_key(&block.label)) else {
        let types: Vec<&str> = found.iter().map(|block| block.label.as_str()).collect();
        return Err(match types.as_slice() {
            [] => KeyPairError::NoPem("key"),
            [CERTIFICATE] => KeyPairError::CertificateForKey,
            types => KeyPairError::NoKey(types.join(" ")),
        });
    };
    let parsed = X509Certificate::from_der(&first.data);
    parsed.map_err(|_| KeyPairError::Certificate)?;
    // Every encoding of a private key is an ASN.1 sequence.
    match key.data.first() {
        Some(0x30) => Ok(()),
        _ => Err(KeyPairError::Key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_texts_of_go() {
        let block = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
        let (certificate, key) = (block(CERTIFICATE), block("PRIVATE KEY"));
        let cases = [
            (
                "",
                "",
                "tls: failed to find any PEM data in certificate input",
            ),
            (
                "text",
                &key,
                "tls: failed to find any PEM data in certificate input",
            ),
            (
                &key,
                &certificate,
                "but did find a private key; PEM inputs may have been switched",
            ),
            (
                &certificate,
                "",
                "tls: failed to find any PEM data in key input",
            ),
            (
                &certificate,
                &certificate,
                "tls: found a certificate rather than a key in the PEM",
            ),
            (&certificate, &key, "x509: malformed certificate"),
        ];
        for (certificate, key, text) in cases {
            let error = load(certificate, key).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(text), "{error}");
        }
        let other = block("X");
        assert_eq!(
            load(&other, "").unwrap_err().to_string(),
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [X]"
        );
    }
}
