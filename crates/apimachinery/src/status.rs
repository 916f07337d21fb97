//! `Status` of the API: what a failed request answers, with upstream's reasons and texts.

use serde::{Deserialize, Serialize};

use crate::{
    field::{self, ErrorList},
    gvk::{GroupKind, GroupResource},
    quote::quote,
};

/// A `v1` Status object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "kind")]
    pub kind: String,
    /// Always `v1`.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// List metadata, empty in errors.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// `Failure` or `Success`.
    #[serde(default)]
    pub status: String,
    /// Text for humans.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Machine-readable reason, as in `NotFound`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the error is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// HTTP status code.
    #[serde(default)]
    pub code: u16,
}

/// What a Status is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource, or kind if only that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single mistakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which the request may be repeated.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: i32,
}

/// One mistake in a Status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Machine-readable reason, as in `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Text for humans.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn kind() -> String {
    "Status".to_owned()
}

fn api_version() -> String {
    "v1".to_owned()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for this signature"
)]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

impl Status {
    /// A failure with this code, reason and text.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind(),
            api_version: api_version(),
            metadata: serde_json::Map::new(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.to_owned(),
            details: None,
            code,
        }
    }

    /// The answer to a completed deletion.
    pub fn success(resource: &GroupResource, name: &str, uid: &str) -> Self {
        let mut status = Self::failure(200, "", "").about(resource, name);
        "Success".clone_into(&mut status.status);
        if let Some(details) = &mut status.details {
            uid.clone_into(&mut details.uid);
        }
        status
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            ..Details::default()
        }));
        self
    }

    /// The same with the number of seconds after which to retry.
    #[must_use]
    pub fn retry_after(mut self, seconds: i32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 404: the object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(
            404,
            "NotFound",
            format!("{resource} {} not found", quote(name)),
        )
        .about(resource, name)
    }

    /// 404: there is no such resource or path.
    pub fn no_resource() -> Self {
        let mut status = Self::failure(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    /// 409: an object of that name exists.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(
            409,
            "AlreadyExists",
            format!("{resource} {} already exists", quote(name)),
        )
        .about(resource, name)
    }

    /// 409: no unique name could be generated.
    pub fn generate_name_conflict(
        resource: &GroupResource,
        name: &str,
        retry_after_seconds: i32,
    ) -> Self {
        let text = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        Self::failure(409, "AlreadyExists", text)
            .about(resource, name)
            .retry_after(retry_after_seconds)
    }

    /// 409: the object changed meanwhile, or a precondition failed.
    pub fn conflict(resource: &GroupResource, name: &str, cause: &str) -> Self {
        let text = format!(
            "Operation cannot be fulfilled on {resource} {}: {cause}",
            quote(name)
        );
        Self::failure(409, "Conflict", text).about(resource, name)
    }

    /// 409: other field managers own what an apply sets.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        let mut status = Self::failure(409, "Conflict", message);
        status.details = Some(Box::new(Details {
            causes,
            ..Details::default()
        }));
        status
    }

    /// 422: the object is invalid.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &ErrorList) -> Self {
        let mut text = format!("{kind} {} is invalid", quote(name));
        if let Some(all) = field::aggregate(errors) {
            text.push_str(": ");
            text.push_str(&all);
        }
        let (mut causes, mut length) = (Vec::new(), 0);
        for error in errors {
            if length > field::MOST_TEXT {
                break;
            }
            let message = error.body();
            length += message.len() + error.field.len();
            causes.push(Cause {
                reason: error.kind.reason().to_owned(),
                message,
                field: error.field.clone(),
            });
        }
        let mut status = Self::failure(422, "Invalid", text);
        status.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes,
            ..Details::default()
        }));
        status
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 401: the client is not authenticated.
    pub fn unauthorized(message: &str) -> Self {
        Self::failure(
            401,
            "Unauthorized",
            if message.is_empty() {
                "not authorized"
            } else {
                message
            },
        )
    }

    /// 403: the user is not authorized.
    pub fn forbidden(resource: &GroupResource, name: &str, cause: &str) -> Self {
        let text = if resource.is_empty() {
            format!("forbidden: {cause}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {cause}")
        } else {
            format!("{resource} {} is forbidden: {cause}", quote(name))
        };
        Self::failure(403, "Forbidden", text).about(resource, name)
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let text = format!(
            "{action} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        Self::failure(405, "MethodNotAllowed", text).about(resource, "")
    }

    /// 406: none of the accepted media types can be written.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    /// 410: the resource version is too old for a watch or a list.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 410: the requested version is no longer available.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, "Gone", message)
    }

    /// 413: the body is too large.
    pub fn request_entity_too_large(message: &str) -> Self {
        Self::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {message}"),
        )
    }

    /// 415: the body has a media type that cannot be read.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::failure(415, "UnsupportedMediaType", message)
    }

    /// 429: too many requests; retry later.
    pub fn too_many_requests(message: &str, retry_after_seconds: i32) -> Self {
        Self::failure(429, "TooManyRequests", message).retry_after(retry_after_seconds)
    }

    /// 500: an internal error.
    pub fn internal(cause: &str) -> Self {
        let mut status = Self::failure(
            500,
            "InternalError",
            format!("Internal error occurred: {cause}"),
        );
        let causes = vec![Cause {
            message: cause.to_owned(),
            ..Cause::default()
        }];
        status.details = Some(Box::new(Details {
            causes,
            ..Details::default()
        }));
        status
    }

    /// 504: the request took too long.
    pub fn timeout(message: &str, retry_after_seconds: i32) -> Self {
        Self::failure(504, "Timeout", format!("Timeout: {message}"))
            .retry_after(retry_after_seconds)
    }

    /// The body of the response, with `kind` and `apiVersion`.
    pub fn to_json(&self) -> serde_json::Value {
        // A struct of strings and numbers always serialises.
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
