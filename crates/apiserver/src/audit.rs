//! The audit log: the user, time, target and result of requests, in the format of `audit.k8s.io/v1`.
//!
//! A [`Policy`] determines what is logged about a request; bodies are only omitted by the policy. Events are written by
//! a dedicated thread ([`Log`]) in the order in which they happen.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::{HeaderMap, Response};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{Body, Observer};
use crate::identity::User;
use crate::object::micro_timestamp;
use crate::request::{Annotations, Incoming, is_long_running};

mod event;
mod log;
mod policy;
#[cfg(test)]
mod tests;

use event::{AuthenticationMetadata, Event, ObjectReference, ResponseStatus, UserInfo};
pub use log::{Log, Rotation};
pub use policy::{Level, Policy, Stage};

/// Longest user agent in an audit event, in bytes; a longer one is cut.
const MOST_AGENT: usize = 1024;
/// Longest id of a request that is taken over from its client.
const MOST_ID: usize = 64;
/// Names the id of a request, in requests and answers.
const ID_HEADER: http::HeaderName = http::HeaderName::from_static("audit-id");
/// Annotations of the authorizer, as upstream's.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
/// Marks an answer that was streamed and is not in the log: it is too large, or was not sent to its end.
const STREAMED: &str = "audit.allot.dev/response-streamed";
/// The largest streamed answer that is logged.
const MOST_STREAMED: usize = 8 << 20;
/// What such answers may hold together until they have been sent.
const ALL_STREAMED: usize = 64 << 20;

/// A policy and the destination of events.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    log: Log,
    /// Bytes that answers on their way may still hold.
    streamed: Arc<Semaphore>,
}

impl Audit {
    /// An audit log.
    pub fn new(policy: Policy, log: Log) -> Arc<Self> {
        let streamed = Arc::new(Semaphore::new(ALL_STREAMED));
        Arc::new(Audit {
            policy,
            log,
            streamed,
        })
    }

    /// Starts the audit of a request whose user is known; `None` if the policy omits it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: &Incoming,
        received: jiff::Timestamp,
    ) -> Option<RequestAudit> {
        let rule = self.policy.rule(&request.info, &request.user);
        if rule.level == Level::None {
            return None;
        }
        let info = &request.info;
        let name = request.query.text("fieldSelector").and_then(|selector| {
            let fields = allot_apimachinery::fields::FieldSelector::parse(selector).ok()?;
            fields.exact("metadata.name").map(str::to_owned)
        });
        let mut event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: rule.level,
            audit_id: id(&request.headers),
            stage: Stage::RequestReceived,
            request_uri: request
                .uri
                .path_and_query()
                .map_or_else(|| info.path.clone(), ToString::to_string),
            verb: info.verb.clone(),
            user: UserInfo::of(&request.user),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: sources(request),
            user_agent: agent(&request.headers),
            object_ref: info.is_resource.then(|| ObjectReference {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: match info.name.is_empty() {
                    true => name.unwrap_or_default(),
                    false => info.name.clone(),
                },
                uid: String::new(),
                api_group: info.group.clone(),
                api_version: info.version.clone(),
                resource_version: String::new(),
                subresource: info.subresource.clone(),
            }),
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: micro_timestamp(received),
            stage_timestamp: String::new(),
            annotations: Default::default(),
        };
        event
            .stage_timestamp
            .clone_from(&event.request_received_timestamp);
        let trail = RequestAudit {
            audit: self.clone(),
            event,
            omit: rule.omit,
            omit_managed_fields: rule.omit_managed_fields,
            long: is_long_running(info),
            over: false,
            sent: None,
        };
        trail.write();
        Some(trail)
    }

    /// Events that were dropped because the log could not be written fast enough.
    pub fn lost(&self) -> u64 {
        self.log.lost()
    }

    /// Waits until everything is written.
    pub fn flush(&self) {
        self.log.flush();
    }
}

/// The audit record of one request.
pub struct RequestAudit {
    audit: Arc<Audit>,
    event: Event,
    omit: Vec<Stage>,
    omit_managed_fields: bool,
    long: bool,
    over: bool,
    /// The part of a streamed answer that has been sent, with its share of the memory limit.
    sent: Option<(Vec<u8>, Vec<OwnedSemaphorePermit>)>,
}

impl Observer for RequestAudit {
    fn piece(&mut self, bytes: &[u8]) {
        let Some((sent, shares)) = &mut self.sent else {
            return;
        };
        let fits = sent.len() + bytes.len() <= MOST_STREAMED;
        let wanted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let streamed = self.audit.streamed.clone();
        let share = fits.then(|| streamed.try_acquire_many_owned(wanted));
        match share {
            Some(Ok(share)) => {
                sent.extend_from_slice(bytes);
                shares.push(share);
            }
            _ => self.sent = None,
        }
    }

    fn ended(&mut self) {
        let sent = self.sent.take();
        match sent.and_then(|(sent, _)| object_of(&sent)) {
            Some(mut object) => {
                self.clean(&mut object);
                self.event.response_object = Some(object);
            }
            None => self.is_streamed(),
        }
        self.over = true;
        self.stage(Stage::ResponseComplete);
    }
}

impl RequestAudit {
    /// Notes that the answer is not in the event.
    fn is_streamed(&mut self) {
        let annotations = &mut self.event.annotations;
        annotations.insert(STREAMED.to_owned(), "true".to_owned());
    }

    fn write(&self) {
        if !self.omit.contains(&self.event.stage) {
            self.audit.log.write(&self.event);
        }
    }

    fn stage(&mut self, stage: Stage) {
        self.event.stage = stage;
        self.event.stage_timestamp = micro_timestamp(jiff::Timestamp::now());
        self.write();
    }

    /// The request impersonates a user, in a constrained mode if there is a verb for it.
    pub(crate) fn impersonates(&mut self, user: &User, constraint: Option<String>) {
        self.event.impersonated_user = Some(UserInfo::of(user));
        let metadata = |impersonation_constraint| AuthenticationMetadata {
            impersonation_constraint,
        };
        self.event.authentication_metadata = constraint.map(metadata);
    }

    /// The authorizer has decided.
    pub(crate) fn decided(&mut self, allowed: bool, reason: &str) {
        let decision = if allowed { "allow" } else { "forbid" };
        let annotations = &mut self.event.annotations;
        annotations.insert(DECISION.to_owned(), decision.to_owned());
        annotations.insert(REASON.to_owned(), reason.to_owned());
    }

    /// No authorizer has decided, and one has failed.
    pub(crate) fn undecided(&mut self) {
        let annotations = &mut self.event.annotations;
        annotations.insert(REASON.to_owned(), "internal error".to_owned());
    }

    /// The body of the request.
    pub(crate) fn sent(&mut self, body: &[u8]) {
        let Some(mut object) = object_of(body) else {
            return;
        };
        if let Some(reference) = &mut self.event.object_ref {
            reference.complete(&object["metadata"]);
        }
        if self.event.level >= Level::Request {
            self.clean(&mut object);
            self.event.request_object = Some(object);
        }
    }

    fn clean(&self, object: &mut Value) {
        if !self.omit_managed_fields {
            return;
        }
        let clean = |object: &mut Value| {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
        };
        if !object.is_object() {
            return;
        }
        for item in object
            .get_mut("items")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if item.is_object() {
                clean(item);
            }
        }
        for row in object
            .get_mut("rows")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if row["object"].is_object() {
                clean(&mut row["object"]);
            }
        }
        if object.get("metadata").is_some() {
            clean(object);
        }
    }

    /// The answer has started. A long-running request is complete when its body ends.
    pub(crate) fn answered(mut self, response: &mut Response<Body>, notes: &Annotations) {
        for (key, text) in notes.take() {
            self.event.annotations.entry(key).or_insert(text);
        }
        let code = response.status().as_u16();
        let whole = response.body().whole_bytes();
        let object = whole.and_then(|bytes| object_of(bytes));
        let status = object.as_ref().filter(|object| object["kind"] == "Status");
        self.event.response_status = Some(ResponseStatus::of(code, status));
        if self.event.level >= Level::RequestResponse && !self.long {
            match object {
                Some(mut object) => {
                    self.clean(&mut object);
                    self.event.response_object = Some(object);
                }
                None if response.body().whole_size().is_none() => {
                    self.sent = Some((Vec::new(), Vec::new()));
                    response.body_mut().observe(Box::new(self));
                    return;
                }
                None => {}
            }
        }
        if self.long {
            self.stage(Stage::ResponseStarted);
            response.body_mut().hold(Box::new(self));
            return;
        }
        self.over = true;
        self.stage(Stage::ResponseComplete);
    }

    /// Whether the body of the request is written as well.
    pub(crate) fn has_bodies(&self) -> bool {
        self.event.level >= Level::Request
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.event.audit_id
    }
}

impl Drop for RequestAudit {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if std::thread::panicking() {
            self.event.response_status = Some(ResponseStatus::panicked());
            self.stage(Stage::Panic);
            return;
        }
        if self.event.response_status.is_none() {
            self.event.response_status = Some(ResponseStatus::closed_early());
        } else if !self.long {
            // The client has not read it to its end.
            self.is_streamed();
        }
        self.stage(Stage::ResponseComplete);
    }
}

/// Names the request in its answer, as every kube-apiserver does.
pub(crate) fn write_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(value) = http::HeaderValue::from_str(id) {
        headers.insert(ID_HEADER, value);
    }
}

/// The client's id of the request, or a new one.
pub(crate) fn id(headers: &HeaderMap) -> String {
    let own = headers.get(ID_HEADER).and_then(|id| id.to_str().ok());
    match own.filter(|id| !id.is_empty()) {
        Some(id) => id.chars().take(MOST_ID).collect(),
        None => uuid::Builder::from_random_bytes(rand::random())
            .into_uuid()
            .to_string(),
    }
}

/// The source addresses of a request: from proxy headers, then the peer of the connection.
fn sources(request: &Incoming) -> Vec<String> {
    let text = |name: &str| request.headers.get(name)?.to_str().ok();
    let mut sources: Vec<IpAddr> = Vec::new();
    let forwarded = text("x-forwarded-for").unwrap_or_default();
    sources.extend(
        forwarded
            .split(',')
            .filter_map(|it| it.trim().parse::<IpAddr>().ok()),
    );
    let real = text("x-real-ip").and_then(|it| it.trim().parse::<IpAddr>().ok());
    sources.extend(real.filter(|real| !sources.contains(real)));
    let peer = request
        .peer
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |it| it.ip());
    if sources.last() != Some(&peer) {
        sources.push(peer);
    }
    sources.iter().map(ToString::to_string).collect()
}

fn agent(headers: &HeaderMap) -> String {
    let agent = headers.get(http::header::USER_AGENT);
    let agent = agent.map_or_else(String::new, |agent| {
        String::from_utf8_lossy(agent.as_bytes()).into_owned()
    });
    match agent.char_indices().nth(MOST_AGENT) {
        Some((end, _)) => format!("{}...TRUNCATED", &agent[..end]),
        None => agent,
    }
}

/// The object in a body, regardless of its encoding.
fn object_of(body: &[u8]) -> Option<Value> {
    if body.is_empty() {
        return None;
    }
    if crate::protobuf::is_protobuf(body) {
        return crate::protobuf::decode(body).ok();
    }
    serde_json::from_slice(body)
        .ok()
        .or_else(|| crate::yaml::read(body).ok().map(|yaml| yaml.value))
        .filter(|value| value.is_object() || value.is_array())
}
