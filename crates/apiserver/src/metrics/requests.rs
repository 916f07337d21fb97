//! The labels of metrics about requests, in the spelling of kube-apiserver: queries and alerts for it are right here as well.

use http::header::CONTENT_TYPE;
use prometheus_client::encoding::EncodeLabelSet;

use crate::request::{Incoming, RequestInfo};

/// What runs here, beside the servers of extensions.
const COMPONENT: &str = "apiserver";
/// Subresources that are connections.
const CONNECTIONS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// An answered request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Answered {
    code: u16,
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    scope: &'static str,
    subresource: String,
    verb: &'static str,
    version: String,
}

/// The same without the code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Timed {
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    scope: &'static str,
    subresource: String,
    verb: &'static str,
    version: String,
}

/// A requested version that a release removes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Deprecated {
    group: String,
    removed_release: String,
    resource: String,
    subresource: String,
    version: String,
}

/// Which of the two limits a request counts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct InFlight {
    pub(super) request_kind: &'static str,
}

impl Answered {
    /// The labels of a request. Names that are no known resources are left out: their number has no limit.
    pub(super) fn of(request: &Incoming, known: bool, code: u16) -> Self {
        let info = &*request.info;
        let text = |text: &str| match known {
            true => text.to_owned(),
            false => String::new(),
        };
        Answered {
            verb: verb(request),
            dry_run: dry_run(request),
            group: text(&info.group),
            version: text(&info.version),
            resource: text(&info.resource),
            subresource: match info.rest.is_empty() {
                true => text(&info.subresource),
                false => String::new(),
            },
            scope: scope(info),
            component: COMPONENT,
            code,
        }
    }

    /// Those of the time that the request took.
    pub(super) fn timed(&self) -> Timed {
        Timed {
            verb: self.verb,
            dry_run: self.dry_run,
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            scope: self.scope,
            component: self.component,
        }
    }
}

impl Deprecated {
    /// The labels of a request for a version that a release removes.
    pub(super) fn of(info: &RequestInfo, removed: &str) -> Self {
        Deprecated {
            group: info.group.clone(),
            version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            removed_release: removed.to_owned(),
        }
    }
}

/// The verb: that of HTTP where there is one. For other paths it is the method, which a client can choose freely.
fn verb(request: &Incoming) -> &'static str {
    let info = &*request.info;
    if info.is_resource && CONNECTIONS.contains(&info.subresource.as_str()) {
        return "CONNECT";
    }
    match info.verb.as_str() {
        "get" | "head" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => {
            let media_type = request.headers.get(CONTENT_TYPE);
            let is_apply = media_type.is_some_and(|it| it == "application/apply-patch+yaml");
            if is_apply { "APPLY" } else { "PATCH" }
        }
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn dry_run(request: &Incoming) -> &'static str {
    let mut result = "";
    for value in request.query.all("dryRun") {
        match value {
            "All" => result = "All",
            _ => return "invalid",
        }
    }
    result
}

/// What a request is about: one object, those of a namespace, or those of the cluster.
fn scope(info: &RequestInfo) -> &'static str {
    if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else if info.is_resource {
        "cluster"
    } else {
        ""
    }
}
