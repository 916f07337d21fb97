//! Which pods may use a present image: those that could have pulled it, as in the kubelet's default
//! (`NeverVerifyPreloadedImages`). Images that were never pulled here are for all.
//!
//! A pull is noted before it begins. If the process ends in the middle of it, the image may be present without a record
//! of its pull; the note tells it from an image that was imported.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::keyring::{Credential, SecretSource};
use crate::pull::blocking;
use crate::store::{read_json, write_json};
use crate::{Error, Reference, Result};

const PULLED: &str = "pulled.json";
const PULLING: &str = "pulling.json";
/// Most secrets that are remembered for a repository.
const MAX_SECRETS: usize = 100;
/// Most repositories that are remembered for an image.
const MAX_REPOSITORIES: usize = 1000;
/// Most pulls that are noted, with those whose end is not known.
const MAX_PULLS: usize = 10_000;
/// How long a pull without a known end may go on at its source: longer than any deadline of a pull.
const GOING_ON: Duration = Duration::from_secs(2 * 3600);
/// How many notes are checked when there is no room for another one.
const CHECKED: usize = 1000;

/// Pulls by the image's id and the repository.
type Pulled = BTreeMap<String, BTreeMap<String, PullRecord>>;
/// Names of images whose pull has begun.
type Pulling = BTreeSet<String>;

/// By what an image was pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PullRecord {
    /// Whether it could be pulled without a secret, so that every pod may use it.
    #[serde(default)]
    pub open: bool,
    /// The secrets that it could be pulled with.
    #[serde(default)]
    pub secrets: Vec<SecretSource>,
}

/// Pulls of one name.
#[derive(Debug, Default)]
struct Running {
    count: usize,
    /// Whether an earlier pull ended without a decision, so that a failed one does not decide it.
    open: bool,
}

/// How a pull has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The image is present, and its pull recorded.
    Recorded,
    /// The image was not pulled.
    Failed,
    /// It is not known whether the image was pulled, or its pull could not be recorded.
    Undecided,
}

/// The pulls of this process by name.
#[derive(Debug, Default)]
struct Pulls {
    running: HashMap<String, Running>,
    /// When those ended whose end is not known.
    undecided: HashMap<String, Instant>,
}

/// The records of pulls in a directory.
#[derive(Clone)]
pub(super) struct Records {
    directory: Arc<PathBuf>,
    opened: Instant,
    /// Locked while the files are read or changed.
    pulls: Arc<Mutex<Pulls>>,
}

impl Records {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: Arc::new(directory.to_owned()),
            opened: Instant::now(),
            pulls: Arc::default(),
        }
    }

    async fn read<T: Default + DeserializeOwned + Send + 'static>(&self, file: &str) -> Result<T> {
        let path = self.directory.join(file);
        blocking(move || read_json(&path)).await
    }

    async fn write<T: Serialize + Send + 'static>(&self, file: &str, content: T) -> Result<()> {
        let path = self.directory.join(file);
        blocking(move || write_json(&path, &content)).await
    }

    /// Whether a pod with these credentials may use an image without a pull. Without readable records, none may.
    pub(super) async fn may_use(
        &self,
        id: &str,
        reference: &Reference,
        credentials: &[Credential],
    ) -> bool {
        let _locked = self.pulls.lock().await;
        let read = async {
            let pulled: Pulled = self.read(PULLED).await?;
            let pulling: Pulling = self.read(PULLING).await?;
            Result::Ok((pulled, pulling))
        };
        let (pulled, pulling) = match read.await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(image = %reference, %error, "records of pulls can not be read");
                return false;
            }
        };
        let Some(repositories) = pulled.get(id) else {
            return !pulling.contains(&reference.key());
        };
        let Some(record) = repositories.get(&reference.name()) else {
            return false;
        };
        let known = |source: &SecretSource| {
            let mut secrets = record.secrets.iter();
            secrets.any(|secret| {
                let same = !secret.hash.is_empty() && secret.hash == source.hash;
                same || secret.is_same_secret(source)
            })
        };
        let mut sources = credentials.iter().filter_map(|it| it.source.as_ref());
        record.open || sources.any(known)
    }

    /// Notes that the pull of an image begins. `find` gives the id of an image that is present; it is needed when notes have to
    /// make room.
    pub(super) async fn begin<F>(
        &self,
        reference: &Reference,
        find: impl Fn(Reference) -> F + Send,
    ) -> Result<()>
    where
        F: Future<Output = Result<Option<String>>> + Send,
    {
        let mut pulls = self.pulls.lock().await;
        let mut pulling: Pulling = self.read(PULLING).await?;
        let key = reference.key();
        let new = !pulling.contains(&key);
        if new && pulling.len() >= MAX_PULLS {
            self.make_room(&mut pulls, &mut pulling, find).await?;
        }
        if new && pulling.len() >= MAX_PULLS {
            return Err(Error::TooLarge(format!(
                "the node has {MAX_PULLS} pulls whose end is not known"
            )));
        }
        if new {
            pulling.insert(key.clone());
            self.write(PULLING, pulling).await?;
        }
        let entry = pulls.running.entry(key).or_default();
        entry.open |= entry.count == 0 && !new;
        entry.count += 1;
        Ok(())
    }

    /// Removes notes of pulls that are over, failed ones as well. An image that is present gets a record without secrets, so
    /// that no pod may use it before it has pulled it: the kubelet does so when it starts.
    async fn make_room<F>(
        &self,
        pulls: &mut Pulls,
        pulling: &mut Pulling,
        find: impl Fn(Reference) -> F + Send,
    ) -> Result<()>
    where
        F: Future<Output = Result<Option<String>>> + Send,
    {
        let over = pulling.iter().filter(|key| {
            let ended = pulls.undecided.get(*key).unwrap_or(&self.opened);
            !pulls.running.contains_key(*key) && ended.elapsed() >= GOING_ON
        });
        let over: Vec<String> = over.take(CHECKED).cloned().collect();
        if over.is_empty() {
            return Ok(());
        }
        let mut pulled: Pulled = self.read(PULLED).await?;
        for key in over {
            if let Ok(reference) = Reference::parse(&key) {
                match find(reference.clone()).await {
                    Ok(None) => {}
                    Ok(Some(id)) => {
                        let repositories = pulled.entry(id).or_default();
                        repositories.entry(reference.name()).or_default();
                    }
                    Err(error) => {
                        // Pulls wait: a runtime that does not answer is not asked about every one.
                        tracing::debug!(image = %reference, %error, "notes of pulls are kept");
                        break;
                    }
                }
            }
            pulling.remove(&key);
            pulls.undecided.remove(&key);
        }
        // Before the notes: otherwise the images would be for all in between.
        self.write(PULLED, pulled).await
    }

    /// Notes by what an image was pulled. `present` lists the ids of all images: the records of others are dropped. It is
    /// polled while no other record can be written, so that the image of every record was present before.
    pub(super) async fn record(
        &self,
        id: &str,
        reference: &Reference,
        secret: Option<SecretSource>,
        present: impl Future<Output = Result<BTreeSet<String>>>,
    ) -> Result<()> {
        let _locked = self.pulls.lock().await;
        let mut pulled: Pulled = self.read(PULLED).await?;
        match present.await {
            Ok(present) => pulled.retain(|known, _| present.contains(known)),
            Err(error) => tracing::debug!(%error, "records of removed images are kept"),
        }
        let repositories = pulled.entry(id.to_owned()).or_default();
        if repositories.len() >= MAX_REPOSITORIES && !repositories.contains_key(&reference.name()) {
            // Its pods will have to show their credentials again.
            repositories.pop_first();
        }
        let record = repositories.entry(reference.name()).or_default();
        match secret {
            None => record.open = true,
            Some(secret) => {
                record
                    .secrets
                    .retain(|known| !known.is_same_secret(&secret));
                record.secrets.push(secret);
                if record.secrets.len() > MAX_SECRETS {
                    record.secrets.remove(0);
                }
            }
        }
        self.write(PULLED, pulled).await
    }

    /// The pull of an image has ended.
    pub(super) async fn end(&self, reference: &Reference, end: End) {
        let mut pulls = self.pulls.lock().await;
        let key = reference.key();
        let Some(entry) = pulls.running.get_mut(&key) else {
            return;
        };
        match end {
            End::Recorded => entry.open = false,
            End::Failed => {}
            End::Undecided => entry.open = true,
        }
        entry.count -= 1;
        if entry.count > 0 {
            return;
        }
        let open = entry.open;
        pulls.running.remove(&key);
        if open {
            pulls.undecided.insert(key, Instant::now());
            return;
        }
        pulls.undecided.remove(&key);
        let removed = async {
            let mut pulling: Pulling = self.read(PULLING).await?;
            pulling.remove(&key);
            self.write(PULLING, pulling).await
        };
        if let Err(error) = removed.await {
            // Pods will have to show their credentials again.
            tracing::warn!(image = %reference, %error, "end of a pull can not be recorded");
        }
    }
}
