//! `/livez`, `/readyz`, `/healthz`, `/version` and `/metrics`.

use allot_apimachinery::exposition;
use http::{Method, Response};
use serde_json::json;

use crate::body::Body;
use crate::encode::value_response;
use crate::error::{ApiError, Result};
use crate::negotiate::Media;
use crate::server::{Core, Incoming, text_response};

/// The Kubernetes version that this server speaks.
pub const VERSION: &str = "v1.36.2+allot";

/// What can be asked for one by one.
const CHECKS: [&str; 6] = [
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "informer-sync",
    "shutdown",
];

/// All checks of an endpoint, a line for each.
fn verbose(endpoint: &str) -> String {
    let checks = CHECKS.iter().filter(|check| {
        endpoint == "readyz" || !matches!(**check, "etcd-readiness" | "informer-sync" | "shutdown")
    });
    let lines: String = checks.map(|check| format!("[+]{check} ok\n")).collect();
    format!("{lines}{endpoint} check passed\n")
}

/// The answer if the path is one of these.
///
/// # Errors
/// 405.
pub fn answer(core: &Core, request: &Incoming) -> Result<Option<Response<Body>>> {
    let path = request.info.path.trim_end_matches('/');
    let response = match path {
        "/version" => {
            let emulated = core.config.features.release().minor().to_string();
            let value = json!({
                "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": emulated,
                "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
                "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
                "goVersion": "", "compiler": "rustc", "platform": concat!("linux/", "amd64"),
            });
            value_response(
                200,
                &value,
                Media {
                    encoding: crate::negotiate::Encoding::PrettyJson,
                    ..Media::JSON
                },
            )
        }
        "/metrics" => {
            let mut response =
                text_response(200, exposition::prometheus_text(&core.metrics.text(core)?));
            response.headers_mut().insert(
                http::header::CONTENT_TYPE,
                http::HeaderValue::from_static(exposition::CONTENT_TYPE),
            );
            response
        }
        "/openid/v1/jwks" => value_response(200, &core.authenticator.signer()?.jwks(), Media::JSON),
        "/.well-known/openid-configuration" => {
            let signer = core.authenticator.signer()?;
            let value = json!({
                "issuer": signer.issuer(), "jwks_uri": format!("{}/openid/v1/jwks", signer.issuer()),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            });
            value_response(200, &value, Media::JSON)
        }
        "/livez" | "/healthz" | "/readyz" => {
            if path == "/readyz" && core.shutdown.is_cancelled() {
                text_response(500, "shutting down")
            } else if request.query.get("verbose").is_some() {
                text_response(200, verbose(path.trim_start_matches('/')))
            } else {
                text_response(200, "ok")
            }
        }
        _ => match path.trim_start_matches('/').split_once('/') {
            Some(("livez" | "readyz" | "healthz", check)) if CHECKS.contains(&check) => {
                text_response(200, "ok")
            }
            _ => return Ok(None),
        },
    };
    if request.method != Method::GET && request.method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    Ok(Some(response))
}
