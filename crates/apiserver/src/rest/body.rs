//! Reading objects from request bodies.

use allot_apimachinery::quote::{go_json_bytes, quote};
use allot_schema::decode::{DecodeError, Decoded, Mode, decode_json};
use serde_json::Value;

mod type_meta;

use super::media_type::{content_type, unknown_format};
use crate::context::{Call, FieldValidation};
use crate::custom::CustomResource;
use crate::error::{ApiError, Result};
use crate::registered;
use crate::yaml;

pub(super) use type_meta::TypeMeta;

impl Call<'_> {
    /// The object in a body, as the kind and version of this request.
    ///
    /// # Errors
    /// 415 for an unknown media type, 400 for a body that is not the expected object.
    pub(super) fn object(&self, body: &[u8]) -> Result<Value> {
        let api_version = self.resource.api_version(&self.version);
        self.object_of(body, &api_version, &self.resource.kind)
    }

    /// The object in a body as a given kind (subresources speak others).
    pub(super) fn object_of(&self, body: &[u8], api_version: &str, kind: &str) -> Result<Value> {
        let unread = |error: String| unrecognized(kind, &error, body);
        let mut repeated = None;
        let text = match content_type(&self.request.headers).as_str() {
            "application/json" => std::borrow::Cow::Borrowed(body),
            "application/yaml" => {
                let read = yaml::read(body).map_err(unread)?;
                repeated = read.repeated;
                // As the JSON text that Go makes of it, so that one decoder sees all bodies.
                std::borrow::Cow::Owned(go_json_bytes(&read.value))
            }
            "application/vnd.kubernetes.protobuf" => {
                std::borrow::Cow::Owned(protobuf_to_json(body).map_err(unread)?)
            }
            other => {
                tracing::debug!(media_type = other, "unknown body type");
                return Err(unknown_format());
            }
        };
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", api_version),
        };
        let schema = allot_schema::types::lookup(group, version, kind);
        if let Some(custom) = self.resource.custom.as_ref().filter(|_| schema.is_none()) {
            return self.custom_object(custom, body, &text, repeated);
        }
        // As in Go, null is an object without any field.
        let text = match text.trim_ascii() {
            b"null" => std::borrow::Cow::Borrowed(&b"{}"[..]),
            _ => text,
        };
        let text =
            match crate::classic::without_source(&self.core.registry.load(), group, kind, &text) {
                Some(newer) => std::borrow::Cow::Owned(newer),
                None => text,
            };
        let decoded = decode_json(&text, schema);
        // Most bodies state the type in its own fields: what it is need not be read from the text as well.
        let is_plain = decoded
            .as_ref()
            .is_ok_and(|decoded| is_plainly(decoded, api_version, kind));
        if schema.is_none() || !is_plain {
            let claimed = TypeMeta::of_text(&text).map_err(unread)?;
            self.check_type(&text, claimed, api_version, kind)?;
        }
        let mut decoded = decoded.map_err(|error| match error {
            DecodeError::Syntax(text) => unread(format!(
                "couldn't get version/kind; json parse error: {text}"
            )),
            error => unusable(kind, version, kind, &error),
        })?;
        crate::raw::sent_object(std::mem::take(&mut decoded.raws));
        crate::empties::sent(std::mem::take(&mut decoded.empties));
        decoded.strict.splice(0..0, repeated);
        let (mut value, warnings) = decoded
            .apply(self.decode_mode())
            .map_err(|error| unusable(kind, version, kind, &error))?;
        for warning in warnings.iter().flat_map(|text| yaml::warnings(text)) {
            self.request.warnings.add(warning);
        }
        value["kind"] = kind.into();
        value["apiVersion"] = api_version.into();
        Ok(value)
    }

    /// Checks that a body which claims a type is of the kind and version of the request.
    fn check_type(
        &self,
        text: &[u8],
        claimed: TypeMeta,
        api_version: &str,
        kind: &str,
    ) -> Result<()> {
        let own = TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let sent = claimed.or(&own);
        if sent.api_version.ends_with('/') {
            return Err(ApiError::bad_request(format!(
                "{} in version \"\" cannot be handled as a {kind}: Object 'apiVersion' is missing in '{}'",
                sent.kind,
                String::from_utf8_lossy(text)
            )));
        }
        if sent != own {
            return Err(self.of_other_kind(text, &sent, &own));
        }
        Ok(())
    }

    /// The error about a body that states another kind or version than the one of the request. It is decoded as that first.
    fn of_other_kind(&self, text: &[u8], sent: &TypeMeta, own: &TypeMeta) -> ApiError {
        let (group, version) = crate::object::split_api_version(&sent.api_version);
        let kind = &own.kind;
        if let Some(other) = allot_schema::types::lookup(group, version, &sent.kind) {
            // What is no field of another kind does not matter: it cannot be converted.
            let mode = match sent.kind == *kind {
                true => self.decode_mode(),
                false => Mode::Ignore,
            };
            match decode_json(text, Some(other)).and_then(|decoded| decoded.apply(mode)) {
                Ok((_, warnings)) => {
                    for warning in warnings {
                        self.request.warnings.add(warning);
                    }
                }
                Err(error) => {
                    return unusable(&sent.kind, version, kind, &error);
                }
            }
        }
        self.wrong_kind(sent, own)
    }

    /// How unknown and duplicate fields are handled: error, warning or ignored.
    pub(super) fn decode_mode(&self) -> Mode {
        match self.field_validation {
            FieldValidation::Ignore => Mode::Ignore,
            FieldValidation::Warn => Mode::Warn,
            FieldValidation::Strict => Mode::Strict,
        }
    }

    /// The custom object in a body. It must have a kind; one of another kind is an invalid object, not another object.
    fn custom_object(
        &self,
        custom: &CustomResource,
        body: &[u8],
        text: &[u8],
        repeated: Option<String>,
    ) -> Result<Value> {
        let wanted = self.resource.kind.as_str();
        let unread = |error: String| unrecognized(wanted, &error, body);
        let mut decoded = decode_json(text, None).map_err(|error| match error {
            DecodeError::Syntax(text) => unread(format!(
                "couldn't get version/kind; json parse error: {text}"
            )),
            // A number that no float holds is met after the kind.
            other => unusable(wanted, &self.version, wanted, &other),
        })?;
        // Upstream reads the type twice: as that of any object, then that of a custom one. Most bodies state it once, in its
        // own fields, and both readings find the same.
        if !decoded.strict.is_empty() || !TypeMeta::is_plain(&decoded.value) {
            TypeMeta::of_text(text).map_err(unread)?;
        }
        let TypeMeta { api_version, kind } = TypeMeta::of_value(&decoded.value)
            .and_then(|claimed| claimed.with_kind(body))
            .map_err(unread)?;
        let (_, version) = crate::object::split_api_version(&api_version);
        let unknown = custom
            .read(&mut decoded.value)
            .map_err(|error| unusable(&kind, version, wanted, &error))?;
        decoded.strict.extend(unknown);
        decoded.strict.splice(0..0, repeated);
        let (value, warnings) = decoded
            .apply(self.decode_mode())
            .map_err(|error| unusable(&kind, version, wanted, &error))?;
        for warning in warnings.iter().flat_map(|text| yaml::warnings(text)) {
            self.request.warnings.add(warning);
        }
        let expected = self.resource.api_version(&self.version);
        if api_version != expected {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({expected})"
            )));
        }
        Ok(value)
    }

    fn wrong_kind(&self, sent: &TypeMeta, own: &TypeMeta) -> ApiError {
        let kind = &own.kind;
        let (own_group, _) = crate::object::split_api_version(&own.api_version);
        let (group, version) = crate::object::split_api_version(&sent.api_version);
        let custom = self.resource.custom.is_some();
        if !custom && !is_registered(group, version, &sent.kind) {
            let error = not_registered(&sent.api_version, &sent.kind);
            return unusable(&sent.kind, version, kind, &error);
        }
        if sent.kind == *kind {
            return ApiError::bad_request(format!(
                "the API version in the data ({}) does not match the expected API version ({})",
                sent.api_version, own.api_version
            ));
        }
        let error = format!(
            "converting ({version}.{}) to ({}.{kind}): unknown conversion",
            sent.kind,
            internal_package(own_group)
        );
        unusable(&sent.kind, version, kind, &error)
    }
}

/// Whether a decoded body is of this version and kind by its fields alone: it has no unknown field, which could state another
/// type in another letter case, and no field twice.
fn is_plainly(decoded: &Decoded, api_version: &str, kind: &str) -> bool {
    let states = |field: &str, own: &str| match &decoded.value[field] {
        Value::Null => true,
        Value::String(text) => text.is_empty() || text == own,
        _ => false,
    };
    decoded.strict.is_empty() && states("apiVersion", api_version) && states("kind", kind)
}

/// The Go package of a group's internal types in kube-apiserver.
pub(super) fn internal_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Upstream has the kind in that version registered. Older versions of its groups are registered though not served.
pub(super) fn is_registered(group: &str, version: &str, kind: &str) -> bool {
    kind.is_empty()
        || allot_schema::types::lookup(group, version, kind).is_some()
        || registered::has(group, version, kind)
}

/// Upstream's message for a kind that is not registered.
pub(super) fn not_registered(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\"",
        quote(kind),
        quote(api_version)
    )
}

/// 400 for a body that cannot be read as what it states.
fn unusable(sent: &str, version: &str, kind: &str, error: &dyn std::fmt::Display) -> ApiError {
    let version = quote(version);
    ApiError::bad_request(format!(
        "{sent} in version {version} cannot be handled as a {kind}: {error}"
    ))
}

/// 400 for a body without kind.
fn unrecognized(kind: &str, error: &str, body: &[u8]) -> ApiError {
    const SHOWN: usize = 30;
    let start = &body[..body.len().min(SHOWN)];
    let mut summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > SHOWN {
        summary.push_str(" ...");
    }
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {error} ({summary})"
    ))
}

/// Protobuf as JSON text.
fn protobuf_to_json(body: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let text = crate::protobuf::to_json(body).map_err(|error| error.to_string())?;
    Ok(text.into_bytes())
}
