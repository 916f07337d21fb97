//! The conversion webhook of a CRD.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_store::{Backend, Entry};
use futures::future::BoxFuture;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::Value;

use crate::config::Credentials;
use crate::config::ReviewVersion;
use crate::custom::{Converter, kind_of};
use crate::error::{ApiError, Result};
use crate::object::strings;
use crate::webhook::{Client, excerpt};

mod review;

/// Timeout of a conversion.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of objects, and approximate number of bytes, per conversion request: the response must not exceed the
/// response size limit.
pub(super) const BATCH: usize = 250;
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of cached converted objects, and of their bytes: a webhook may answer megabytes for a small object.
const REMEMBERED: usize = 4096;
const REMEMBERED_BYTES: usize = 16 << 20;

/// The conversion webhook of a CRD.
#[derive(Debug)]
pub(super) struct Webhook {
    client: Client,
    review: Option<ReviewVersion>,
    made: Mutex<ConvertedCache>,
}

/// The cache of converted objects.
#[derive(Debug, Default)]
struct ConvertedCache {
    /// By version and key.
    entries: HashMap<(String, Arc<str>), Arc<Entry>>,
    /// What they take together.
    bytes: usize,
}

impl ConvertedCache {
    fn insert(&mut self, version: &str, entry: &Arc<Entry>) {
        let size = entry.value.len();
        if size > REMEMBERED_BYTES {
            return;
        }
        if self.entries.len() >= REMEMBERED || self.bytes + size > REMEMBERED_BYTES {
            *self = Self::default();
        }
        let key = (version.to_owned(), entry.key.clone());
        let replaced = self.entries.insert(key, entry.clone());
        self.bytes += size;
        self.bytes -= replaced.map_or(0, |entry| entry.value.len());
    }
}

impl Webhook {
    /// The webhook of a CRD, if its conversion strategy is `Webhook`.
    pub(super) fn of(definition: &Value) -> Option<Self> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let known = strings(&webhook["conversionReviewVersions"]);
        Some(Webhook {
            client: Client::new(&webhook["clientConfig"], &Credentials::default()),
            review: known.iter().find_map(|it| ReviewVersion::named(it)),
            made: Mutex::default(),
        })
    }
}

impl Converter for Webhook {
    fn remembered(&self, version: &str, entry: &Entry) -> Option<Arc<Entry>> {
        let made = self.made.lock();
        let known = made.entries.get(&(version.to_owned(), entry.key.clone()))?;
        (known.revision == entry.revision).then(|| known.clone())
    }

    fn remember(&self, version: &str, entry: &Arc<Entry>) {
        self.made.lock().insert(version, entry);
    }

    fn convert<'a>(
        &'a self,
        backend: &'a dyn Backend,
        objects: &'a [Value],
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(self.review_all(backend, objects, wanted))
    }
}

impl Webhook {
    /// Converts objects to another version.
    ///
    /// # Errors
    /// 500 with upstream's message.
    async fn review_all(
        &self,
        backend: &dyn Backend,
        objects: &[Value],
        wanted: &str,
    ) -> Result<Vec<Value>> {
        let Some(version) = self.review else {
            return Err(ApiError::unknown("no supported conversion review versions"));
        };
        let mut converted = Vec::with_capacity(objects.len());
        for batch in batches(objects) {
            let first = batch.first().map(kind_of).unwrap_or_default();
            let failed = |why: String| {
                ApiError::unknown(format!("conversion webhook for {first} {}", excerpt(&why)))
            };
            let uid = uuid::Uuid::new_v4().to_string();
            let asked = version.conversion(&uid, wanted, batch);
            let headers = HeaderMap::new();
            let answer = self.client.post(backend, &asked, TIMEOUT, &headers).await;
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
                    let (kind, why) = (kind_of(object), excerpt(&why));
                    ApiError::unknown(format!("conversion webhook for {kind} returned {why}"))
                })?);
            }
        }
        Ok(converted)
    }
}

/// Splits the objects into batches for separate requests; a large object is a batch of its own.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(sizes: &[usize], expected: &[usize]) {
        let objects: Vec<Value> = sizes.iter().map(|size| json!("x".repeat(*size))).collect();
        let parts: Vec<usize> = batches(&objects).iter().map(|part| part.len()).collect();
        assert_eq!(parts, expected);
    }

    /// The cache had a limit of 4 096 objects, regardless of their size.
    #[test]
    fn regression_what_is_remembered_is_bounded_in_bytes() {
        let mut cache = ConvertedCache::default();
        let entry = |at: usize, size| {
            let value = vec![b' '; size];
            Arc::new(Entry::new(format!("k{at}").into(), 1, value.into()))
        };
        for at in 0..100 {
            cache.insert("v2", &entry(at, 1 << 20));
            let kept: usize = cache.entries.values().map(|it| it.value.len()).sum();
            assert_eq!(cache.bytes, kept);
            assert!(kept <= REMEMBERED_BYTES);
        }
        cache.insert("v2", &entry(0, REMEMBERED_BYTES + 1));
        assert!(cache.bytes <= REMEMBERED_BYTES);
        for _ in 0..100 {
            cache.insert("v2", &entry(1, 1 << 10));
        }
        assert!(cache.entries.len() <= REMEMBERED);
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
