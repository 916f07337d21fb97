//! Turning results into responses: one place per representation.

use allot_store::Entry;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::error::Result;
use crate::negotiate::{Encoding, Media, Shape};
use crate::registry::Resource;
use crate::{object, ordered, table, versions};

mod list;

pub use list::Listing;

/// A response with a JSON value as its body.
pub fn value_response(code: u16, value: &Value, media: Media) -> Response<Body> {
    let bytes = match media.encoding {
        Encoding::Json => serde_json::to_vec(value),
        Encoding::PrettyJson => serde_json::to_vec_pretty(value).map(|mut bytes| {
            bytes.push(b'\n');
            bytes
        }),
        Encoding::Yaml => return yaml_response(code, value),
        Encoding::Protobuf => match crate::protobuf::encode(value) {
            Some(bytes) => return bytes_response(code, bytes, media),
            // Documents without such a form are always JSON.
            None => return value_response(code, value, Media::JSON),
        },
    };
    // Values of strings and numbers always serialise.
    bytes_response(code, bytes.unwrap_or_default(), media)
}

fn yaml_response(code: u16, value: &Value) -> Response<Body> {
    let text = serde_saphyr::to_string(value).unwrap_or_default();
    bytes_response(
        code,
        text,
        Media {
            encoding: Encoding::Yaml,
            shape: Shape::Whole,
        },
    )
}

/// A response with a finished body.
pub fn bytes_response(code: u16, bytes: impl Into<Bytes>, media: Media) -> Response<Body> {
    let mut response = Response::new(Body::whole(bytes));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(media.content_type()),
    );
    response
}

/// How stored objects of one resource appear through one version.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// The requested version.
    pub version: &'a str,
}

impl View<'_> {
    /// `apiVersion` of the objects.
    pub fn api_version(&self) -> String {
        self.resource.api_version(self.version)
    }

    /// The stored bytes can be served without looking at them.
    fn is_stored_form(&self) -> bool {
        versions::same_shape(self.resource, self.version)
    }

    /// A stored object in the requested version.
    ///
    /// # Errors
    /// 500 if it cannot be converted.
    pub fn object(&self, entry: &Entry) -> Result<Value> {
        if self.mark().is_some_and(|mark| mark == entry.mark()) {
            return versions::unchanged(self.resource, self.version, &entry.value);
        }
        versions::decode(self.resource, self.version, &entry.value)
    }

    /// JSON of a stored version, kind and apiVersion included.
    ///
    /// # Errors
    /// As [`View::object`].
    pub fn write_json(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
        if self.is_stored_form() {
            object::write_with_kind(out, &entry.value, &self.api_version(), &self.resource.kind);
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

    /// Does what writes an entry with the texts of its raw fields.
    pub fn with_texts<T>(&self, entry: &Entry, write: impl FnOnce() -> T) -> T {
        let schema = self.resource.schema(&self.resource.storage_version);
        crate::raw::of_stored(schema, &entry.value, write)
    }

    /// What entries of a custom resource are marked with that this version shows as they are stored.
    fn mark(&self) -> Option<u64> {
        self.resource.custom.as_ref()?.mark(self.version)
    }

    /// A custom object. Once its CRD is known to change nothing in the stored object, the bytes are served until the
    /// CRD changes.
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

    /// As [`View::write_json`], in the form for lists: without kind and apiVersion for built-in kinds.
    fn write_item(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
        if self.resource.custom.is_some() {
            return self.write_json(out, entry);
        }
        if self.is_stored_form() {
            out.extend_from_slice(&entry.value);
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

    /// One object in any shape, as a JSON value.
    ///
    /// # Errors
    /// As [`View::object`].
    pub fn shaped(&self, entry: &Entry, shape: Shape, options: table::Options) -> Result<Value> {
        let object = self.object(entry)?;
        Ok(match shape {
            Shape::Whole => object,
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => self.metadata_only(object, shape),
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, &[object], None, shape, options)
            }
        })
    }

    /// An object of the resource reduced to its metadata, as in upstream's internal form.
    pub fn metadata_only(&self, object: Value, shape: Shape) -> Value {
        let mut partial = metadata_only(object, shape);
        if self.resource.is("apps", "daemonsets")
            && let Some(annotations) = partial["metadata"]["annotations"].as_object_mut()
        {
            // Upstream keeps this one outside of the metadata and writes it last.
            annotations.remove("deprecated.daemonset.template.generation");
            if annotations.is_empty()
                && let Some(metadata) = partial["metadata"].as_object_mut()
            {
                metadata.remove("annotations");
            }
        }
        partial
    }

    /// The answer with one stored object.
    ///
    /// # Errors
    /// As [`View::object`].
    pub fn object_response(
        &self,
        code: u16,
        entry: &Entry,
        media: Media,
        options: table::Options,
    ) -> Result<Response<Body>> {
        if media == Media::JSON {
            let mut out = Vec::with_capacity(entry.value.len() + 96);
            self.write_json(&mut out, entry)?;
            return Ok(bytes_response(code, out, media));
        }
        let value = self.shaped(entry, media.shape, options)?;
        Ok(self.with_texts(entry, || value_response(code, &value, media)))
    }

    /// The answer with an object that is not stored (dry run).
    pub fn unstored_response(
        &self,
        code: u16,
        object: Value,
        media: Media,
        options: table::Options,
    ) -> Response<Body> {
        let value = match media.shape {
            Shape::Whole if media == Media::JSON => {
                let mut out = Vec::with_capacity(1024);
                ordered::object(&mut out, &object, self.resource.schema(self.version));
                return bytes_response(code, out, media);
            }
            Shape::Whole => object,
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => self.metadata_only(object, shape),
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, &[object], None, media.shape, options)
            }
        };
        value_response(code, &value, media)
    }

    /// The answer with a list.
    ///
    /// # Errors
    /// As [`View::object`].
    pub fn list_response(
        &self,
        entries: &[std::sync::Arc<Entry>],
        meta: Value,
        media: Media,
        options: table::Options,
    ) -> Result<Response<Body>> {
        if media == Media::JSON {
            let size: usize = entries.iter().map(|entry| entry.value.len() + 1).sum();
            let mut out = Vec::with_capacity(size + 256);
            write_head(
                &mut out,
                &self.resource.list_kind,
                &self.api_version(),
                &meta,
            );
            for (index, entry) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                self.write_item(&mut out, entry)?;
            }
            out.extend_from_slice(b"]}");
            return Ok(bytes_response(200, out, media));
        }
        let objects = entries
            .iter()
            .map(|entry| self.object(entry))
            .collect::<Result<Vec<_>>>()?;
        let value = match media.shape {
            Shape::Whole => {
                let mut objects = objects;
                if self.resource.custom.is_none() {
                    for object in &mut objects {
                        if let Value::Object(map) = object {
                            map.remove("kind");
                            map.remove("apiVersion");
                        }
                    }
                }
                json!({
                    "kind": self.resource.list_kind, "apiVersion": self.api_version(),
                    "metadata": meta, "items": objects,
                })
            }
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => {
                let items = objects.into_iter().map(|it| self.metadata_only(it, shape));
                let items: Vec<_> = items.collect();
                // Upstream's empty list is null.
                let items = if items.is_empty() {
                    Value::Null
                } else {
                    items.into()
                };
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": metadata_version(shape), "metadata": meta,
                    "items": items,
                })
            }
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, &objects, Some(meta), media.shape, options)
            }
        };
        Ok(value_response(200, &value, media))
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn write_head(out: &mut Vec<u8>, kind: &str, api_version: &str, meta: &Value) {
    out.extend_from_slice(b"{\"kind\":");
    let _ = serde_json::to_writer(&mut *out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    let _ = serde_json::to_writer(&mut *out, api_version);
    out.extend_from_slice(b",\"metadata\":");
    write_value(out, meta);
    out.extend_from_slice(b",\"items\":[");
}

/// The version of what has metadata only.
fn metadata_version(shape: Shape) -> &'static str {
    match shape {
        Shape::MetadataV1beta1 | Shape::TableV1beta1 => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    }
}

/// An object reduced to its metadata.
pub fn metadata_only(mut object: Value, shape: Shape) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": metadata_version(shape),
        "metadata": object["metadata"].take(),
    })
}
