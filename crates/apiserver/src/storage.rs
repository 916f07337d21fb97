//! The stored form of objects, and what the server itself stores.

use allot_schema::apply::Managed;
use allot_store::{Backend, Draft, Error as StoreError, Expect, Write};
use serde_json::Value;

use crate::error::Result;
use crate::object::{self, split_api_version, text};
use crate::ordered::Owners;

mod parts;

/// The stored form, see [`crate::ordered::stored`]; the kind that the object names says how fields are ordered. Custom
/// objects say in which version they are.
pub fn draft(object: &Value) -> Draft {
    compose(object, None)
}

/// As [`draft`], with the owners of the fields apart.
pub fn draft_owned(object: &Value, owners: &Managed) -> Draft {
    compose(object, Some(Owners::Read(owners)))
}

/// As [`draft_owned`], with the owners as stored: for a change that alters no ownership.
pub fn draft_kept(object: &Value, owners: &str) -> Draft {
    compose(object, Some(Owners::Text(owners)))
}

fn compose(object: &Value, owners: Option<Owners<'_>>) -> Draft {
    let (group, version) = split_api_version(text(object, &["apiVersion"]));
    let schema = allot_schema::types::lookup(group, version, text(object, &["kind"]));
    let own = (schema.is_none() && !crate::registry::is_builtin_group(group))
        .then(|| text(object, &["apiVersion"]));
    let (bytes, revision_at) = crate::ordered::stored(object, owners, schema, own);
    Draft::at(bytes, revision_at)
}

/// An object and, apart from it, the owners of its fields: the largest part of most objects, which most steps of a
/// write carry along unread.
#[derive(Debug, Clone, PartialEq)]
pub struct Owned {
    /// The object without `metadata.managedFields`.
    pub object: Value,
    /// What stands there.
    pub owners: Managed,
}

impl Owned {
    /// Reads a stored object.
    ///
    /// # Errors
    /// What the store holds was written by this server: only damage makes it fail.
    pub fn read(bytes: &[u8]) -> serde_json::Result<Self> {
        parts::read(bytes)
    }

    /// Reads a stored object of a built-in kind without its owners, whose text is the second part of the result.
    ///
    /// # Errors
    /// As [`Owned::read`].
    pub fn read_object(bytes: &[u8]) -> serde_json::Result<(Value, Box<str>)> {
        parts::read_object(bytes)
    }

    /// The stored form.
    pub fn draft(&self) -> Draft {
        draft_owned(&self.object, &self.owners)
    }

    /// The object as clients see it.
    pub fn whole(self) -> Value {
        let Owned { mut object, owners } = self;
        owners.write(&mut object);
        object
    }
}

/// Stores an object unless its key is taken.
pub(crate) async fn ensure(
    backend: &dyn Backend,
    collection: impl Into<String>,
    key: impl Into<String>,
    mut object: Value,
) -> Result<()> {
    let (collection, key) = (collection.into(), key.into());
    if backend.get(&collection, &key).await?.is_some() {
        return Ok(());
    }
    let metadata = object::metadata_mut(&mut object);
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), object::now().into());
    // Without it there is no server to delete anything on a full disk.
    let write = Write::put(collection, key, Expect::Absent, draft(&object)).frees(true);
    match backend.commit(write).await {
        Ok(_) | Err(StoreError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
