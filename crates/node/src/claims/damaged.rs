//! A damaged checkpoint is set aside, and what it said is determined from the claims of the node's pods: an agent that does not start
//! would keep the whole node from its work, and it could not be drained.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::fetch::FetchError;
use super::{ClaimError, Claims, extended_claim, pod_claims};
use crate::error::Error;

/// A checkpoint that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where it is now.
    pub(crate) path: PathBuf,
    /// What is wrong with it.
    pub(crate) reason: String,
}

/// What names of damaged checkpoints begin with.
fn prefix(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_string_lossy();
    Some(format!("{name}.damaged-"))
}

/// Renames a checkpoint that cannot be read.
///
/// # Errors
/// It cannot be renamed.
pub(super) fn set_aside(file: &Path, reason: String) -> Result<Damage, Error> {
    let now = Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let name = format!("{}{now}", prefix(file).unwrap_or_default());
    let path = file.with_file_name(name);
    std::fs::rename(file, &path).map_err(|source| Error::Io {
        path: file.to_owned(),
        source,
    })?;
    Ok(Damage { path, reason })
}

/// Whether a checkpoint was set aside, by this agent or an earlier one.
pub(super) fn is_there(file: &Path) -> bool {
    let (Some(directory), Some(prefix)) = (file.parent(), prefix(file)) else {
        return false;
    };
    let mut entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|it| it.file_name().to_string_lossy().starts_with(&prefix))
}

impl Claims {
    /// The damage that this agent found when it started.
    pub(crate) fn damage(&self) -> Option<Damage> {
        self.cache.lock().damage.clone()
    }

    /// Where a checkpoint was lost: remembers the claims of a pod that is to end, so that their drivers are asked to unprepare them.
    /// Those that do not exist any longer are a matter of their drivers.
    ///
    /// # Errors
    /// The API server does not answer, or the checkpoint cannot be written.
    pub(crate) async fn recall(&self, pod: &Pod) -> Result<(), ClaimError> {
        if !self.cache.lock().incomplete {
            return Ok(());
        }
        let claims = pod_claims(pod).into_iter().chain(extended_claim(pod));
        let claims: Vec<_> = claims.collect();
        if claims.is_empty() {
            return Ok(());
        }
        let served = self.api.served().await;
        let served = served.map_err(|error| ClaimError::Discovery(Box::new(error)))?;
        for wanted in claims {
            let claim = match self.fetch(pod, &wanted, served).await {
                Ok(claim) => claim,
                Err(error) if is_temporary(&error) => return Err(error),
                // The pod never had it, or has it no longer.
                Err(_) => continue,
            };
            let key = (pod.namespace().unwrap_or_default(), wanted.claim);
            let mut cache = self.cache.lock();
            // One of the same name is another claim, which is known.
            if let Ok(info) = cache.get_or_insert(key, &claim) {
                info.pods.insert(pod.uid().unwrap_or_default());
            }
            cache.save()?;
        }
        Ok(())
    }
}

/// Whether the API server may answer the next time.
fn is_temporary(error: &ClaimError) -> bool {
    let ClaimError::Fetch { source, .. } = error else {
        return false;
    };
    match source {
        FetchError::Api(error) => match &**error {
            kube::Error::Api(status) => status.code == 429 || status.code >= 500,
            _ => true,
        },
        _ => false,
    }
}
