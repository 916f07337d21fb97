//! The OpenAPI documents of an extension API server: which it has in the newer format, and its part of the document in the
//! older one.
//!
//! They are read apart from the checks whether the service answers: a service that takes its time for them, or sends what
//! cannot be used, is available nevertheless. What was read last stays until there is something better.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ETAG;
use serde_json::Value;
use sha2::{Digest as _, Sha512};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::fetch::Get;
use crate::extensions::{Described, Document, Extension, Failure};
use crate::identity::User;
use crate::openapi::{Refused, reduce};
use crate::state::ServerState;

const JSON: &str = "application/json";
/// The user that reads them, as upstream.
const READER: &str = "system:aggregator";
/// The time for each of them.
const TIME: Duration = Duration::from_secs(30);
/// The most bytes of the list of documents, and of a document, as they are sent.
const MAX_INDEX: usize = 1 << 20;
const MAX_DOCUMENT: usize = 8 << 20;
/// The most bytes of a hash or a tag.
const MAX_HASH: usize = 256;
/// After the first failure; it doubles with each further one, as upstream.
const RETRY: Duration = Duration::from_secs(60);
const LONGEST_RETRY: Duration = Duration::from_secs(60 * 60);
/// How many services are read from at the same time.
const READERS: usize = 4;

/// The turns of all extensions.
pub(super) struct Turns {
    reading: Semaphore,
    /// A document takes ten times its size while it is reduced.
    reducing: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            reading: Semaphore::new(READERS),
            reducing: Semaphore::new(1),
        }
    }
}

/// Why documents are not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{0}")]
    Failure(Failure),
    #[error("status {0}")]
    Code(u16),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the server ends")]
    Ends,
}

/// Reads the documents of an extension each time that it was found to answer.
pub(super) async fn keep(
    core: &ServerState,
    extension: &Extension,
    answers: &Notify,
    turns: &Turns,
) {
    let mut failures = 0;
    let mut not_before = Instant::now();
    loop {
        answers.notified().await;
        if Instant::now() < not_before {
            continue;
        }
        let Ok(turn) = turns.reading.acquire().await else {
            return;
        };
        let read = describe(core, extension, turns).await;
        drop(turn);
        match read {
            Ok(described) => {
                extension.set_described(described);
                failures = 0;
            }
            Err(why) => {
                let name = &extension.name;
                tracing::warn!(name, %why, "OpenAPI documents of an extension API server");
                let pause = RETRY.saturating_mul(1 << failures.min(10));
                not_before = Instant::now() + pause.min(LONGEST_RETRY);
                failures += 1;
            }
        }
    }
}

async fn describe(
    core: &ServerState,
    extension: &Extension,
    turns: &Turns,
) -> Result<Described, Unusable> {
    let user = User {
        name: READER.to_owned(),
        ..User::default()
    };
    let get = |path, most| Get {
        path,
        accept: Some(JSON),
        known: None,
        user: &user,
        most,
        time: TIME,
    };
    let index = get("/openapi/v3", MAX_INDEX).from(core, extension).await;
    let index = index.map_err(Unusable::Failure)?;
    let names = match index.code {
        200 => Some(own_documents(&index.body, extension)?),
        404 => None,
        code => return Err(Unusable::Code(code)),
    };
    let known = extension.described();
    let older = Get {
        known: known.tag.as_ref(),
        ..get("/openapi/v2", MAX_DOCUMENT)
    };
    let older = older.from(core, extension).await;
    let older = older.map_err(Unusable::Failure)?;
    let mut described = match older.code {
        304 if known.tag.is_some() => Described::clone(&known),
        404 => Described::default(),
        200 => {
            let sent = digest(&older.body);
            let tag = older.headers.get(ETAG);
            let tag = tag.filter(|tag| tag.len() <= MAX_HASH).cloned();
            match known.older.is_some() && known.sent == sent {
                true => Described {
                    tag,
                    ..Described::clone(&known)
                },
                false => Described {
                    newer: None,
                    older: Some(part(older.body, extension, turns).await?),
                    tag,
                    sent,
                },
            }
        }
        code => return Err(Unusable::Code(code)),
    };
    described.newer = names;
    Ok(described)
}

/// The documents in the list of a service that are about its group version or its group, with their hashes.
fn own_documents(body: &Bytes, extension: &Extension) -> Result<BTreeMap<String, String>, Refused> {
    let index: Value = serde_json::from_slice(body).map_err(|_| Refused::Syntax)?;
    let own = extension.path();
    let group = format!("/apis/{}", extension.group);
    let names = [own.as_str(), group.as_str()].map(|path| path.trim_start_matches('/'));
    let listed = index["paths"].as_object();
    let hash = |entry: &Value| {
        let address = entry["serverRelativeURL"].as_str()?;
        let (_, query) = address.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, hash) = pairs.find(|(key, _)| *key == "hash")?;
        let is_plain = hash.len() <= MAX_HASH && hash.bytes().all(|it| it.is_ascii_alphanumeric());
        is_plain.then(|| hash.to_owned())
    };
    let found = names.into_iter().filter_map(|name| {
        let entry = listed?.get(name)?;
        Some((name.to_owned(), hash(entry).unwrap_or_default()))
    });
    Ok(found.collect())
}

/// The part of a document that is about the extension's group version.
async fn part(
    body: Bytes,
    extension: &Extension,
    turns: &Turns,
) -> Result<Arc<Document>, Unusable> {
    let Ok(_turn) = turns.reducing.acquire().await else {
        return Err(Unusable::Ends);
    };
    let (group, version) = (extension.group.clone(), extension.version.clone());
    let work = move || {
        let reduced = reduce(&body, &group, &version)?;
        // Values always serialise.
        let mut text = serde_json::to_vec(&reduced).unwrap_or_default();
        text.shrink_to_fit();
        let hash = digest(&text);
        let text = text.into();
        Ok(Arc::new(Document { text, hash }))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(made) => made.map_err(Unusable::Refused),
        Err(_) => Err(Unusable::Ends),
    }
}

fn digest(bytes: &[u8]) -> String {
    data_encoding::HEXUPPER.encode(&Sha512::digest(bytes))
}
