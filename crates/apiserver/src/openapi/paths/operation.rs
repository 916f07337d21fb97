//! One operation on a path of a resource.

use allot_schema::openapi::Format;
use serde_json::{Map, Value, json};

use crate::registry::{Resource, Subresource};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

type Parameters = &'static [(&'static str, &'static str)];

const LIST: Parameters = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: Parameters = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
    ),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const WRITE: Parameters = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const LOG: Parameters = &[
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];
const ATTACH: Parameters = &[
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];

/// The parameters of a stream, by the kind of its options.
pub(super) fn options(kind: &str) -> Option<Vec<(&'static str, &'static str)>> {
    let own: Parameters = match kind {
        "PodExecOptions" => &[("command", "string")],
        "PodAttachOptions" => &[],
        "PodPortForwardOptions" => return Some(vec![("ports", "integer")]),
        "PodProxyOptions" | "NodeProxyOptions" | "ServiceProxyOptions" => {
            return Some(vec![("path", "string")]);
        }
        _ => return None,
    };
    Some([own, ATTACH].concat())
}

/// What an operation is answered with.
pub(super) enum Answer {
    /// An object or list; nothing that is known for a schema without a name.
    Schema(Option<String>),
    Status,
    /// The log of a container.
    Text,
    /// A connection to another server.
    Stream,
}

pub(super) struct Operation<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a Resource,
    pub(super) format: Format,
    /// As `x-kubernetes-action` names it.
    pub(super) action: &'a str,
    pub(super) answer: &'a Answer,
    /// The end of the operation's name.
    pub(super) suffix: &'a str,
    pub(super) of: Option<&'a Subresource>,
    /// The method, where the name of the operation has it.
    pub(super) method: &'a str,
}

impl Operation<'_> {
    pub(super) fn build(&self) -> Value {
        let custom = self.resource.custom.is_some();
        let mut parameters: Vec<Value> = self
            .parameters()
            .into_iter()
            .map(|(name, kind)| parameter(name, "query", kind, self.format))
            .collect();
        let read = match self.answer {
            Answer::Stream => vec!["*/*"],
            _ if custom => vec![JSON, YAML],
            Answer::Text => vec!["text/plain", JSON, YAML, PROTOBUF],
            _ => vec![JSON, YAML, PROTOBUF],
        };
        let streams = [
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ];
        let watched = !custom && matches!(self.action, "list" | "watch" | "watchlist");
        let read: Vec<&str> = read
            .into_iter()
            .chain(streams.into_iter().filter(|_| watched))
            .collect();
        let (group, version, kind) = match self.of {
            Some(of) if !of.version.is_empty() => {
                (of.group.as_str(), of.version.as_str(), &of.kind)
            }
            Some(of) if !of.kind.is_empty() => (self.group, self.version, &of.kind),
            _ => (self.group, self.version, &self.resource.kind),
        };
        let mut operation = json!({
            "tags": [tag(self.group, Some(self.version))],
            "operationId": self.name(),
            "responses": responses(&self.codes(), &self.schema(), &read, self.format),
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if self.format == Format::V2 {
            operation["produces"] = json!(read);
            operation["schemes"] = json!(["https"]);
            operation["consumes"] = match custom {
                true => json!([JSON, YAML]),
                false => json!(["*/*"]),
            };
        }
        if let Some((schema, media, required)) = self.body() {
            let mut body = match self.format {
                Format::V3 => {
                    let content: Map<String, Value> = media
                        .iter()
                        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
                        .collect();
                    json!({"content": content})
                }
                Format::V2 => json!({"in": "body", "name": "body", "schema": schema}),
            };
            if required {
                body["required"] = true.into();
            }
            match self.format {
                Format::V3 => operation["requestBody"] = body,
                Format::V2 => {
                    operation["consumes"] = json!(media);
                    parameters.push(body);
                }
            }
        }
        operation["parameters"] = parameters.into();
        operation
    }

    /// The name that generated clients give to the operation.
    fn name(&self) -> String {
        let verb = match self.action {
            "get" => "read",
            "post" => "create",
            "put" => "replace",
            "deletecollection" => "delete",
            "watchlist" => "watch",
            action => action,
        };
        let collection = match self.action {
            "deletecollection" => "Collection",
            _ => "",
        };
        let scope = match self.resource.namespaced && !self.suffix.contains("ForAll") {
            true => "Namespaced",
            false => "",
        };
        [
            verb,
            &title(self.group),
            &capital(self.version),
            &capital(self.method),
            collection,
            scope,
            &self.resource.kind,
            &capital(self.of.map_or("", |of| &of.name)),
            self.suffix,
        ]
        .concat()
    }

    fn parameters(&self) -> Vec<(&'static str, &'static str)> {
        if let Some(options) = self.of.and_then(|of| options(&of.kind)) {
            return options;
        }
        let custom = self.resource.custom.is_some();
        let own: Vec<_> = match self.action {
            "post" | "put" => WRITE.to_vec(),
            "patch" => [WRITE, &[("force", "boolean")]].concat(),
            "delete" => DELETE.to_vec(),
            "deletecollection" if !custom => {
                let lists = LIST.iter().copied();
                let lists =
                    lists.filter(|(name, _)| !matches!(*name, "allowWatchBookmarks" | "watch"));
                lists.chain(DELETE.iter().copied()).collect()
            }
            "list" | "watch" | "watchlist" | "deletecollection" => LIST.to_vec(),
            "get" if matches!(self.answer, Answer::Text) => LOG.to_vec(),
            "get" if custom => vec![("resourceVersion", "string")],
            _ => Vec::new(),
        };
        own.into_iter().chain([("pretty", "string")]).collect()
    }

    fn codes(&self) -> Vec<(&'static str, &'static str)> {
        let (ok, created, accepted) = (("200", "OK"), ("201", "Created"), ("202", "Accepted"));
        match self.action {
            "post" => vec![ok, created, accepted],
            "patch" if self.resource.custom.is_some() => vec![ok],
            "put" | "patch" => vec![ok, created],
            "delete" => vec![ok, accepted],
            _ => vec![ok],
        }
    }

    fn schema(&self) -> Value {
        match self.answer {
            Answer::Schema(Some(name)) => self.format.reference(name),
            Answer::Schema(None) => Value::Null,
            Answer::Status => self.format.reference(&format!("{META}.Status")),
            Answer::Text | Answer::Stream => json!({"type": "string"}),
        }
    }

    /// The schema of the body, its media types, and whether there must be one.
    fn body(&self) -> Option<(Value, Vec<&'static str>, bool)> {
        let custom = self.resource.custom.is_some();
        let sent = match custom {
            true => vec![JSON, YAML],
            false => vec!["*/*"],
        };
        let options = || self.format.reference(&format!("{META}.DeleteOptions"));
        match self.action {
            "post" | "put" => Some((self.schema(), sent, true)).filter(|it| !it.0.is_null()),
            "delete" => Some((options(), sent, false)),
            "deletecollection" if !custom => Some((options(), sent, false)),
            "patch" => {
                let known = |media: &&str| !custom || !media.contains("strategic");
                let media = PATCHES.into_iter().filter(known).collect();
                Some((self.format.reference(&format!("{META}.Patch")), media, true))
            }
            _ => None,
        }
    }
}

/// A parameter of a path or of an operation.
pub(super) fn parameter(name: &str, place: &str, kind: &str, format: Format) -> Value {
    let mut out = json!({"name": name, "in": place});
    if place == "path" {
        out["required"] = true.into();
    }
    match format {
        Format::V2 => {
            out["type"] = kind.into();
            out["uniqueItems"] = true.into();
        }
        Format::V3 => out["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    out
}

/// The answers of an operation: the codes of success, all with one schema, and a refusal.
pub(super) fn responses(
    codes: &[(&str, &str)],
    schema: &Value,
    media: &[&str],
    format: Format,
) -> Value {
    let mut out = Map::new();
    for (code, description) in codes {
        let mut answer = json!({"description": description});
        if !schema.is_null() {
            match format {
                Format::V2 => answer["schema"] = schema.clone(),
                Format::V3 => {
                    let content = media.iter();
                    let content: Map<String, Value> = content
                        .map(|media| ((*media).to_owned(), json!({"schema": schema})))
                        .collect();
                    answer["content"] = content.into();
                }
            }
        }
        out.insert((*code).to_owned(), answer);
    }
    out.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    out.into()
}

/// The name of a group in the names of operations: `rbac.authorization.k8s.io` is `RbacAuthorization`.
pub(super) fn title(group: &str) -> String {
    let short = match group {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    let words = short.split(|c: char| !c.is_ascii_alphanumeric());
    words.map(capital).collect()
}

/// The tag of a group, or of one of its versions: `rbacAuthorization_v1`.
pub(super) fn tag(group: &str, version: Option<&str>) -> String {
    let mut out = title(group);
    if let Some(first) = out.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    match version {
        Some(version) => format!("{out}_{version}"),
        None => out,
    }
}

pub(super) fn capital(word: &str) -> String {
    let mut out = word.to_owned();
    if let Some(first) = out.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    out
}
