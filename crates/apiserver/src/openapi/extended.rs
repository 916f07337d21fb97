//! What extension API servers add to the documents: their own in the newer format, which they answer themselves, and their
//! parts of the document of all groups.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use http::Method;
use serde_json::Value;

use super::{convert, merge, part};
use crate::extensions::{Described, Document, Extension};
use crate::registry::Registry;
use crate::request::Incoming;
use crate::state::ServerState;

/// A document in the newer format.
struct Listed {
    hash: String,
    extension: Arc<Extension>,
    described: Arc<Described>,
}

/// The documents of extensions by their names, each of the first extension that has it. The document of a group is that of
/// this server if it has one.
fn all(core: &ServerState) -> BTreeMap<String, Listed> {
    let (mut all, registry) = (BTreeMap::new(), core.registry.load());
    for extension in core.extensions.by_priority() {
        let described = extension.described();
        let own_name = extension.path().trim_start_matches('/').to_owned();
        let names = match (&described.newer, &described.older) {
            (Some(names), _) => names.clone(),
            (None, Some(older)) => BTreeMap::from([(own_name.clone(), older.hash.clone())]),
            (None, None) => BTreeMap::new(),
        };
        for (name, hash) in names {
            let is_group = name != own_name;
            if is_group && has_group(&registry, &extension.group) {
                continue;
            }
            if let Entry::Vacant(place) = all.entry(name) {
                place.insert(Listed {
                    hash,
                    extension: extension.clone(),
                    described: described.clone(),
                });
            }
        }
    }
    all
}

fn has_group(registry: &Registry, group: &str) -> bool {
    registry.of_group(group).next().is_some()
}

/// Names and hashes of the documents of extensions.
pub(super) fn listed(core: &ServerState) -> impl Iterator<Item = (String, String)> {
    all(core).into_iter().map(|(name, it)| (name, it.hash))
}

/// The extension whose document a request is for, if it has documents in the newer format.
pub(crate) fn served_by(core: &ServerState, request: &Incoming) -> Option<Arc<Extension>> {
    let name = request.info.path.strip_prefix("/openapi/v3/")?;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return None;
    }
    let found = all(core).remove(name)?;
    found.described.newer.is_some().then_some(found.extension)
}

/// The part in the older format of an extension that has no other, if its document is the requested one.
pub(super) fn converted(core: &ServerState, name: &str) -> Option<Arc<Document>> {
    let described = all(core).remove(name)?.described;
    match described.newer {
        None => described.older.clone(),
        Some(_) => None,
    }
}

/// That part in the newer format.
pub(super) fn newer(part: &Document) -> Value {
    convert::newer(value(part))
}

/// The parts of all extensions in the order in which they are added. Those beyond `most` bytes are left out.
pub(super) fn parts(core: &ServerState, most: usize) -> Vec<Arc<Document>> {
    let (mut parts, mut size) = (Vec::new(), 0);
    for extension in core.extensions.by_priority() {
        let Some(part) = extension.described().older.clone() else {
            continue;
        };
        match size + part.text.len() {
            total if total <= most => {
                size = total;
                parts.push(part);
            }
            _ => {
                let name = &extension.name;
                tracing::debug!(
                    name,
                    "its schemas are left out of the document of all groups, which is too large"
                );
            }
        }
    }
    parts
}

/// The hash of a document with parts.
pub(super) fn hash(own: String, parts: &[Arc<Document>]) -> String {
    if parts.is_empty() {
        return own;
    }
    let hashes = parts.iter().map(|part| part.hash.as_str());
    let all: Vec<&str> = std::iter::once(own.as_str()).chain(hashes).collect();
    part::digest(&all)
}

/// Adds parts to the document of all groups.
pub(super) fn add(document: &mut Value, parts: &[Arc<Document>]) {
    for part in parts {
        if !merge::merge(document, value(part)) {
            tracing::debug!("an extension API server has definitions that cannot be named");
        }
    }
}

/// The value of a part, which was serialised from one.
fn value(part: &Document) -> Value {
    serde_json::from_slice(&part.text).unwrap_or_default()
}
