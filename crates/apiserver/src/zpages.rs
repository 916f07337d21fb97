//! `/statusz`: the version of the server and the time of its start, as text, or as an object for clients that request
//! one by group, version and kind.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use allot_apimachinery::Status;
use allot_model::features::{Feature, Release};
use http::Response;
use serde_json::json;

use crate::body::{Body, text_response};
use crate::context::Core;
use crate::encode::value_response;
use crate::error::Result;
use crate::negotiate::{Accepted, Encoding, MediaType, Shape, accepted};
use crate::request::Incoming;

const PATH: &str = "/statusz";
/// The component's name, that of kube-apiserver.
const NAME: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// The paths at the root that the page lists.
const PATHS: [&str; 6] = [
    "/healthz", "/livez", "/metrics", "/readyz", PATH, "/version",
];

/// When the process began, on both clocks.
static STARTED: LazyLock<(jiff::Timestamp, Instant)> =
    LazyLock::new(|| (jiff::Timestamp::now(), Instant::now()));

/// Remembers that the server starts now.
pub(crate) fn started() {
    LazyLock::force(&STARTED);
}

/// How the page is shown.
enum Form {
    Text,
    Object {
        version: &'static str,
        encoding: Encoding,
    },
}

/// The answer if the path is this page and the release has it.
///
/// # Errors
/// 406 for objects that are not requested by group, version and kind, and for other media types.
pub(crate) fn answer(core: &Core, request: &Incoming) -> Result<Option<Response<Body>>> {
    let features = &core.config.features;
    if request.info.path != PATH || !features.enabled(Feature::ComponentStatusz) {
        return Ok(None);
    }
    let emulated = features.release();
    let binary = emulated.max(Release::DEFAULT);
    let (at, since) = &*STARTED;
    let form = accepted(&request.headers).iter().find_map(form);
    let response = match form {
        None => {
            let message = "only the following media types are accepted: application/json, application/yaml, text/plain";
            return Err(Status::failure(406, "NotAcceptable", message).into());
        }
        Some(Form::Text) => {
            let lines = [
                (
                    "Started",
                    at.strftime("%a %b %e %H:%M:%S UTC %Y").to_string(),
                ),
                ("Up", up(since.elapsed())),
                ("Go version", String::new()),
                ("Binary version", binary.to_string()),
                ("Emulation version", emulated.to_string()),
                ("Paths", PATHS.join(" ")),
            ];
            let lines: String = lines
                .iter()
                .map(|(name, value)| format!("{name}: {value}\n"))
                .collect();
            text_response(
                200,
                format!(
                    "\n{NAME} statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
                     compatibility guarantees and is for debugging purposes only.\n\n{lines}"
                ),
            )
        }
        Some(Form::Object { version, encoding }) => {
            if version == "v1alpha1" {
                let text = "This version of the statusz endpoint is deprecated. Please use a newer version.";
                request.warnings.add(text);
            }
            let value = json!({
                "kind": "Statusz", "apiVersion": format!("{GROUP}/{version}"), "metadata": {"name": NAME},
                "startTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "uptimeSeconds": since.elapsed().as_secs(),
                "goVersion": "", "binaryVersion": binary.to_string(), "emulationVersion": emulated.to_string(),
                "paths": PATHS,
            });
            let shape = Shape::Whole;
            value_response(200, &value, MediaType { encoding, shape })
        }
    };
    Ok(Some(response))
}

/// The form that an item of `Accept` requests; `None` if the page does not have it.
fn form(item: &Accepted) -> Option<Form> {
    let version = match (
        item.parameter("g"),
        item.parameter("v"),
        item.parameter("as"),
    ) {
        (None, None, None) if item.covers("text/plain") => return Some(Form::Text),
        (Some(GROUP), Some("v1alpha1"), Some("Statusz")) => "v1alpha1",
        (Some(GROUP), Some("v1beta1"), Some("Statusz")) => "v1beta1",
        _ => return None,
    };
    let encoding = match item.media_type.as_str() {
        "application/json" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    Some(Form::Object { version, encoding })
}

/// How long, as `H hr MM min SS sec`.
fn up(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours} hr {minutes:02} min {:02} sec", seconds % 60)
}
