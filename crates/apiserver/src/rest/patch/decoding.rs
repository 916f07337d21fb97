//! Patched objects are decoded as objects in a body are; their errors are about the patch.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_schema::{decode, types};
use serde_json::Value;

use super::super::body::{TypeMeta, internal_package, is_registered, not_registered};
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::object::{split_api_version, text};
use crate::versions;

/// A patched object passes the same decoder as one in a body; errors show it as `shown` prints it. `strict` are the
/// unknown and duplicate fields of the patch itself, which `mode` handles together with those of the object.
pub(super) fn decode_patched(
    call: &Call<'_>,
    value: Value,
    mode: decode::Mode,
    strict: &[String],
    shown: &dyn Fn() -> String,
) -> Result<Value> {
    if call.resource.custom.is_none() {
        TypeMeta::of_value(&value).map_err(|error| refused(&shown(), &error))?;
    }
    // A patch that changes the kind of the object is validated as that kind first, as by upstream's decoder.
    let (group, version) = split_api_version(text(&value, &["apiVersion"]));
    let kind = text(&value, &["kind"]);
    if call.resource.custom.is_none() && !is_registered(group, version, kind) {
        let error = not_registered(text(&value, &["apiVersion"]), kind);
        return Err(refused(&shown(), &error));
    }
    if kind != call.resource.kind
        && let Some(other) = types::lookup(group, version, kind)
    {
        decode_as(value.clone(), other, decode::Mode::Ignore, &[], shown)?;
        if call.resource.custom.is_none() {
            let (package, own) = (internal_package(&call.resource.group), &call.resource.kind);
            let error =
                format!("converting ({version}.{kind}) to ({package}.{own}): unknown conversion");
            return Err(refused(&shown(), &error));
        }
    }
    // A patch that changes the version results in an object of that version.
    if group == call.resource.group
        && version != call.version
        && call.resource.custom.is_none()
        && call.resource.version(version).is_some()
        && let Some(other) = types::lookup(group, version, kind)
    {
        let version = version.to_owned();
        let (mut value, warnings) = decode_as(value, other, mode, strict, shown)?;
        for warning in warnings {
            call.request.warnings.add(warning);
        }
        crate::strategy::default(&call.resource, &version, &mut value);
        return versions::convert(&call.resource, value, &call.version);
    }
    let schema = types::lookup(&call.resource.group, &call.version, &call.resource.kind);
    let (mut value, warnings) = match (&call.resource.custom, schema) {
        (Some(custom), _) => {
            let mut value = value;
            decode::settle_numbers(&mut value);
            let claimed = TypeMeta::of_value(&value).map_err(|error| refused(&shown(), &error))?;
            if claimed.kind.is_empty() {
                // The message shows the value that lacks the field, which is the whole object.
                let shown = shown();
                claimed
                    .with_kind(shown.as_bytes())
                    .map_err(|error| refused(&shown, &error))?;
            }
            let unknown = custom
                .read(&mut value)
                .map_err(|error| refused(&shown(), &error))?;
            let strict = strict.iter().cloned().chain(unknown).collect();
            let decoded = decode::Decoded {
                value,
                strict,
                raws: Vec::new(),
                empties: Vec::new(),
            };
            decoded
                .apply(mode)
                .map_err(|error| refused(&shown(), &error))?
        }
        (None, Some(schema)) => decode_as(value, schema, mode, strict, shown)?,
        (None, None) => return Ok(value),
    };
    for warning in warnings {
        call.request.warnings.add(warning);
    }
    if call.resource.custom.is_none() {
        versions::set_type(&mut value, &call.resource, &call.version);
    }
    Ok(value)
}

/// Decodes a patched object; an error is a 422 about the patch.
pub(super) fn decode_as(
    value: Value,
    schema: &'static types::Struct,
    mode: decode::Mode,
    strict: &[String],
    shown: &dyn Fn() -> String,
) -> Result<(Value, Vec<String>)> {
    decode::decode_value(value, schema)
        .and_then(|mut decoded| {
            crate::empties::sent(std::mem::take(&mut decoded.empties));
            decoded.strict.splice(0..0, strict.iter().cloned());
            decoded.apply(mode)
        })
        .map_err(|error| refused(&shown(), &error))
}

/// 422 about a patch whose result is no object of the kind.
pub(super) fn refused(shown: &str, error: &dyn std::fmt::Display) -> ApiError {
    let error = Error::invalid(&Path::new("patch"), shown, error.to_string());
    Status::invalid(&GroupKind::default(), "", &[error].into()).into()
}

/// A custom object that a patch has given another version is invalid.
pub(super) fn check_custom_version(call: &Call<'_>, value: &Value) -> Result<()> {
    let found = text(value, &["apiVersion"]);
    let wanted = call.resource.api_version(&call.version);
    if call.resource.custom.is_none() || found == wanted {
        return Ok(());
    }
    let error = Error::invalid(&Path::new("apiVersion"), found, format!("must be {wanted}"));
    let kind = GroupKind::new(split_api_version(found).0, text(value, &["kind"]));
    Err(Status::invalid(&kind, call.name(), &[error].into()).into())
}
