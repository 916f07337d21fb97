//! Reading objects from request bodies.

use allot_schema::decode::DecodeError;
use serde_json::Value;

use super::media_type::{content_type, unknown_format};
use crate::context::{Call, FieldValidation};
use crate::custom::CustomResource;
use crate::error::{ApiError, Result};
use crate::yaml;

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
                // As JSON text, so that one decoder sees all bodies.
                std::borrow::Cow::Owned(read.value.to_string().into_bytes())
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
        let version_name = format!("{api_version}, Kind={kind}");
        let text =
            match crate::classic::without_source(&self.core.registry.load(), group, kind, &text) {
                Some(newer) => std::borrow::Cow::Owned(newer),
                None => text,
            };
        let decode = |schema, version: &str| {
            allot_schema::decode::decode_json(&text, schema).map_err(|error| {
                if let Some(early) = type_error(&text, kind, &error) {
                    return unrecognized(
                        kind,
                        &format!("couldn't get version/kind; json parse error: {early}"),
                        body,
                    );
                }
                ApiError::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
                ))
            })
        };
        let mut decoded = decode(schema, version).map_err(|error| {
            let other = self.of_other_kind(&text, api_version, kind);
            other.unwrap_or(error)
        })?;
        crate::raw::sent_object(std::mem::take(&mut decoded.raws));
        crate::empties::sent(std::mem::take(&mut decoded.empties));
        decoded.strict.splice(0..0, repeated);
        let sent_version = decoded.value["apiVersion"].as_str().unwrap_or_default();
        if sent_version.matches('/').count() > 1 {
            return Err(unread(format!(
                "unexpected GroupVersion string: {sent_version}"
            )));
        }
        if sent_version.ends_with('/') && sent_version.len() > 1 {
            return Err(ApiError::bad_request(format!(
                "{} in version \"\" cannot be handled as a {kind}: Object 'apiVersion' is missing in '{}'",
                decoded.value["kind"].as_str().unwrap_or(kind),
                String::from_utf8_lossy(&text)
            )));
        }
        // A group without a name is the core group.
        let sent_version = sent_version
            .strip_prefix('/')
            .unwrap_or(sent_version)
            .to_owned();
        let sent_kind = decoded.value["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let other_version = !sent_version.is_empty() && sent_version != api_version;
        if other_version && self.field_validation == FieldValidation::Warn {
            let (group, version) = crate::object::split_api_version(&sent_version);
            if let Some(other) = allot_schema::types::lookup(group, version, kind) {
                for warning in decode(Some(other), version)?.strict {
                    self.request.warnings.add(warning);
                }
            }
        }
        let other_kind = !sent_kind.is_empty() && sent_kind != kind;
        if other_kind || other_version {
            return Err(self.wrong_kind(&sent_version, &sent_kind, &version_name));
        }
        let (mut value, warnings) = decoded.apply(self.decode_mode()).map_err(|error| {
            ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
            ))
        })?;
        for warning in warnings.iter().flat_map(|text| yaml::warnings(text)) {
            self.request.warnings.add(warning);
        }
        value["kind"] = kind.into();
        value["apiVersion"] = api_version.into();
        Ok(value)
    }

    /// The error about a body that does not fit its kind, if it claims to be of another kind or version: upstream
    /// decodes it as that.
    fn of_other_kind(&self, text: &[u8], api_version: &str, kind: &str) -> Option<ApiError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Claimed {
            #[serde(default)]
            api_version: String,
            #[serde(default)]
            kind: String,
        }
        // What is read into a struct could also be a list of its fields.
        if !text.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        let claimed: Claimed = serde_json::from_slice(text).ok()?;
        let or = |sent: String, own: &str| match sent.is_empty() {
            true => own.to_owned(),
            false => sent,
        };
        let sent_version = or(claimed.api_version, api_version);
        let sent_kind = or(claimed.kind, kind);
        if (sent_version.as_str(), sent_kind.as_str()) == (api_version, kind)
            || sent_version.matches('/').count() > 1
            || sent_version.ends_with('/')
        {
            return None;
        }
        let (group, version) = crate::object::split_api_version(&sent_version);
        if let Some(other) = allot_schema::types::lookup(group, version, &sent_kind)
            && let Err(error) = allot_schema::decode::decode_json(text, Some(other))
        {
            return Some(ApiError::bad_request(format!(
                "{sent_kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
            )));
        }
        let wanted = format!("{api_version}, Kind={kind}");
        Some(self.wrong_kind(&sent_version, &sent_kind, &wanted))
    }

    /// How unknown and duplicate fields are handled: error, warning or ignored.
    pub(super) fn decode_mode(&self) -> allot_schema::decode::Mode {
        match self.field_validation {
            FieldValidation::Ignore => allot_schema::decode::Mode::Ignore,
            FieldValidation::Warn => allot_schema::decode::Mode::Warn,
            FieldValidation::Strict => allot_schema::decode::Mode::Strict,
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
        let mut decoded =
            allot_schema::decode::decode_json(text, None).map_err(|error| match error {
                DecodeError::Syntax(text) => unread(format!(
                    "couldn't get version/kind; json parse error: {text}"
                )),
                // A number that no float holds is met after the kind.
                other => ApiError::bad_request(format!(
                    "{wanted} in version \"{}\" cannot be handled as a {wanted}: {other}",
                    self.version
                )),
            })?;
        let (api_version, kind) = claimed_type(&decoded.value, body).map_err(unread)?;
        let (_, version) = crate::object::split_api_version(&api_version);
        let unusable = |error: &dyn std::fmt::Display| {
            ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {wanted}: {error}"
            ))
        };
        let unknown = custom
            .read(&mut decoded.value)
            .map_err(|error| unusable(&error))?;
        decoded.strict.extend(unknown);
        decoded.strict.splice(0..0, repeated);
        let (value, warnings) = decoded
            .apply(self.decode_mode())
            .map_err(|error| unusable(&error))?;
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

    fn wrong_kind(&self, sent_version: &str, sent_kind: &str, wanted: &str) -> ApiError {
        let (wanted_version, kind) = wanted.split_once(", Kind=").unwrap_or_default();
        let (wanted_group, _) = crate::object::split_api_version(wanted_version);
        let own_version = self.resource.api_version(&self.version);
        let sent_version = if sent_version.is_empty() {
            &own_version
        } else {
            sent_version
        };
        let (group, version) = crate::object::split_api_version(sent_version);
        let named = if sent_kind.is_empty() {
            kind
        } else {
            sent_kind
        };
        let custom = self.resource.custom.is_some();
        if !custom && !is_registered(self, group, version, named) {
            let error = not_registered(sent_version, named);
            return ApiError::bad_request(format!(
                "{named} in version \"{version}\" cannot be handled as a {kind}: {error}"
            ));
        }
        if sent_kind == kind {
            return ApiError::bad_request(format!(
                "the API version in the data ({sent_version}) does not match the expected API version ({})",
                self.resource.api_version(&self.version)
            ));
        }
        let version = sent_version.rsplit('/').next().unwrap_or_default();
        ApiError::bad_request(format!(
            "{sent_kind} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{sent_kind}) to \
             ({}.{kind}): unknown conversion",
            internal_package(wanted_group)
        ))
    }
}

/// The Go package of a group's internal types in kube-apiserver.
pub(super) fn internal_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Upstream has the kind in that version registered. Older versions of its groups are registered though not served.
pub(super) fn is_registered(call: &Call<'_>, group: &str, version: &str, kind: &str) -> bool {
    let known =
        group == allot_model::GROUP && matches!(version, "v1alpha3" | "v1beta1" | "v1beta2");
    let older = (version.contains("alpha") || version.contains("beta"))
        && !known
        && (group == call.resource.group || matches!(group, "apps" | "batch" | "policy"))
        && !group.is_empty();
    let has = |version: &str| allot_schema::types::lookup(group, version, kind).is_some();
    let own = group == call.resource.group && kind == call.resource.kind;
    kind.is_empty() || has(version) || older && (own || has("v1"))
}

/// Upstream's message for a kind that is not registered.
pub(super) fn not_registered(api_version: &str, kind: &str) -> String {
    format!(
        "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
    )
}

/// Kind and version in an object, as upstream reads them first; `sent` is shown if there is no kind.
///
/// # Errors
/// The decoder's text.
pub(super) fn claimed_type(
    value: &Value,
    sent: &[u8],
) -> std::result::Result<(String, String), String> {
    if let Some(found) = not_an_object(value) {
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {TYPE_META}"
        ));
    }
    let field = |key: &str| match &value[key] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        other => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{key} of type string",
            allot_schema::decode::json_type(other)
        )),
    };
    let (api_version, kind) = (field("apiVersion")?, field("kind")?);
    if api_version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {api_version}"));
    }
    if kind.is_empty() {
        let sent = String::from_utf8_lossy(sent);
        return Err(format!("Object 'Kind' is missing in '{sent}'"));
    }
    Ok((api_version, kind))
}

/// The type of a value that is no JSON object, in Go's terms; null is an empty object.
pub(super) fn not_an_object(value: &Value) -> Option<&'static str> {
    match value {
        Value::Object(_) | Value::Null => None,
        other => Some(allot_schema::decode::json_type(other)),
    }
}

/// The type that upstream decodes first of every object, in Go's notation.
pub(super) const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                                    Kind string \"json:\\\"kind,omitempty\\\"\" }";

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

/// The error that upstream finds before it decodes the object itself: it reads kind and version first.
fn type_error(text: &[u8], kind: &str, error: &DecodeError) -> Option<String> {
    let found = match error {
        DecodeError::Syntax(text) => return Some(text.clone()),
        DecodeError::Strict(_) => return None,
        DecodeError::Type(text) => text,
    };
    for field in ["kind", "apiVersion"] {
        let end = format!(" into Go struct field {kind}.{field} of type string");
        if let Some(start) = found.strip_suffix(&end) {
            return Some(format!(
                "{start} into Go struct field .{field} of type string"
            ));
        }
    }
    let root = text.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let is = match root {
        b'{' => return None,
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        _ => "number",
    };
    Some(format!(
        "json: cannot unmarshal {is} into Go value of type {TYPE_META}"
    ))
}

/// Protobuf as JSON text.
fn protobuf_to_json(body: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let text = crate::protobuf::to_json(body).map_err(|error| error.to_string())?;
    Ok(text.into_bytes())
}

/// Upstream's error about a version or kind that is no text.
pub(super) fn untyped(value: &Value) -> Option<String> {
    let mut members = ["apiVersion", "kind"]
        .map(|key| (key, &value[key]))
        .into_iter();
    let (key, found) = members.find(|(_, it)| !it.is_string() && !it.is_null())?;
    let found = allot_schema::decode::json_type(found);
    Some(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{key} of type string"
    ))
}
