//! How objects come from one version to another.

use allot_apimachinery::{
    field::{BadValue, Error, ErrorList, Path},
    names::dns1035_label,
    webhook,
};
use base64::Engine as _;
use serde_json::Value;

use super::{is_true, list, text};

/// The versions of reviews that a server can send.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Whether an invalid `caBundle` is accepted: as long as the definition is not established, and if the stored one is invalid as
/// well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Authority {
    Lenient,
    Strict,
}

impl Authority {
    pub(super) fn after(old: &Value) -> Self {
        let before = &old["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
        let was_wrong = before
            .as_str()
            .is_some_and(|bundle| !bundle.is_empty() && !is_authority(bundle));
        if is_true(old, "Established") && !was_wrong {
            Self::Strict
        } else {
            Self::Lenient
        }
    }
}

/// The bundle holds certificates in PEM form.
fn is_authority(bundle: &str) -> bool {
    let decoded = base64::engine::general_purpose::STANDARD.decode(bundle);
    decoded.is_ok_and(|pem| String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----"))
}

pub(super) fn validate(
    conversion: &Value,
    authority: Authority,
    path: &Path,
    errors: &mut ErrorList,
) {
    if !conversion.is_object() {
        return;
    }
    let strategy = text(conversion, "strategy");
    let at = path.child("strategy");
    match strategy {
        "None" | "Webhook" => {}
        "" => errors.push(Error::required(&at, "")),
        other => errors.push(Error::not_supported(&at, other, &["None", "Webhook"])),
    }
    let client = &conversion["webhook"]["clientConfig"];
    let reviews = list(&conversion["webhook"], "conversionReviewVersions");
    let (at_client, at_reviews) = (
        path.child("webhookClientConfig"),
        path.child("conversionReviewVersions"),
    );
    if strategy == "Webhook" {
        if client.is_object() {
            validate_client(client, authority, &at_client, errors);
        } else {
            let detail = "required when strategy is set to Webhook";
            errors.push(Error::required(&at_client, detail));
        }
        validate_reviews(reviews, &at_reviews, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_object() {
        errors.push(Error::forbidden(&at_client, detail));
    }
    if !reviews.is_empty() {
        errors.push(Error::forbidden(&at_reviews, detail));
    }
}

fn validate_client(client: &Value, authority: Authority, path: &Path, errors: &mut ErrorList) {
    let (url, service) = (&client["url"], &client["service"]);
    match (url.as_str(), service.is_object()) {
        (Some(url), false) => errors.extend(webhook::url(&path.child("url"), url, true)),
        (None, true) => {
            // Upstream takes name and namespace for each other here.
            let (name, namespace) = (text(service, "namespace"), text(service, "name"));
            let port = service["port"].as_i64().unwrap_or(443);
            let at = path.child("service");
            let url_path = service["path"].as_str();
            errors.extend(webhook::service(&at, namespace, name, url_path, port));
        }
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(Error::required(path, detail));
        }
    }
    let bundle = text(client, "caBundle");
    if authority == Authority::Strict && !bundle.is_empty() && !is_authority(bundle) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        let shown = BadValue::from(bundle);
        errors.push(Error::invalid(&path.child("caBundle"), shown, detail));
    }
}

fn validate_reviews(reviews: &[Value], path: &Path, errors: &mut ErrorList) {
    if reviews.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let names: Vec<&str> = reviews
        .iter()
        .map(|version| version.as_str().unwrap_or_default())
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let at = path.index(index);
        if !seen.insert(name) {
            errors.push(Error::invalid(&at, *name, "duplicate version"));
            continue;
        }
        for problem in dns1035_label(name) {
            errors.push(Error::invalid(&at, *name, problem));
        }
    }
    if !names.iter().any(|name| REVIEWS.contains(name)) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        let shown = Value::from(names);
        errors.push(Error::invalid(path, &shown, detail));
    }
}
