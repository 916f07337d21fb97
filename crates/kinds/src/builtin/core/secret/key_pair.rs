//! Warnings about TLS secrets whose certificate or key a server cannot load.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::pem::Pem;

use crate::validate::text;

const CERTIFICATE: &str = "CERTIFICATE";

/// Warnings about a secret: upstream loads the pair of a TLS secret. Whether the key belongs to the certificate is not
/// checked here.
pub(super) fn warnings(secret: &Value) -> Vec<String> {
    if text(secret, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let data = |key: &str| STANDARD.decode(text(&secret["data"], key));
    let [certificate, key] = ["tls.crt", "tls.key"].map(|key| data(key).unwrap_or_default());
    load(&certificate, &key).err().into_iter().collect()
}

/// Go's text about what keeps a pair from being loaded.
fn load(certificate: &[u8], key: &[u8]) -> Result<(), String> {
    let found = blocks(certificate);
    let Some(first) = found.iter().find(|block| block.label == CERTIFICATE) else {
        let types: Vec<&str> = found.iter().map(|block| block.label.as_str()).collect();
        return Err(match types.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
                    .to_owned()
            }
            types => format!(
                "tls: failed to find \"{CERTIFICATE}\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
                types.join(" ")
            ),
        });
    };
    let found = blocks(key);
    let is_key = |label: &str| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let Some(key) = found.iter().find(|block| is_key(&block.label)) else {
        let types: Vec<&str> = found.iter().map(|block| block.label.as_str()).collect();
        return Err(match types.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [CERTIFICATE] => {
                "tls: found a certificate rather than a key in the PEM for the private key"
                    .to_owned()
            }
            types => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                types.join(" ")
            ),
        });
    };
    first
        .parse_x509()
        .map_err(|_| "x509: malformed certificate")?;
    // All forms of a key are sequences.
    match key.contents.first() {
        Some(0x30) => Ok(()),
        _ => Err("tls: failed to parse private key".to_owned()),
    }
}

/// The blocks of a text in PEM; what cannot be read is skipped, as Go does.
fn blocks(text: &[u8]) -> Vec<Pem> {
    Pem::iter_from_buffer(text).filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_cannot_be_loaded_are_told_in_the_words_of_go() {
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
            let error = load(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        let other = block("X");
        assert_eq!(
            load(other.as_bytes(), b"").unwrap_err(),
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [X]"
        );
    }
}
