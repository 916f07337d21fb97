//! `/livez`, `/readyz`, `/healthz`, `/version` and `/metrics`.

use std::collections::BTreeSet;

use allot_apimachinery::exposition;
use allot_apimachinery::quote::quote;
use allot_model::features::Release;
use http::{Method, Response};
use serde_json::{Value, json};

use crate::body::{Body, text_response};
use crate::context::Core;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::{KEY_SET, MediaType, only_json, only_keys};
use crate::request::Incoming;
use crate::version;

/// The media type of the metrics: names in it have no other characters than underscores.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// Checks of every endpoint, in kube-apiserver's order. The work of the hooks is done before the first connection is
/// accepted, so they never fail here; clients request some of them by name.
const HOOKS: [&str; 30] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The endpoints that have checks.
pub(crate) const ENDPOINTS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The names of an endpoint's checks in order.
pub(crate) fn checks(endpoint: &str) -> impl Iterator<Item = &'static str> {
    let (first, last): (&[&str], &[&str]) = match endpoint {
        "readyz" => (
            &["ping", "log", "etcd", "etcd-readiness", "informer-sync"],
            &["shutdown"],
        ),
        _ => (
            &["ping", "log", "loopback-serving-certificate", "etcd"],
            &[],
        ),
    };
    first.iter().chain(HOOKS.iter()).chain(last).copied()
}

/// The check fails now: a server that stops is not ready.
fn fails(core: &Core, check: &str) -> bool {
    check == "shutdown" && core.shutdown.is_cancelled()
}

/// All checks of an endpoint: a line for each with `?verbose` or if one fails, without those that `?exclude=` names.
fn all(core: &Core, request: &Incoming, endpoint: &'static str) -> Response<Body> {
    let mut excluded: BTreeSet<&str> = request.query.all("exclude").collect();
    let (mut lines, mut failed) = (String::new(), false);
    for check in checks(endpoint) {
        let line = if excluded.remove(check) {
            format!("[+]{check} excluded: ok\n")
        } else {
            let fails = fails(core, check);
            core.metrics.slis.checked(endpoint, check, !fails);
            failed |= fails;
            match fails {
                true => format!("[-]{check} failed: reason withheld\n"),
                false => format!("[+]{check} ok\n"),
            }
        };
        lines.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.into_iter().map(quote).collect();
        let names = names.join(",");
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    if failed {
        text_response(500, format!("{lines}{endpoint} check failed\n"))
    } else if request.query.get("verbose").is_some() {
        text_response(200, format!("{lines}{endpoint} check passed\n"))
    } else {
        text_response(200, "ok")
    }
}

/// The answer if the path is one of these.
///
/// # Errors
/// 405.
pub fn answer(core: &Core, request: &Incoming) -> Result<Option<Response<Body>>> {
    let path = match request.info.path.as_str() {
        "/version/" => "/version",
        "/openid/v1/jwks/" => "/openid/v1/jwks",
        "/.well-known/openid-configuration/" => "/.well-known/openid-configuration",
        path => path,
    };
    let is_document = matches!(
        path,
        "/version" | "/openid/v1/jwks" | "/.well-known/openid-configuration"
    );
    if is_document && request.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    if path.starts_with("/version/")
        || path.starts_with("/openid/v1/jwks/")
        || path.starts_with("/.well-known/openid-configuration/")
    {
        return Err(ApiError::no_such_path());
    }
    let response = match path {
        "/version" => {
            only_json(&request.headers)?;
            let emulated = core.config.features.release();
            let own = emulated.max(Release::DEFAULT);
            let compatible = (own.minor() - 1).to_string();
            let (minor, emulated) = (own.minor().to_string(), emulated.minor().to_string());
            let value = json!({
                "major": "1", "minor": minor, "emulationMajor": "1", "emulationMinor": emulated,
                "minCompatibilityMajor": "1", "minCompatibilityMinor": compatible,
                "gitVersion": version::of(own), "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
                "goVersion": "", "compiler": "rustc", "platform": concat!("linux/", "amd64"),
            });
            value_response(
                200,
                &value,
                MediaType {
                    encoding: crate::negotiate::Encoding::PrettyJson,
                    ..MediaType::JSON
                },
            )
        }
        "/metrics" | "/metrics/slis" => {
            let text = match path {
                "/metrics" => core.metrics.text(core, &core.flow)?,
                _ => core.metrics.slis.text()?,
            };
            let mut response = text_response(200, exposition::prometheus_text(&text));
            response.headers_mut().insert(
                http::header::CONTENT_TYPE,
                http::HeaderValue::from_static(METRICS),
            );
            response
        }
        "/openid/v1/jwks" => {
            only_keys(&request.headers)?;
            if discovery(core)?.is_none() {
                return Ok(None);
            }
            let keys = core.authenticator.signer()?.jwks();
            let mut response = value_response(200, &keys, MediaType::JSON);
            let of_keys = http::HeaderValue::from_static(KEY_SET);
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, of_keys);
            response
        }
        "/.well-known/openid-configuration" => {
            only_json(&request.headers)?;
            let Some(document) = discovery(core)? else {
                return Ok(None);
            };
            value_response(200, &document, MediaType::JSON)
        }
        _ => match endpoint_of(path) {
            Some((endpoint, "")) => all(core, request, endpoint),
            Some((endpoint, check)) if checks(endpoint).any(|known| known == check) => {
                if fails(core, check) {
                    text_response(500, "internal server error: process is shutting down\n")
                } else {
                    without_sniffing(text_response(200, "ok"))
                }
            }
            _ => return Ok(None),
        },
    };
    Ok(Some(response))
}

/// The document about the issuer of tokens; none if the issuer has no form that others can discover.
fn discovery(core: &Core) -> Result<Option<Value>> {
    let advertised = core.config.advertise.map(|address| address.to_string());
    let signer = core.authenticator.signer()?;
    Ok(signer.discovery(&advertised.unwrap_or_default()))
}

/// Without the header that forbids clients to guess the type: upstream's handlers of one check, of flags and of the
/// state of the server do not set it.
pub(crate) fn without_sniffing(mut response: Response<Body>) -> Response<Body> {
    response
        .headers_mut()
        .remove(http::header::X_CONTENT_TYPE_OPTIONS);
    response
}

/// Clients and proxies may keep the answer for a while: the documents about the tokens of service accounts.
pub(crate) fn may_be_kept(path: &str) -> bool {
    matches!(
        path.strip_suffix('/').unwrap_or(path),
        "/openid/v1/jwks" | "/.well-known/openid-configuration"
    )
}

/// The endpoint of a path, and the check in it that the path names; empty for all of them.
fn endpoint_of(path: &str) -> Option<(&'static str, &str)> {
    ENDPOINTS.into_iter().find_map(|endpoint| {
        let rest = path.strip_prefix('/')?.strip_prefix(endpoint)?;
        if rest.is_empty() {
            return Some((endpoint, ""));
        }
        let check = rest.strip_prefix('/').filter(|check| !check.is_empty())?;
        Some((endpoint, check))
    })
}
