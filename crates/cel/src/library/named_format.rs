//! Named formats of Kubernetes strings: `format.dns1123Label().validate(name)`.

use std::sync::Arc;

use allot_apimachinery::names;

use super::{Args, Outcome, strings, text};
use crate::{
    library::Function,
    value::{Extension, Fault, Format, Timestamp, Value, decode_base64},
};

const fn format(
    key: &'static str,
    name: &'static str,
    regex_size: u64,
    check: fn(&str) -> Vec<String>,
) -> Format {
    Format {
        name,
        key,
        check,
        regex_size,
    }
}

fn unless(ok: bool, text: &str) -> Vec<String> {
    if ok {
        Vec::new()
    } else {
        vec![text.to_owned()]
    }
}

static FORMATS: [Format; 13] = [
    format("dns1123Label", "DNS1123Label", 30, names::dns1123_label),
    format(
        "dns1123Subdomain",
        "DNS1123Subdomain",
        60,
        names::dns1123_subdomain,
    ),
    format("dns1035Label", "DNS1035Label", 30, names::dns1035_label),
    format("qualifiedName", "QualifiedName", 60, names::qualified_name),
    format("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |s| {
        names::dns1123_label(&names::mask_trailing_dash(s))
    }),
    format(
        "dns1123SubdomainPrefix",
        "DNS1123SubdomainPrefix",
        60,
        |s| names::dns1123_subdomain(&names::mask_trailing_dash(s)),
    ),
    format("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |s| {
        names::dns1035_label(&names::mask_trailing_dash(s))
    }),
    format("labelValue", "LabelValue", 40, names::label_value),
    format("uri", "URI", 1103, |s| {
        let error = crate::url::parse_request_uri(s).err();
        error.iter().map(ToString::to_string).collect()
    }),
    format("uuid", "uuid", 70, |s| {
        unless(is_uuid(s), "does not match the UUID format")
    }),
    format("byte", "byte", 84, |s| {
        let valid = !s.is_empty() && decode_base64(s).is_some();
        unless(valid, "invalid base64")
    }),
    format("date", "date", 71, |s| {
        unless(Timestamp::parse_date(s).is_some(), "invalid date")
    }),
    format("datetime", "datetime", 71, |s| {
        unless(Timestamp::parse(s).is_some(), "invalid datetime")
    }),
];

pub(super) fn function(name: &str) -> Option<Function> {
    macro_rules! constant {
        ($index:literal) => {
            |_| {
                Ok(Value::Extension(Arc::new(Extension::Format(
                    &FORMATS[$index],
                ))))
            }
        };
    }
    Some(match name {
        "format.dns1123Label" => constant!(0),
        "format.dns1123Subdomain" => constant!(1),
        "format.dns1035Label" => constant!(2),
        "format.qualifiedName" => constant!(3),
        "format.dns1123LabelPrefix" => constant!(4),
        "format.dns1123SubdomainPrefix" => constant!(5),
        "format.dns1035LabelPrefix" => constant!(6),
        "format.labelValue" => constant!(7),
        "format.uri" => constant!(8),
        "format.uuid" => constant!(9),
        "format.byte" => constant!(10),
        "format.date" => constant!(11),
        "format.datetime" => constant!(12),
        "format.named" => |args| {
            let name = text(&args[0])?;
            let found = FORMATS.iter().find(|format| format.key == name);
            let value =
                found.map(|format| Arc::new(Value::Extension(Arc::new(Extension::Format(format)))));
            Ok(Value::Optional(value))
        },
        "validate" => validate,
        _ => return None,
    })
}

fn validate<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let Value::Extension(extension) = &args[0] else {
        return Err(Fault::NoOverload);
    };
    let Extension::Format(format) = **extension else {
        return Err(Fault::NoOverload);
    };
    let problems = (format.check)(text(&args[1])?);
    Ok(Value::Optional(
        (!problems.is_empty()).then(|| Arc::new(strings(problems))),
    ))
}

/// Groups of 8, 4, 4, 4 and 12 hexadecimal digits, with or without dashes between them.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else {
            return false;
        };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}
