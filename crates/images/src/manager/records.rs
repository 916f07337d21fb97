//! Which pods may use a present image: those that could have pulled it, as in the kubelet's default
//! (`NeverVerifyPreloadedImages`). Imported images are for all.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Manager;
use crate::keyring::{Credential, SecretSource};
use crate::store::Image;
use crate::{Reference, Result};

const FILE: &str = "pulled.json";
/// Most secrets that are remembered for a repository.
const MAX_SECRETS: usize = 100;

type Records = BTreeMap<String, BTreeMap<String, PullRecord>>;

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

impl Manager {
    /// Whether a pod with these credentials may use an image without a pull.
    pub(super) fn may_use(
        &self,
        image: &Image,
        reference: &Reference,
        credentials: &[Credential],
    ) -> bool {
        let Ok(records) = self.puller.store().read_json::<Records>(FILE) else {
            return false;
        };
        let Some(repositories) = records.get(image.target.as_str()) else {
            // Never pulled here: imported.
            return true;
        };
        let Some(record) = repositories.get(&reference.name()) else {
            return false;
        };
        let known = |source: &SecretSource| {
            let mut secrets = record.secrets.iter();
            secrets.any(|secret| secret.hash == source.hash || secret.is_same_secret(source))
        };
        record.open
            || credentials
                .iter()
                .filter_map(|credential| credential.source.as_ref())
                .any(known)
    }

    /// Notes by what an image was pulled.
    pub(super) fn record(
        &self,
        image: &Image,
        reference: &Reference,
        secret: Option<SecretSource>,
    ) -> Result<()> {
        let store = self.puller.store();
        let present: BTreeSet<String> = store
            .list()?
            .into_iter()
            .map(|image| image.target.to_string())
            .collect();
        store.update_file(FILE, |records: &mut Records| {
            records.retain(|digest, _| present.contains(digest));
            let repositories = records.entry(image.target.to_string()).or_default();
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
        })
    }
}
