//! Names of signers.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;

/// Longest domain of a signer.
const MAX_DOMAIN: usize = 253;

/// A signer's name: a domain and a path.
pub(super) fn validate(name: &str, path: &Path, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, rest] = segments.as_slice() else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(Error::invalid(path, name, detail));
        return;
    };
    if domain.len() > MAX_DOMAIN {
        errors.push(Error::too_long(path, MAX_DOMAIN));
    }
    labels(domain, names::dns1123_label, path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(path, *domain, detail));
    }
    labels(rest, names::dns1123_subdomain, path, errors);
}

/// Validates the labels between dots. After the first error the others would have the same message.
fn labels(whole: &str, check: fn(&str) -> Vec<String>, path: &Path, errors: &mut ErrorList) {
    let checked = whole.split('.').map(|label| (label, check(label)));
    let Some((label, texts)) = checked.into_iter().find(|(_, texts)| !texts.is_empty()) else {
        return;
    };
    for detail in texts {
        let detail = format!("validating label {label:?}: {detail}");
        errors.push(Error::invalid(path, whole, detail));
    }
}

/// Whether the signer is one of Kubernetes itself.
pub(super) fn is_kubernetes(name: &str) -> bool {
    let host = name.split('/').next().unwrap_or_default();
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}
