//! Conversion webhooks: conversion of custom resources between versions by the webhook of their CRD.
//!
//! Stored objects are converted to the version of the request before any other step reads them ([`entries`]), and the
//! resulting object is converted to the storage version when it is written ([`draft`]). All steps in between see the
//! version of the request, as upstream. Objects already in the desired version are never sent to the webhook.

use std::sync::Arc;

use allot_schema::apply::Managed;
use allot_store::{Draft, Entry, Event};
use serde_json::Value;

use crate::custom::{Converter, CustomResource};
use crate::error::Result;
use crate::limits::checkpoint;
use crate::managed::Known;
use crate::object::{split_api_version, text};
use crate::registry::Resource;
use crate::state::ServerState;
use crate::storage::{self, Owned};
use crate::versions;

mod webhook;

/// The webhook of a CRD, if its conversion strategy is `Webhook`.
pub fn webhook_of(definition: &Value) -> Option<Arc<dyn Converter>> {
    let webhook = webhook::Webhook::of(definition)?;
    Some(Arc::new(webhook))
}

fn converter(resource: &Resource) -> Option<(&CustomResource, &dyn Converter)> {
    let custom = resource.custom.as_deref()?;
    Some((custom, custom.converter()?))
}

/// Converts stored objects to a version of their resource: those in another version that need a webhook are converted,
/// the others are unchanged.
///
/// # Errors
/// 500 with upstream's message if the webhook fails.
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
    let mut next = 0;
    // An object as a tree is many times as large as its text: a long list is converted in parts.
    while next < entries.len() {
        checkpoint().await;
        let (mut places, mut objects, mut bytes) = (Vec::new(), Vec::new(), 0);
        while objects.len() < webhook::BATCH && bytes < webhook::BATCH_BYTES {
            let Some(entry) = entries.get_mut(next) else {
                break;
            };
            next += 1;
            if let Some(known) = converter.remembered(version, entry) {
                *entry = known;
                continue;
            }
            if custom.mark(version) == Some(entry.mark()) {
                // The entry is marked: this version serves it exactly as stored.
                continue;
            }
            let object = versions::stored(resource, &entry.value)?;
            if object["apiVersion"] != wanted.as_str() {
                bytes += entry.value.len();
                places.push(next - 1);
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
    }
    Ok(entries)
}

/// Like [`entries`], for one entry.
///
/// # Errors
/// As for [`entries`].
pub async fn entry(
    core: &ServerState,
    resource: &Resource,
    version: &str,
    entry: Arc<Entry>,
) -> Result<Arc<Entry>> {
    let one = entries(core, resource, version, vec![entry.clone()]).await?;
    Ok(one.into_iter().next().unwrap_or(entry))
}

/// Like [`entries`], for the objects of watch events.
///
/// # Errors
/// As for [`entries`].
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

/// Converts an object of a resource to another version of the resource.
///
/// # Errors
/// 400 if the object cannot be converted, 500 if a webhook fails.
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

/// The stored form of the object that a request writes.
///
/// # Errors
/// 500 if a webhook fails.
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

/// Whether the object is not stored in the current storage version: the next write converts it.
pub fn is_stale(resource: &Resource, entry: &Entry) -> bool {
    #[derive(serde::Deserialize)]
    struct Stored {
        #[serde(rename = "apiVersion")]
        api_version: Option<String>,
    }
    if resource.custom.is_none() {
        return false;
    }
    // Stored objects are JSON written by this server.
    let stored = serde_json::from_slice::<Stored>(&entry.value).ok();
    let version = stored.and_then(|it| it.api_version);
    version.is_some_and(|it| it != resource.api_version(&resource.storage_version))
}

/// Converts the objects that `known` was missing; returns whether any were missing.
///
/// # Errors
/// 500 if the webhook fails.
pub async fn learn(known: &Known, core: &ServerState, resource: &Resource) -> Result<bool> {
    let wanted = known.take_wanted();
    let any = !wanted.is_empty();
    for (value, version) in wanted {
        let converted = object(core, resource, &version, value.clone()).await?;
        known.add(value, version, converted);
    }
    Ok(any)
}
