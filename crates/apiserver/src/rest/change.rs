//! Updates that do not copy the current object.

use allot_store::{Error as StoreError, Expect, Write};
use serde_json::Value;

use super::Call;
use super::stored::{MAX_STORED, Stored};
use super::update::{ATTEMPTS, sent_version};
use crate::error::Result;
use crate::request::Part;
use crate::storage::{self, Owned};
use crate::versions;

impl Call<'_> {
    /// Replaces the object that the request path names.
    pub(super) async fn replace(&self, part: Part, mut object: Value) -> Result<Stored> {
        // A request with a resourceVersion is tried once; only the conversions by a webhook require repetition.
        let once = self.resource.custom.is_none() && !matches!(sent_version(&object), Ok(0));
        let sent = |_: &Value| match once {
            true => Ok(object.take()),
            false => Ok(object.clone()),
        };
        self.modify(part, sent).await
    }

    /// Changes the object that the request path names in place, retrying on conflicts: for endpoints of built-in kinds
    /// that always change the object. The object is not compared with its previous state, so it is not copied, and
    /// field ownership does not change. Deletions do not use this function.
    pub(super) async fn change(
        &self,
        mut change: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<Stored> {
        let key = self.key()?;
        let collection = &self.resource.collection;
        for _ in 0..ATTEMPTS {
            let entry = self.core.backend.get(collection, &key).await?;
            let entry = entry.ok_or_else(|| self.not_found())?;
            let (mut object, owners) = versions::load_object(&self.resource, &entry.value)?;
            change(&mut object)?;
            let mut draft = storage::draft_kept(&object, &owners);
            if self.dry_run || draft.size() > MAX_STORED {
                let owners = versions::load(&self.resource, &entry.value)?.owners;
                if self.dry_run {
                    return Ok(Stored::Value(Owned { object, owners }.whole()));
                }
                draft = self.draft(&object, &owners, false).await?;
            }
            let expect = Expect::Revision(entry.revision);
            let write = Write::put(collection.clone(), key.as_str(), expect, draft);
            match self.core.backend.commit(write).await {
                Ok(entry) => return Ok(Stored::Entry(entry)),
                Err(StoreError::Conflict(_)) => continue,
                Err(StoreError::NotFound) => return Err(self.not_found()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.modified())
    }
}
