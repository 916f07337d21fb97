//! The API of a test's node as a client: requests are answered in this process, without a connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::gvk::GroupVersionResource;
use allot_apimachinery::status::Status;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::objects::{Change, Key, Objects, Part, Patch};
use super::selector::Selector;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A client of these objects.
pub(super) fn client(objects: Arc<Objects>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let objects = Arc::clone(&objects);
        async move { Ok::<_, Infallible>(answer(&objects, request).await) }
    });
    kube::Client::new(service, "default")
}

async fn answer(objects: &Arc<Objects>, request: Request<Body>) -> Answer {
    let failure = |status: Status| {
        let code = status.code;
        let text = serde_json::to_vec(&status).unwrap_or_default();
        respond(code, Full::new(text.into()).boxed_unsync())
    };
    match handle(objects, request).await {
        Ok(Content::Object(code, value)) => {
            respond(code, Full::new(value.to_string().into()).boxed_unsync())
        }
        Ok(Content::Stream(lines)) => {
            let frames = lines.map(|line| Ok(Frame::data(Bytes::from(line))));
            respond(200, StreamBody::new(frames).boxed_unsync())
        }
        Err(status) => failure(status),
    }
}

fn respond(code: u16, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

enum Content {
    Object(u16, Value),
    /// The lines of a watch.
    Stream(BoxStream<'static, String>),
}

/// What a path names.
struct Target {
    resource: GroupVersionResource,
    namespace: String,
    name: Option<String>,
    part: Part,
}

impl Target {
    fn parse(path: &str) -> Option<Self> {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let (group, version) = match segments.next()? {
            "api" => ("", segments.next()?),
            "apis" => (segments.next()?, segments.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match &rest[..] {
            // A Namespace itself otherwise.
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status"]) => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (plural, name, part) = match rest {
            [plural] => (plural, None, Part::Main),
            [plural, name] => (plural, Some(name), Part::Main),
            [plural, name, "status"] => (plural, Some(name), Part::Status),
            _ => return None,
        };
        // Clients ask for the newest version first, and need no other one then.
        let is_served = group != allot_model::GROUP || version == "v1";
        is_served.then(|| Self {
            resource: GroupVersionResource::new(group, version, *plural),
            namespace: namespace.to_owned(),
            name: name.map(|name| decode(name)),
            part,
        })
    }
}

/// A part of a URL.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The value of a parameter.
fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == name);
    values
        .next()
        .map(|(_, value)| decode(&value.replace('+', " ")))
}

async fn handle(objects: &Arc<Objects>, request: Request<Body>) -> Result<Content, Status> {
    let (parts, body) = request.into_parts();
    let target = Target::parse(parts.uri.path()).ok_or_else(Status::no_resource)?;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let bytes = body.collect_bytes().await;
    let bytes = bytes.map_err(|error| Status::bad_request(error.to_string()))?;
    let sent = || {
        serde_json::from_slice::<Value>(&bytes)
            .map_err(|error| Status::bad_request(error.to_string()))
    };
    let Some(name) = target.name else {
        return match parts.method {
            Method::GET => read_many(objects, target.resource, target.namespace, &query),
            Method::POST => {
                let created = objects.create(&target.resource, &target.namespace, sent()?)?;
                Ok(Content::Object(201, created))
            }
            _ => Err(not_allowed()),
        };
    };
    let key = Key {
        resource: target.resource,
        namespace: target.namespace,
        name,
    };
    let value = match parts.method {
        Method::GET => objects.get(&key)?,
        Method::PUT => objects.replace(&key, sent()?, target.part)?,
        Method::DELETE => {
            let options = if bytes.is_empty() {
                Value::Null
            } else {
                sent()?
            };
            objects.delete(&key, &options)?
        }
        Method::PATCH => {
            let how = parts.headers.get("content-type");
            let how = how.and_then(|how| how.to_str().ok()).unwrap_or_default();
            let how = match how {
                "application/merge-patch+json" => Patch::Merge,
                "application/apply-patch+yaml" => {
                    let manager = parameter(&query, "fieldManager");
                    let missing = || {
                        Status::bad_request(
                            "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch",
                        )
                    };
                    Patch::Apply {
                        manager: manager.ok_or_else(missing)?,
                        force: parameter(&query, "force").is_some_and(|force| force == "true"),
                    }
                }
                other => {
                    let text = format!("patches of type {other:?} are not known to this test API");
                    return Err(Status::failure(415, "UnsupportedMediaType", text));
                }
            };
            objects.patch(&key, &sent()?, &how, target.part)?
        }
        _ => return Err(not_allowed()),
    };
    Ok(Content::Object(200, value))
}

fn not_allowed() -> Status {
    let text = "the server does not allow this method on the requested resource";
    Status::failure(405, "MethodNotAllowed", text)
}

/// A list, or a watch.
fn read_many(
    objects: &Arc<Objects>,
    resource: GroupVersionResource,
    namespace: String,
    query: &str,
) -> Result<Content, Status> {
    let fields = parameter(query, "fieldSelector").unwrap_or_default();
    let labels = parameter(query, "labelSelector").unwrap_or_default();
    let selector = Selector::parse(&fields, &labels).map_err(Status::bad_request)?;
    let watched = parameter(query, "watch").is_some_and(|value| value == "true" || value == "1");
    let after = parameter(query, "resourceVersion").unwrap_or_default();
    let (mut found, revision) = objects.list(&resource, &namespace);
    found.retain(|object| selector.matches(object));
    if !watched {
        let kind = found.first().and_then(|object| object["kind"].as_str());
        let list = json!({
            "kind": format!("{}List", kind.unwrap_or_default()),
            "apiVersion": resource.group_version().to_string(),
            "metadata": {"resourceVersion": revision.to_string()},
            "items": found,
        });
        return Ok(Content::Object(200, list));
    }
    let (events, after) = match after.as_str() {
        // What there is comes first.
        "" | "0" => (found, revision),
        after => {
            let wrong = |_| Status::bad_request(format!("invalid resource version {after:?}"));
            (Vec::new(), after.parse().map_err(wrong)?)
        }
    };
    let waiting = events.iter().map(|object| line("ADDED", object)).collect();
    let watch = Watch {
        revisions: objects.revisions(),
        objects: Arc::clone(objects),
        resource,
        namespace,
        selector,
        after,
        waiting,
        ended: false,
    };
    let lines = futures::stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((line, watch))
    });
    let seconds = parameter(query, "timeoutSeconds").and_then(|value| value.parse().ok());
    Ok(Content::Stream(match seconds {
        Some(seconds) => {
            let end = tokio::time::sleep(Duration::from_secs(seconds));
            lines.take_until(end).boxed()
        }
        None => lines.boxed(),
    }))
}

/// An event of a watch.
fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

struct Watch {
    objects: Arc<Objects>,
    revisions: watch::Receiver<u64>,
    resource: GroupVersionResource,
    namespace: String,
    selector: Selector,
    /// Changes after this revision are still to be sent.
    after: u64,
    waiting: VecDeque<String>,
    ended: bool,
}

impl Watch {
    /// The next line, when there is one; none after an error, or when the objects are gone.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.waiting.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            self.revisions.borrow_and_update();
            match self.objects.changes(self.after) {
                Ok(changes) => {
                    for change in changes {
                        self.after = change.revision;
                        let line = self.event(&change);
                        self.waiting.extend(line);
                    }
                }
                Err(status) => {
                    self.ended = true;
                    self.waiting.push_back(line("ERROR", &json!(status)));
                }
            }
            if self.waiting.is_empty() {
                self.revisions.changed().await.ok()?;
            }
        }
    }

    /// A change as this watch sees it.
    fn event(&self, change: &Change) -> Option<String> {
        let key = &change.key;
        let is_here = self.namespace.is_empty() || key.namespace == self.namespace;
        if key.resource != self.resource || !is_here {
            return None;
        }
        let selected = |object: &Option<Value>| {
            let object = object.as_ref();
            object.is_some_and(|object| self.selector.matches(object))
        };
        let (before, after) = (selected(&change.before), selected(&change.after));
        let (kind, object) = match (before, after) {
            (false, true) => ("ADDED", &change.after),
            (true, true) => ("MODIFIED", &change.after),
            (true, false) => ("DELETED", &change.before),
            (false, false) => return None,
        };
        let mut object = object.clone()?;
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        Some(line(kind, &object))
    }
}
