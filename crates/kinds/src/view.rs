//! The representation of stored objects in a served API version.

use std::borrow::Cow;

use allot_schema::decode::{may_have_raw, write_compact};
use allot_store::Entry;
use serde_json::Value;

use crate::error::Result;
use crate::negotiate::Shape;
use crate::registry::Resource;
use crate::{object, ordered, versions};

/// The representation of the stored objects of a resource in one API version.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The resource whose objects are shown.
    pub resource: &'a Resource,
    /// The requested version.
    pub version: &'a str,
}

impl View<'_> {
    /// The `apiVersion` of the objects.
    pub fn api_version(&self) -> String {
        self.resource.api_version(self.version)
    }

    /// Whether the stored bytes can be served without decoding them.
    fn is_stored_form(&self) -> bool {
        versions::same_shape(self.resource, self.version)
    }

    /// Decodes a stored entry into an object in the requested version.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub fn object(&self, entry: &Entry) -> Result<Value> {
        if self.mark().is_some_and(|mark| mark == entry.mark()) {
            return versions::unchanged(self.resource, self.version, &entry.value);
        }
        versions::decode(self.resource, self.version, &entry.value)
    }

    /// Writes a stored entry as JSON, including `kind` and `apiVersion`.
    ///
    /// # Errors
    /// As for [`View::object`].
    pub fn write_json(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
        if self.is_stored_form() {
            object::write_with_kind(
                out,
                &self.stored_json(entry),
                &self.api_version(),
                &self.resource.kind,
            );
        } else if let Some(mark) = self.mark() {
            self.write_custom(out, entry, mark)?;
        } else {
            let object = self.object(entry)?;
            self.with_texts(entry, || {
                ordered::object(out, &object, self.resource.schema(self.version));
            });
        }
        Ok(())
    }

    /// The stored bytes as JSON answers have them: raw fields are stored with the space that was sent between their
    /// tokens, and are the only ones that have any.
    fn stored_json<'e>(&self, entry: &'e Entry) -> Cow<'e, [u8]> {
        let schema = self.resource.schema(&self.resource.storage_version);
        if schema.is_some_and(|schema| may_have_raw(&entry.value, schema)) {
            let mut out = Vec::with_capacity(entry.value.len());
            write_compact(&mut out, &entry.value);
            return Cow::Owned(out);
        }
        Cow::Borrowed(&entry.value)
    }

    /// Runs `write`, which encodes an entry, with access to the original text of the entry's raw JSON fields.
    pub fn with_texts<T>(&self, entry: &Entry, write: impl FnOnce() -> T) -> T {
        self.with_texts_of([entry], write)
    }

    /// As [`View::with_texts`], for the few entries of a small list, in their order.
    pub fn with_texts_of<'e, T>(
        &self,
        entries: impl IntoIterator<Item = &'e Entry>,
        write: impl FnOnce() -> T,
    ) -> T {
        let schema = self.resource.schema(&self.resource.storage_version);
        let stored = entries.into_iter().map(|entry| &*entry.value);
        crate::raw::of_stored(schema, stored, write)
    }

    /// The mark of custom resource entries that this version serves exactly as stored.
    fn mark(&self) -> Option<u64> {
        self.resource.custom.as_ref()?.mark(self.version)
    }

    /// Writes a custom object. If applying the schema of the CRD did not change the stored object, the stored bytes are
    /// served from then on until the CRD changes.
    fn write_custom(&self, out: &mut Vec<u8>, entry: &Entry, mark: u64) -> Result<()> {
        let stored = |out: &mut Vec<u8>| {
            let api_version = self.api_version();
            object::write_custom(out, &entry.value, &api_version, &self.resource.kind)
        };
        if entry.mark() == mark && stored(out).is_some() {
            return Ok(());
        }
        let start = out.len();
        ordered::object(out, &self.object(entry)?, None);
        let mut bytes = Vec::with_capacity(out.len() - start);
        if stored(&mut bytes).is_some() && bytes == out[start..] {
            entry.set_mark(mark);
        }
        Ok(())
    }

    /// Like [`View::write_json`], in the form for list items: without `kind` and `apiVersion` for built-in kinds.
    pub fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
        if self.resource.custom.is_some() {
            return self.write_json(out, entry);
        }
        if self.is_stored_form() {
            out.extend_from_slice(&self.stored_json(entry));
            return Ok(());
        }
        let mut value = self.object(entry)?;
        if let Value::Object(map) = &mut value {
            map.remove("kind");
            map.remove("apiVersion");
        }
        self.with_texts(entry, || {
            ordered::object(out, &value, self.resource.schema(self.version));
        });
        Ok(())
    }

    /// Reduces an object of the resource to its metadata in upstream's internal representation.
    pub fn metadata_only(&self, object: Value, shape: Shape) -> Value {
        let mut partial = metadata_only(object, shape);
        if let Some(change) = self.resource.rules.partial_metadata {
            change(&mut partial);
        }
        partial
    }
}

/// The `apiVersion` of metadata-only objects.
pub fn metadata_version(shape: Shape) -> &'static str {
    match shape {
        Shape::MetadataV1beta1 | Shape::TableV1beta1 => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    }
}

/// Reduces an object to a `PartialObjectMetadata`.
pub fn metadata_only(mut object: Value, shape: Shape) -> Value {
    Value::from_iter([
        ("kind", "PartialObjectMetadata".into()),
        ("apiVersion", metadata_version(shape).into()),
        ("metadata", object["metadata"].take()),
    ])
}
