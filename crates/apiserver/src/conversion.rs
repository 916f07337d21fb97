//! Conversion webhooks: the versions of a custom resource as its author's program makes them.
//!
//! What the store has is brought into the version of a request before anything else looks at it ([`entries`]), and what
//! a request leaves behind into the stored version when it is written ([`draft`]). In between every step sees the
//! version of the request, as upstream's do. What is in the wanted version already is never sent anywhere.

use std::sync::Arc;

use allot_schema::apply::Managed;
use allot_store::{Draft, Entry, Event};
use serde_json::Value;

use crate::custom::{Converter, CustomResource};
use crate::error::Result;
use crate::managed::Known;
use crate::object::{split_api_version, text};
use crate::registry::Resource;
use crate::state::ServerState;
use crate::storage::{self, Owned};
use crate::versions;

fn converter(resource: &Resource) -> Option<(&CustomResource, &Converter)> {
    let custom = resource.custom.as_deref()?;
    Some((custom, custom.converter()?))
}

/// Stored objects in a version of their resource: those that are in another one and need a webhook are converted, the
/// others stay as they are.
///
/// # Errors
/// 500 in upstream's words, where the webhook fails.
pub async fn entries(
    core: &ServerState,
    resource: &Resource,
    version: &str,
    mut entries: Vec<Arc<Entry>>,
) -> Result<Vec<Arc<Entry>>> {
    let Some((custom, converter)) = converter(resource) else {
        return Ok(entries);
    };
    let wanted = resource.api_version(version);
    let (mut places, mut objects) = (Vec::new(), Vec::new());
    for (place, entry) in entries.iter_mut().enumerate() {
        if let Some(known) = converter.remembered(version, entry) {
            *entry = known;
            continue;
        }
        if custom.mark(version) == Some(entry.mark()) {
            // It was shown in this version as it is stored.
            continue;
        }
        let object = versions::stored(resource, &entry.value)?;
        if object["apiVersion"] != wanted.as_str() {
            places.push(place);
            objects.push(object);
        }
    }
    let converted = converter.convert(&*core.backend, &objects, &wanted).await?;
    for (place, mut object) in places.into_iter().zip(converted) {
        custom.prune(version, &mut object);
        let entry = &mut entries[place];
        let bytes = object.to_string().into_bytes();
        *entry = Arc::new(Entry::new(entry.key.clone(), entry.revision, bytes.into()));
        converter.remember(version, entry);
    }
    Ok(entries)
}

/// As [`entries`], for one.
///
/// # Errors
/// As there.
pub async fn entry(
    core: &ServerState,
    resource: &Resource,
    version: &str,
    entry: Arc<Entry>,
) -> Result<Arc<Entry>> {
    let one = entries(core, resource, version, vec![entry.clone()]).await?;
    Ok(one.into_iter().next().unwrap_or(entry))
}

/// As [`entries`], for what happened to objects.
///
/// # Errors
/// As there.
pub async fn events(
    core: &ServerState,
    resource: &Resource,
    version: &str,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Arc<Event>>> {
    if !resource.is_converted_by_webhook() {
        return Ok(events);
    }
    let states = |event: &Arc<Event>| [Some(event.entry.clone()), event.previous.clone()];
    let all = events.iter().flat_map(states).flatten().collect();
    let mut converted = entries(core, resource, version, all).await?.into_iter();
    let mut next = |entry: &Arc<Entry>| converted.next().unwrap_or_else(|| entry.clone());
    let mut seen = Vec::with_capacity(events.len());
    for event in &events {
        let entry = next(&event.entry);
        let previous = event.previous.as_ref().map(&mut next);
        seen.push(Arc::new(Event::new(event.kind, entry, previous)));
    }
    Ok(seen)
}

/// Any object of a resource in another of its versions.
///
/// # Errors
/// 400 if it has no such form, 500 where a webhook fails.
pub async fn object(
    core: &ServerState,
    resource: &Resource,
    version: &str,
    object: Value,
) -> Result<Value> {
    let wanted = resource.api_version(version);
    let Some((custom, converter)) = converter(resource) else {
        return versions::convert(resource, object, version);
    };
    if object.is_null() || object["apiVersion"] == wanted.as_str() {
        return versions::convert(resource, object, version);
    }
    let objects = [object];
    let mut converted = converter.convert(&*core.backend, &objects, &wanted).await?;
    let [object] = objects;
    let mut object = converted.pop().unwrap_or(object);
    custom.prune(version, &mut object);
    Ok(object)
}

/// The stored form of what a request leaves behind.
///
/// # Errors
/// 500 where a webhook fails.
pub async fn draft(
    core: &ServerState,
    resource: &Resource,
    object: &Value,
    owners: &Managed,
) -> Result<Draft> {
    let (_, version) = split_api_version(text(object, &["apiVersion"]));
    if resource.custom.is_none() || version == resource.storage_version {
        return Ok(storage::draft_owned(object, owners));
    }
    let (object, owners) = (object.clone(), owners.clone());
    let whole = Owned { object, owners }.whole();
    let stored = self::object(core, resource, &resource.storage_version, whole).await?;
    Ok(storage::draft(&stored))
}

/// The object is stored in another version than objects are stored in now: the next write brings it there.
pub fn is_stale(resource: &Resource, entry: &Entry) -> bool {
    #[derive(serde::Deserialize)]
    struct Stored {
        #[serde(rename = "apiVersion")]
        api_version: Option<String>,
    }
    if resource.custom.is_none() {
        return false;
    }
    // What the store holds was written by this server as JSON.
    let stored = serde_json::from_slice::<Stored>(&entry.value).ok();
    let version = stored.and_then(|it| it.api_version);
    version.is_some_and(|it| it != resource.api_version(&resource.storage_version))
}

/// Has what `known` lacked converted; says whether something was lacking.
///
/// # Errors
/// 500 where the webhook fails.
pub async fn learn(known: &Known, core: &ServerState, resource: &Resource) -> Result<bool> {
    let wanted = known.take_wanted();
    let any = !wanted.is_empty();
    for (value, version) in wanted {
        let converted = object(core, resource, &version, value.clone()).await?;
        known.add(value, version, converted);
    }
    Ok(any)
}
