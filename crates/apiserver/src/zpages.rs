//! `/statusz` and `/flagz`: the version of the server and the time of its start, and the flags that it was started with,
//! as text, or as an object for clients that request one by group, version and kind.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use allot_apimachinery::Status;
use allot_model::features::{Feature, Release};
use http::Response;
use serde_json::{Value, json};

use crate::body::{Body, text_response};
use crate::context::Core;
use crate::encode::value_response;
use crate::negotiate::{Accepted, Encoding, MediaType, Offer, Shape, accepted, negotiate};
use crate::request::Incoming;

/// The component's name, that of kube-apiserver.
const NAME: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// The paths at the root that `/statusz` lists, beside the pages.
const PATHS: [&str; 5] = ["/healthz", "/livez", "/metrics", "/readyz", "/version"];

/// When the process began, on both clocks.
static STARTED: LazyLock<(jiff::Timestamp, Instant)> =
    LazyLock::new(|| (jiff::Timestamp::now(), Instant::now()));

/// Remembers that the server starts now.
pub(crate) fn started() {
    LazyLock::force(&STARTED);
}

/// One of the pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Status,
    Flags,
}

impl Page {
    const ALL: [Page; 2] = [Page::Flags, Page::Status];

    fn path(self) -> &'static str {
        match self {
            Page::Status => "/statusz",
            Page::Flags => "/flagz",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Page::Status => "Statusz",
            Page::Flags => "Flagz",
        }
    }

    fn gate(self) -> Feature {
        match self {
            Page::Status => Feature::ComponentStatusz,
            Page::Flags => Feature::ComponentFlagz,
        }
    }
}

/// The paths of the pages that the server has.
pub(crate) fn paths(core: &crate::state::ServerState) -> impl Iterator<Item = &'static str> {
    let features = &core.config.features;
    let pages = Page::ALL.into_iter();
    pages
        .filter(|page| features.enabled(page.gate()))
        .map(Page::path)
}

/// How a page is shown.
enum Form {
    Text,
    Object {
        version: &'static str,
        encoding: Encoding,
    },
}

/// The answer if the path is a page and the release has it.
///
/// It is 406 for objects that are not requested by group, version and kind, and for other media types.
pub(crate) fn answer(core: &Core, request: &Incoming) -> Option<Response<Body>> {
    let mut pages = Page::ALL.into_iter();
    let page = pages.find(|page| page.path() == request.info.path)?;
    if !core.config.features.enabled(page.gate()) {
        return None;
    }
    let name = &page.path()[1..];
    let accepted = accepted(&request.headers);
    let response = match accepted.iter().find_map(|item| form(page, item)) {
        None => {
            let message = "only the following media types are accepted: application/json, application/yaml, text/plain";
            let status = Status::failure(406, "NotAcceptable", message).to_json();
            // The pages have no protobuf, not even for an error.
            let media = negotiate(&request.headers, &request.query, Offer::Status)
                .ok()
                .filter(|media| media.encoding != Encoding::Protobuf)
                .unwrap_or(MediaType::JSON);
            return Some(value_response(406, &status, media));
        }
        Some(Form::Text) => {
            let lines: String = match page {
                Page::Status => lines(core).concat(),
                Page::Flags => {
                    let flags = core.config.flags.iter();
                    flags
                        .map(|(flag, value)| format!("{flag}: {value}\n"))
                        .collect()
                }
            };
            // An empty line is part of the one, and not of the other.
            let gap = if page == Page::Status { "\n" } else { "" };
            let text = format!(
                "\n{NAME} {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
                 compatibility guarantees and is for debugging purposes only.\n{gap}{lines}"
            );
            crate::health::without_sniffing(text_response(200, text))
        }
        Some(Form::Object { version, encoding }) => {
            if version == "v1alpha1" {
                request.warnings.add(format!(
                    "This version of the {name} endpoint is deprecated. Please use a newer version."
                ));
            }
            let mut value = match page {
                Page::Status => status(core),
                Page::Flags => json!({"flags": core.config.flags}),
            };
            value["kind"] = page.kind().into();
            value["apiVersion"] = format!("{GROUP}/{version}").into();
            value["metadata"] = json!({"name": NAME});
            let shape = Shape::Whole;
            value_response(200, &value, MediaType { encoding, shape })
        }
    };
    Some(response)
}

/// The versions of the server: its own, and the one that it emulates.
fn releases(core: &Core) -> (Release, Release) {
    let emulated = core.config.features.release();
    (emulated.max(Release::DEFAULT), emulated)
}

/// All paths that `/statusz` lists.
fn listed(core: &Core) -> Vec<&'static str> {
    let mut all: Vec<&str> = PATHS.into_iter().chain(paths(core)).collect();
    all.sort_unstable();
    all
}

/// The lines of `/statusz`.
fn lines(core: &Core) -> [String; 6] {
    let (binary, emulated) = releases(core);
    let (at, since) = &*STARTED;
    [
        (
            "Started",
            at.strftime("%a %b %e %H:%M:%S UTC %Y").to_string(),
        ),
        ("Up", up(since.elapsed())),
        ("Go version", String::new()),
        ("Binary version", binary.to_string()),
        ("Emulation version", emulated.to_string()),
        ("Paths", listed(core).join(" ")),
    ]
    .map(|(name, value)| format!("{name}: {value}\n"))
}

/// The object of `/statusz`, without its kind.
fn status(core: &Core) -> Value {
    let (binary, emulated) = releases(core);
    let (at, since) = &*STARTED;
    json!({
        "startTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "uptimeSeconds": since.elapsed().as_secs(),
        "goVersion": "", "binaryVersion": binary.to_string(), "emulationVersion": emulated.to_string(),
        "paths": listed(core),
    })
}

/// The form that an item of `Accept` requests; `None` if the page does not have it.
fn form(page: Page, item: &Accepted) -> Option<Form> {
    let version = match (
        item.parameter("g"),
        item.parameter("v"),
        item.parameter("as"),
    ) {
        (None, None, None) if item.covers("text/plain") => return Some(Form::Text),
        (Some(GROUP), Some("v1alpha1"), Some(kind)) if kind == page.kind() => "v1alpha1",
        (Some(GROUP), Some("v1beta1"), Some(kind)) if kind == page.kind() => "v1beta1",
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
