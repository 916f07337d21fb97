//! Names of signers, of the trust bundles of signers, and what users tell signers.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::limits::ANNOTATIONS;
use serde_json::Value;

use super::{entries, rule};

/// Longest domain of a signer.
const MAX_DOMAIN: usize = 253;
/// Longest name: the domain, a slash, and a namespace and a name with a dot between them.
const MAX_NAME: usize = MAX_DOMAIN + 1 + 63 + 1 + 253;

/// A signer's name: a domain and a path.
pub(crate) fn validate(name: &str, path: &Path, errors: &mut ErrorList) {
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
    if name.len() > MAX_NAME {
        errors.push(Error::too_long(path, MAX_NAME));
    }
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
pub(crate) fn is_kubernetes(name: &str) -> bool {
    let host = name.split('/').next().unwrap_or_default();
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// The longest lifetime in seconds that a pod certificate of a signer may be requested with.
pub(crate) fn longest_lifetime(name: &str) -> i64 {
    const OF_KUBERNETES: i64 = 24 * 60 * 60;
    const OF_OTHERS: i64 = 91 * 24 * 60 * 60;
    match is_kubernetes(name) {
        true => OF_KUBERNETES,
        false => OF_OTHERS,
    }
}

/// What is wrong with the name of a trust bundle; one of a signer begins with the signer's name.
pub(crate) fn bundle_name(name: &str, signer: &str) -> Vec<String> {
    let prefix = match signer {
        "" => String::new(),
        signer => format!("{}:", signer.replace('/', ":")),
    };
    match name.strip_prefix(&prefix) {
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
        Some(_) if signer.is_empty() && name.contains(':') => {
            vec![
                "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
            ]
        }
        Some(rest) => names::dns1123_subdomain(rest),
    }
}

/// Checks the annotations that the signer of a pod certificate is sent, in the field `key`: all of them have a domain.
pub(crate) fn user_annotations(of: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    let mut size = 0;
    for (key, value) in entries(of, key) {
        size += key.len() + value.as_str().map_or(0, str::len);
        let key = key.to_lowercase();
        if key.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        let wrong = names::qualified_name(&key);
        if wrong.is_empty() && key.split('/').count() != 2 {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.push(Error::invalid(path, key, detail));
        } else {
            rule(wrong, &key, path, errors);
        }
    }
    if size > ANNOTATIONS {
        errors.push(Error::too_long(path, ANNOTATIONS));
    }
}
