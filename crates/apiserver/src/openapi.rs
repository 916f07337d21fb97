//! `/openapi/v2` and `/openapi/v3`: documents generated from the registry and the type data, for `kubectl explain`,
//! `apply` and `diff`, with those of extension API servers ([`extended`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use allot_schema::openapi::{self as schemas, Format};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::body::Body;
use crate::large::in_place;
use crate::registered;
use crate::registry::Registry;
use crate::request::Incoming;
use crate::state::ServerState;

mod convert;
mod extended;
mod merge;
mod part;
mod paths;
mod shared;
mod swagger;

pub(crate) use extended::served_by;
use part::{Part, add_groups, components, digest, parts};
pub(crate) use swagger::{Refused, reduce};

const JSON: &str = "application/json";

/// The most bytes of the parts of extension API servers in the document of all groups.
const MAX_PARTS: usize = 16 << 20;

/// Generated documents by path, with the hash of their input.
#[derive(Default)]
pub struct Cache {
    documents: Mutex<BTreeMap<String, (String, Bytes)>>,
    /// The hashes of the documents of one registry, the last that a request needed.
    hashes: Mutex<(Weak<Registry>, Arc<Hashes>)>,
    /// Held while a document is made: others that want it wait for it.
    making: tokio::sync::Mutex<()>,
}

/// Hashes that change with the documents of a registry.
#[derive(Debug, Default)]
struct Hashes {
    /// That of the document of all groups.
    all: String,
    /// Those of the others, by their names.
    parts: BTreeMap<String, String>,
}

impl Hashes {
    fn of(registry: &Registry) -> Self {
        let parts = parts(registry).into_iter();
        let parts: BTreeMap<_, _> = parts.map(|(name, part)| (name, part.hash())).collect();
        let all: Vec<&str> = parts.values().map(String::as_str).collect();
        Hashes {
            all: digest(&all),
            parts,
        }
    }
}

/// Answers a request on the documents; none where the path is another.
pub async fn answer(
    core: &ServerState,
    cache: &Cache,
    request: &Incoming,
) -> Option<Response<Body>> {
    let rest = request.info.path.strip_prefix("/openapi/")?;
    let registry = core.registry.load_full();
    if rest == "v2" {
        let parts = extended::parts(core, MAX_PARTS);
        let own = cache.hashes(&registry).await;
        let hash = extended::hash(own.all.clone(), &parts);
        let make = || {
            let mut document = v2(&registry);
            extended::add(&mut document, &parts);
            document
        };
        return Some(document(cache, request, "v2", &hash, make).await);
    }
    let name = rest.strip_prefix("v3")?;
    let Some(name) = name.strip_prefix('/') else {
        return Some(if name.is_empty() {
            index(core, &*cache.hashes(&registry).await)
        } else {
            plain(404, "")
        });
    };
    if let Some(converted) = extended::converted(core, name) {
        let (hash, make) = (&converted.hash, || extended::newer(&converted));
        return Some(versioned(cache, request, name, hash, make).await);
    }
    let hashes = cache.hashes(&registry).await;
    let Some(hash) = hashes.parts.get(name) else {
        return Some(plain(404, ""));
    };
    let make = || {
        let part = parts(&registry).remove(name);
        part.map_or(Value::Null, |part| part.v3())
    };
    Some(versioned(cache, request, name, hash, make).await)
}

/// A document in the newer format. An address with the hash of an earlier one leads to the present one.
async fn versioned(
    cache: &Cache,
    request: &Incoming,
    name: &str,
    hash: &str,
    make: impl FnOnce() -> Value,
) -> Response<Body> {
    if let Some(sent) = request.query.get("hash").filter(|sent| *sent != hash) {
        tracing::debug!(sent, "outdated document address");
        let mut response = plain(301, "");
        let target = format!("/openapi/v3/{name}?hash={hash}");
        if let Ok(target) = HeaderValue::from_str(&target) {
            response.headers_mut().insert(header::LOCATION, target);
        }
        return response;
    }
    document(cache, request, name, hash, make).await
}

impl Cache {
    /// The hashes of a registry. With large definitions they take long, and every request needs them, also one whose
    /// client has the document.
    async fn hashes(&self, registry: &Arc<Registry>) -> Arc<Hashes> {
        let known = || {
            let hashes = self.hashes.lock();
            let is_same = Weak::as_ptr(&hashes.0) == Arc::as_ptr(registry);
            is_same.then(|| hashes.1.clone())
        };
        if let Some(known) = known() {
            return known;
        }
        let _making = self.making.lock().await;
        if let Some(known) = known() {
            return known;
        }
        let made = Arc::new(in_place(|| Hashes::of(registry)));
        *self.hashes.lock() = (Arc::downgrade(registry), made.clone());
        // Documents of definitions that are there no longer, and those of extensions, which are made again.
        self.documents.lock().retain(|key, _| {
            let name = key.split(' ').next().unwrap_or_default();
            name == "v2" || made.parts.contains_key(name)
        });
        made
    }

    fn get(&self, key: &str, hash: &str) -> Option<Bytes> {
        let documents = self.documents.lock();
        let known = documents.get(key).filter(|(made_of, _)| made_of == hash);
        known.map(|(_, bytes)| bytes.clone())
    }

    fn make(
        &self,
        key: &str,
        hash: &str,
        (media, format): (&str, Format),
        make: impl FnOnce() -> Value,
    ) -> Bytes {
        let made = make();
        let bytes = if media == JSON {
            // Maps with string keys always serialise.
            serde_json::to_vec(&made).unwrap_or_default()
        } else {
            schemas::proto::encode(&made, format)
        };
        let bytes = Bytes::from(bytes);
        let entry = (hash.to_owned(), bytes.clone());
        self.documents.lock().insert(key.to_owned(), entry);
        bytes
    }
}

fn plain(code: u16, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::new()));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if !content_type.is_empty() {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

/// A document from the cache, or generated now, in the first supported media type of the request.
async fn document(
    cache: &Cache,
    request: &Incoming,
    name: &str,
    hash: &str,
    make: impl FnOnce() -> Value,
) -> Response<Body> {
    let etag = format!("\"{hash}\"");
    let accept = request
        .headers
        .get(header::ACCEPT)
        .map_or("*/*".into(), crate::header::lossy);
    let format = if name == "v2" { Format::V2 } else { Format::V3 };
    let spoken = |part: &str| match part.split(';').next().map(str::trim) {
        Some("*/*" | "application/*" | "application/json" | "") => Some(JSON),
        Some(
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
            | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        ) if format == Format::V2 => {
            Some("application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        }
        Some(
            "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
            | "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        ) if format == Format::V3 => {
            Some("application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
        }
        _ => None,
    };
    let Some(media) = accept.split(',').find_map(spoken) else {
        return plain(406, "");
    };
    let key = if media == JSON {
        name.to_owned()
    } else {
        format!("{name} {media}")
    };
    let key = key.as_str();
    let unchanged = request
        .headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|sent| sent.as_bytes() == etag.as_bytes());
    let mut response = if unchanged {
        plain(304, "")
    } else {
        let bytes = match cache.get(key, hash) {
            Some(known) => known,
            None => {
                let _making = cache.making.lock().await;
                let known = cache.get(key, hash);
                known.unwrap_or_else(|| in_place(|| cache.make(key, hash, (media, format), make)))
            }
        };
        let mut response = Response::new(Body::whole(bytes));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        response
    };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// The list of documents. Upstream sends it as plain text, which clients expect.
fn index(core: &ServerState, hashes: &Hashes) -> Response<Body> {
    let mut paths = Map::new();
    let own = hashes.parts.clone().into_iter();
    for (name, hash) in own.chain(extended::listed(core)) {
        let address = match hash.as_str() {
            "" => format!("/openapi/v3/{name}"),
            hash => format!("/openapi/v3/{name}?hash={hash}"),
        };
        paths.insert(name, json!({"serverRelativeURL": address}));
    }
    let text = json!({"paths": paths}).to_string();
    let mut response = Response::new(Body::whole(text));
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// The schemas in the document of a group and version; empty if there is none.
pub(crate) fn published(registry: &Registry, group: &str, version: &str) -> Map<String, Value> {
    let name = match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    };
    match parts(registry).remove(&name) {
        Some(Part::Version {
            version,
            resources,
            old_claims,
            ..
        }) => components(&version, &resources, old_claims, Format::V3),
        _ => Map::new(),
    }
}

/// Everything in one document, in the older format.
fn v2(registry: &Registry) -> Value {
    let mut all_paths = Map::new();
    let mut definitions = Map::new();
    for part in parts(registry).values() {
        match part {
            Part::Plain { name, .. } => {
                all_paths.extend(paths::plain(name, Format::V2));
                definitions.extend(paths::plain_schemas(name, Format::V2));
            }
            Part::Version {
                group,
                version,
                resources,
                old_claims,
            } => {
                all_paths.extend(paths::version(group, version, resources, Format::V2));
                definitions.extend(components(version, resources, *old_claims, Format::V2));
            }
        }
    }
    add_groups(&mut definitions, registered::versions());
    let parameters = shared::take(&mut all_paths);
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": part::release(registry).to_string()},
        "paths": all_paths,
        "definitions": definitions,
        "parameters": parameters,
        "securityDefinitions": {"BearerToken": {"in": "header", "name": "authorization", "type": "apiKey"}},
        "security": [{"BearerToken": []}],
    })
}

#[cfg(test)]
mod tests;
