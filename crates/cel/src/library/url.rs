//! Functions on URLs.

use std::{collections::BTreeMap, sync::Arc};

use super::{Outcome, text};
use crate::{
    library::Function,
    url::{Url, parse_request_uri},
    value::{Extension, Fault, Map, MapKey, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "url" => |args| match parse_request_uri(text(&args[0])?) {
            Ok(url) => Ok(Value::Extension(Arc::new(Extension::Url(url)))),
            Err(error) => Err(Fault::new(format!(
                "URL parse error during conversion from string: {error}"
            ))),
        },
        "isURL" => |args| Ok(Value::Bool(parse_request_uri(text(&args[0])?).is_ok())),
        "getScheme" => |args| Ok(Value::string(url(&args[0])?.scheme.as_str())),
        "getHost" => |args| Ok(Value::string(url(&args[0])?.host.as_str())),
        "getHostname" => |args| Ok(Value::string(url(&args[0])?.hostname())),
        "getPort" => |args| Ok(Value::string(url(&args[0])?.split_port().1)),
        "getEscapedPath" => |args| Ok(Value::string(url(&args[0])?.path.as_str())),
        "getQuery" => |args| query(url(&args[0])?),
        _ => return None,
    })
}

fn url<'v>(value: &'v Value<'_>) -> Result<&'v Url, Fault> {
    match value {
        Value::Extension(extension) => match &**extension {
            Extension::Url(url) => Ok(url),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

fn query<'a>(url: &Url) -> Outcome<'a> {
    let mut entries: BTreeMap<MapKey, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url
        .query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
    {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (unescape(key), unescape(value)) {
            entries
                .entry(MapKey::String(key.into()))
                .or_default()
                .push(Value::string(value));
        }
    }
    let entries = entries
        .into_iter()
        .map(|(key, values)| (key, Value::list(values)))
        .collect();
    Ok(Value::Map(Map::Shared(Arc::new(entries))))
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'+' => out.push(b' '),
            b'%' => {
                let mut digit = || (bytes.next()? as char).to_digit(16);
                out.push((digit()? * 16 + digit()?) as u8);
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok()
}
