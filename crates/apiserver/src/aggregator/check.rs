//! Whether an extension API server answers, and what it says about its resources.

use std::time::Duration;

use allot_store::{Backend, ListOptions};
use futures::FutureExt as _;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::fetch::{Answer, Get};
use super::{SERVICES, SLICES};
use crate::endpoints;
use crate::extensions::{Extension, Failure, of_list, of_resources};
use crate::identity::{MASTERS, User};
use crate::object::text;
use crate::select::extract;
use crate::state::ServerState;

/// The time for an answer, as upstream.
const TIME: Duration = Duration::from_secs(5);
/// How many requests are sent at the same time, one of which must succeed: they may go to several endpoints.
const ATTEMPTS: usize = 5;
/// The most bytes of a discovery document.
const MAX_DOCUMENT: usize = 4 << 20;
/// The most bytes of a message in a condition.
const MAX_MESSAGE: usize = 1024;
/// Aggregated discovery, in the versions that extension API servers know.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// The condition `Available`.
#[derive(Debug, PartialEq)]
pub(super) struct Condition {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    /// Of an APIService without a service.
    pub fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Condition {
            status: "True",
            reason: "Local",
            message,
        }
    }

    fn failed(reason: &'static str, mut message: String) -> Self {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        Condition {
            status: "False",
            reason,
            message,
        }
    }

    fn unknown(reason: &'static str, message: String) -> Self {
        Condition {
            status: "Unknown",
            ..Self::failed(reason, message)
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Looks for the service, its port and its endpoints, and asks the service for its discovery document. Reasons and messages
/// are upstream's.
pub(super) async fn check(core: &ServerState, extension: &Extension) -> Condition {
    if let Some(failed) = check_service(core, extension).await {
        return failed;
    }
    let path = extension.path();
    let url = extension.client.url(&path);
    let attempt = || async {
        let answer = fetch(core, extension, &path, None).await;
        match answer {
            Ok(Answer {
                code: 200..=299, ..
            }) => Ok(()),
            Ok(Answer { code, .. }) => Err(format!(
                "failing or missing response from {url}: bad status from {url}: {code}"
            )),
            Err(Failure::Exchange(why)) => Err(format!(
                "failing or missing response from {url}: Get \"{url}\": {why}"
            )),
            Err(failure) => Err(failure.to_string()),
        }
    };
    let attempts = (0..ATTEMPTS).map(|_| attempt().boxed());
    match futures::future::select_ok(attempts).await {
        Ok(_) => Condition {
            status: "True",
            reason: "Passed",
            message: "all checks passed".to_owned(),
        },
        Err(why) => Condition::failed("FailedDiscoveryCheck", why),
    }
}

/// The condition if there is no service with this port and endpoints.
async fn check_service(core: &ServerState, extension: &Extension) -> Option<Condition> {
    let (namespace, name) = &extension.service;
    let service = format!("service/{name} in {namespace:?}");
    let failed = |reason, message| Some(Condition::failed(reason, message));
    let found = match core.stored(SERVICES, &format!("{namespace}/{name}")).await {
        Ok(Some(found)) => found,
        Ok(None) => return failed("ServiceNotFound", format!("{service} is not present")),
        Err(error) => {
            let why = format!("{service} cannot be checked due to: {error}");
            return Some(Condition::unknown("ServiceAccessError", why));
        }
    };
    if !matches!(text(&found, &["spec", "type"]), "" | "ClusterIP") {
        return None;
    }
    let number = extension.client.port();
    let mut ports = found["spec"]["ports"].as_array().into_iter().flatten();
    let Some(port) = ports.find(|it| it["port"].as_u64() == Some(number.into())) else {
        let why = format!("{service} is not listening on port {number}");
        return failed("ServicePortError", why);
    };
    let port = text(port, &["name"]);
    let backend = &*core.backend;
    let any_slice = match endpoints::ready(backend, namespace, name, port).await {
        Ok(ready) if !ready.is_empty() => return None,
        Ok(_) => has_slices(backend, namespace, name).await,
        Err(error) => Err(error),
    };
    match any_slice {
        Ok(true) => {
            let why =
                format!("endpointslices for {service} have no addresses with port name {port:?}");
            failed("MissingEndpoints", why)
        }
        Ok(false) => failed(
            "EndpointsNotFound",
            format!("cannot find endpointslices for {service}"),
        ),
        Err(error) => {
            let why = format!("{service} cannot be checked due to: {error}");
            Some(Condition::unknown("EndpointsAccessError", why))
        }
    }
}

/// Whether a service has any EndpointSlice.
async fn has_slices(
    backend: &dyn Backend,
    namespace: &str,
    service: &str,
) -> crate::error::Result<bool> {
    let prefix = format!("{namespace}/");
    let options = ListOptions {
        prefix: &prefix,
        ..ListOptions::default()
    };
    let page = backend.list(SLICES, options).await?;
    Ok(page.entries.iter().any(|entry| {
        let slice = extract(&entry.value, &["metadata.labels"]);
        slice["metadata"]["labels"]["kubernetes.io/service-name"] == service
    }))
}

/// The resources of an extension: from its aggregated discovery document, or from that of the group version where it has
/// none. `None` if it does not answer with either.
pub(super) async fn discover(core: &ServerState, extension: &Extension) -> Option<Vec<Value>> {
    let (group, version) = (extension.group.as_str(), extension.version.as_str());
    if !group.is_empty()
        && let Ok(answer) = fetch(core, extension, "/apis", Some(AGGREGATED)).await
        && answer.code == 200
        && is_aggregated(&answer.headers)
        && let Ok(document) = serde_json::from_slice(&answer.body)
        && let Some(resources) = of_list(&document, group, version)
    {
        return Some(resources);
    }
    let path = extension.path();
    match fetch(core, extension, &path, Some("application/json")).await {
        Ok(answer) if answer.code == 200 => {
            of_resources(&serde_json::from_slice(&answer.body).ok()?)
        }
        _ => None,
    }
}

fn is_aggregated(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    media.is_some_and(|media| media.contains("as=APIGroupDiscoveryList"))
}

/// Gets a document as the aggregator.
async fn fetch(
    core: &ServerState,
    extension: &Extension,
    path: &str,
    accept: Option<&'static str>,
) -> Result<Answer, Failure> {
    let user = User {
        name: "system:kube-aggregator".to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..User::default()
    };
    let get = Get {
        path,
        accept,
        known: None,
        user: &user,
        most: MAX_DOCUMENT,
        time: TIME,
    };
    get.from(core, extension).await
}
