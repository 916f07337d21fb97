//! The stored form of objects, and the objects that the server itself creates.

use allot_schema::apply::Managed;
use allot_store::{Backend, Draft, Error as StoreError, Expect, Write};
use serde_json::Value;

use crate::error::Result;
use crate::object::{self, split_api_version, text};
use crate::ordered::Owners;

mod parts;

/// Encodes an object in its stored form, see [`crate::ordered::stored`]; the object's kind determines the field order.
/// Custom objects contain their version.
pub fn draft(object: &Value) -> Draft {
    compose(object, None)
}

/// Like [`draft`], with the field owners passed separately.
pub fn draft_owned(object: &Value, owners: &Managed) -> Draft {
    compose(object, Some(Owners::Read(owners)))
}

/// Like [`draft_owned`], with the field owners in their stored form: for changes that do not affect ownership.
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

/// An object with its field owners stored separately: they are the largest part of most objects, and most steps of a
/// write do not read them.
#[derive(Debug, Clone, PartialEq)]
pub struct Owned {
    /// The object without `metadata.managedFields`.
    pub object: Value,
    /// The content of `metadata.managedFields`.
    pub owners: Managed,
}

impl Owned {
    /// Reads a stored object.
    ///
    /// # Errors
    /// Fails only for corrupt data, since all stored objects were written by this server.
    pub fn read(bytes: &[u8]) -> serde_json::Result<Self> {
        parts::read(bytes)
    }

    /// Reads a stored object of a built-in kind without decoding its field owners: the second part of the result is
    /// their JSON text.
    ///
    /// # Errors
    /// As for [`Owned::read`].
    pub fn read_object(bytes: &[u8]) -> serde_json::Result<(Value, Box<str>)> {
        parts::read_object(bytes)
    }

    /// The stored form.
    pub fn draft(&self) -> Draft {
        draft_owned(&self.object, &self.owners)
    }

    /// The object including `metadata.managedFields`, as clients see it.
    pub fn whole(self) -> Value {
        let Owned { mut object, owners } = self;
        owners.write(&mut object);
        object
    }
}

/// Creates an object unless its key exists.
///
/// # Errors
/// Errors of the store.
pub async fn ensure(
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
    // The server needs this object to start, also on a full disk, where only a running server can delete objects.
    let write = Write::put(collection, key, Expect::Absent, draft(&object)).frees(true);
    match backend.commit(write).await {
        Ok(_) | Err(StoreError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
