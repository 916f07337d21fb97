//! Conversion webhooks: custom resources in other versions.
//!
//! A stored object is converted to the version of a request before anything else reads it ([`entries`]), and the result
//! of a request to the storage version when it is written ([`draft`]). In between every step sees the version of the
//! request, as in upstream. Objects that have the requested version already are never sent to a webhook.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::quote::quote;
use allot_schema::apply::Managed;
use allot_store::{Draft, Entry, Event};
use parking_lot::Mutex;
use serde_json::Value;

use super::CustomResource;
use crate::error::{ApiError, Result};
use crate::object::{self, Owned, split_api_version, strings, text};
use crate::registry::Resource;
use crate::server::Core;
use crate::versions;
use crate::webhook::{Client, Version};

mod known;
mod review;

pub use known::{Known, ROUNDS};

/// How long a conversion may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Limits of objects and approximate bytes per call: the answer must fit into the response size limit.
const BATCH: usize = 250;
const BATCH_BYTES: usize = 1 << 20;
/// Limit of cached converted objects.
const REMEMBERED: usize = 4096;

/// The webhook of one definition.
#[derive(Debug)]
pub struct Converter {
    client: Client,
    review: Option<Version>,
    made: Mutex<Made>,
}

/// The last state of objects in other versions, by version and key.
type Made = HashMap<(String, Arc<str>), Arc<Entry>>;

impl Converter {
    /// Of a definition, if a webhook converts its objects.
    pub(super) fn of(definition: &Value) -> Option<Self> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let known = strings(&webhook["conversionReviewVersions"]);
        Some(Converter {
            client: Client::new(&webhook["clientConfig"]),
            review: known.iter().find_map(|it| Version::named(it)),
            made: Mutex::default(),
        })
    }

    fn remembered(&self, version: &str, entry: &Entry) -> Option<Arc<Entry>> {
        let made = self.made.lock();
        let known = made.get(&(version.to_owned(), entry.key.clone()))?;
        (known.revision == entry.revision).then(|| known.clone())
    }

    fn remember(&self, version: &str, entry: &Arc<Entry>) {
        let mut made = self.made.lock();
        if made.len() >= REMEMBERED {
            made.clear();
        }
        made.insert((version.to_owned(), entry.key.clone()), entry.clone());
    }

    /// Requests objects in another version.
    ///
    /// # Errors
    /// 500 in upstream's words.
    async fn convert(&self, core: &Core, objects: &[Value], wanted: &str) -> Result<Vec<Value>> {
        let Some(version) = self.review else {
            return Err(ApiError::unknown("no supported conversion review versions"));
        };
        let mut converted = Vec::with_capacity(objects.len());
        for batch in batches(objects) {
            let first = batch.first().map(kind_of).unwrap_or_default();
            let failed =
                |why: String| ApiError::unknown(format!("conversion webhook for {first} {why}"));
            let uid = uuid::Uuid::new_v4().to_string();
            let asked = version.conversion(&uid, wanted, batch);
            let answer = self.client.post(core, &asked, TIMEOUT).await;
            let answers = answer
                .and_then(|answer| version.converted(&uid, answer))
                .map_err(|why| failed(format!("failed: {why}")))?;
            if answers.len() != batch.len() {
                let counts = format!("{} objects, expected {}", answers.len(), batch.len());
                return Err(failed(format!("returned {counts}")));
            }
            for (object, answer) in batch.iter().zip(answers) {
                let restored = review::restore(object, answer, wanted);
                converted.push(restored.map_err(|why| {
                    let kind = kind_of(object);
                    ApiError::unknown(format!("conversion webhook for {kind} returned {why}"))
                })?);
            }
        }
        Ok(converted)
    }
}

/// The objects in parts that are sent at once; a large one is alone.
fn batches(objects: &[Value]) -> Vec<&[Value]> {
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, object) in objects.iter().enumerate() {
        let size = object.to_string().len();
        let full = index - start == BATCH || bytes + size > BATCH_BYTES;
        if full && index > start {
            parts.push(&objects[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < objects.len() {
        parts.push(&objects[start..]);
    }
    parts
}

/// What an object is, as upstream prints it.
fn kind_of(object: &Value) -> String {
    let (group, version) = split_api_version(text(object, &["apiVersion"]));
    format!("{group}/{version}, Kind={}", text(object, &["kind"]))
}

fn converter(resource: &Resource) -> Option<(&CustomResource, &Converter)> {
    let custom = resource.custom.as_deref()?;
    Some((custom, custom.converter.as_ref()?))
}

/// A webhook converts the objects of this resource.
pub fn is_by_webhook(resource: &Resource) -> bool {
    converter(resource).is_some()
}

/// Stored objects in a version of their resource: those in another version that need a webhook are converted, the
/// others stay as they are.
///
/// # Errors
/// 500 with upstream's message, if the webhook fails.
pub async fn entries(
    core: &Core,
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
    let converted = converter.convert(core, &objects, &wanted).await?;
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
/// As in [`entries`].
pub async fn entry(
    core: &Core,
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
/// As in [`entries`].
pub async fn events(
    core: &Core,
    resource: &Resource,
    version: &str,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Arc<Event>>> {
    if !is_by_webhook(resource) {
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
/// 400 if it has no such form, 500 if a webhook fails.
pub async fn object(
    core: &Core,
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
    let mut converted = converter.convert(core, &objects, &wanted).await?;
    let [object] = objects;
    let mut object = converted.pop().unwrap_or(object);
    custom.prune(version, &mut object);
    Ok(object)
}

/// The stored form of what a request leaves behind.
///
/// # Errors
/// 500 if a webhook fails.
pub async fn draft(
    core: &Core,
    resource: &Resource,
    object: &Value,
    owners: &Managed,
) -> Result<Draft> {
    let (_, version) = split_api_version(text(object, &["apiVersion"]));
    if resource.custom.is_none() || version == resource.storage_version {
        return Ok(object::draft_owned(object, owners));
    }
    let (object, owners) = (object.clone(), owners.clone());
    let whole = Owned { object, owners }.whole();
    let stored = self::object(core, resource, &resource.storage_version, whole).await?;
    Ok(object::draft(&stored))
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

/// 500 for an object in a version that its definition does not have any longer.
pub(crate) fn no_such_version(api_version: &str) -> ApiError {
    ApiError::unknown(format!(
        "request to convert CR from an invalid group/version: {api_version}"
    ))
}

/// 500 for a conversion that needs a webhook, in a place that cannot call one.
pub(crate) fn not_at_hand(object: &Value, version: &str) -> ApiError {
    let kind = kind_of(object);
    ApiError::unknown(format!(
        "{kind} is not at hand in version {}",
        quote(version)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(sizes: &[usize], expected: &[usize]) {
        let objects: Vec<Value> = sizes.iter().map(|size| json!("x".repeat(*size))).collect();
        let parts: Vec<usize> = batches(&objects).iter().map(|part| part.len()).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn no_batch_is_longer_or_larger_than_one_answer_may_be() {
        check(&[], &[]);
        check(&[1; 3], &[3]);
        check(&[1; 251], &[250, 1]);
        check(&[BATCH_BYTES * 2, 1, 1], &[1, 2]);
        check(&[BATCH_BYTES / 2; 5], &[1, 1, 1, 1, 1]);
        check(&[BATCH_BYTES / 4; 5], &[3, 2]);
    }
}
