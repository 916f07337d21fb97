//! Events, with their fields in upstream's order.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::policy::{Level, Stage};
use crate::identity::User;
use crate::object::text;

/// The audit event of one stage of a request.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub kind: &'static str,
    pub api_version: &'static str,
    pub level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: String,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    pub verb: String,
    pub user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Value>,
    pub request_received_timestamp: String,
    pub stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// How the request was authenticated.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationMetadata {
    /// The verb of the constrained mode of impersonation that the request used.
    pub impersonation_constraint: String,
}

/// The requesting user.
#[derive(Debug, Clone, Serialize)]
pub struct UserInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    pub fn of(user: &User) -> Self {
        UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// What a request is about.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectReference {
    /// Takes fields from an object that the path does not have.
    pub fn complete(&mut self, metadata: &Value) {
        let fill = |field: &mut String, name: &str| {
            if field.is_empty() {
                *field = text(metadata, &[name]).to_owned();
            }
        };
        fill(&mut self.namespace, "namespace");
        fill(&mut self.name, "name");
        fill(&mut self.uid, "uid");
        fill(&mut self.resource_version, "resourceVersion");
    }
}

/// `responseStatus`: the parts of the response's Status that are logged at every level.
#[derive(Debug, Clone, Serialize)]
pub struct ResponseStatus {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    code: u16,
}

impl ResponseStatus {
    fn new(status: &str, message: &str, reason: &str, code: u16) -> Self {
        ResponseStatus {
            metadata: BTreeMap::new(),
            status: status.to_owned(),
            message: message.to_owned(),
            reason: reason.to_owned(),
            details: None,
            code,
        }
    }

    /// That of an answer; `object` is the Status that it is, if it is one.
    pub fn of(code: u16, object: Option<&Value>) -> Self {
        let text = |name: &str| object.map_or("", |object| text(object, &[name]));
        let mut status = Self::new(text("status"), text("message"), text("reason"), code);
        status.details = object.and_then(|object| object.get("details")).cloned();
        status
    }

    /// The server's fault.
    pub fn panicked() -> Self {
        Self::new("Failure", "APIServer panic'd", "InternalError", 500)
    }

    /// The client has left.
    pub fn closed_early() -> Self {
        Self::new("Success", "Connection closed early", "", 200)
    }
}
