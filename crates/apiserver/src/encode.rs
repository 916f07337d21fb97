//! Turning results into responses: one place per representation.

use allot_apimachinery::quote::write_json;
use allot_store::Entry;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::error::Result;
use crate::limits::{is_over, timed_out};
use crate::negotiate::{Encoding, MediaType, Shape};
use crate::view::{View, metadata_version};
use crate::{ordered, table, yaml};

mod list;

pub use list::Listing;

/// A response with a JSON value as its body.
pub fn value_response(code: u16, value: &Value, media: MediaType) -> Response<Body> {
    let bytes = match media.encoding {
        Encoding::Json => {
            let mut bytes = Vec::with_capacity(256);
            write_json(&mut bytes, value).map(|()| bytes)
        }
        Encoding::PrettyJson => serde_json::to_vec_pretty(value).map(|mut bytes| {
            bytes.push(b'\n');
            bytes
        }),
        Encoding::Yaml => return yaml_response(code, value),
        Encoding::Protobuf => match crate::protobuf::encode(value) {
            Some(bytes) => return bytes_response(code, bytes, media),
            // Documents without such a form are always JSON.
            None => return value_response(code, value, MediaType::JSON),
        },
    };
    // Values of strings and numbers always serialise.
    bytes_response(code, bytes.unwrap_or_default(), media)
}

fn yaml_response(code: u16, value: &Value) -> Response<Body> {
    let text = yaml::write(value);
    bytes_response(
        code,
        text,
        MediaType {
            encoding: Encoding::Yaml,
            shape: Shape::Whole,
        },
    )
}

/// A response with a finished body.
pub fn bytes_response(code: u16, bytes: impl Into<Bytes>, media: MediaType) -> Response<Body> {
    let mut response = Response::new(Body::whole(bytes));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(media.content_type()),
    );
    response
}

/// Responses with stored objects.
pub trait Respond {
    /// One object in any shape, as a JSON value.
    ///
    /// # Errors
    /// As [`View::object`].
    fn shaped(&self, entry: &Entry, shape: Shape, options: table::Options) -> Result<Value>;

    /// The answer with one stored object.
    ///
    /// # Errors
    /// As [`View::object`].
    fn object_response(
        &self,
        code: u16,
        entry: &Entry,
        media: MediaType,
        options: table::Options,
    ) -> Result<Response<Body>>;

    /// The answer with an object that is not stored (dry run).
    fn unstored_response(
        &self,
        code: u16,
        object: Value,
        media: MediaType,
        options: table::Options,
    ) -> Response<Body>;

    /// The answer with a list.
    ///
    /// # Errors
    /// As [`View::object`].
    fn list_response(
        &self,
        entries: &[std::sync::Arc<Entry>],
        meta: Value,
        media: MediaType,
        options: table::Options,
    ) -> Result<Response<Body>>;
}

impl Respond for View<'_> {
    fn shaped(&self, entry: &Entry, shape: Shape, options: table::Options) -> Result<Value> {
        let object = self.object(entry)?;
        Ok(match shape {
            Shape::Whole => object,
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => self.metadata_only(object, shape),
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, vec![object], None, shape, options)
            }
        })
    }

    fn object_response(
        &self,
        code: u16,
        entry: &Entry,
        media: MediaType,
        options: table::Options,
    ) -> Result<Response<Body>> {
        if media == MediaType::JSON {
            let mut out = Vec::with_capacity(entry.value.len() + 96);
            self.write_json(&mut out, entry)?;
            return Ok(bytes_response(code, out, media));
        }
        let value = self.shaped(entry, media.shape, options)?;
        Ok(self.with_texts(entry, || value_response(code, &value, media)))
    }

    fn unstored_response(
        &self,
        code: u16,
        object: Value,
        media: MediaType,
        options: table::Options,
    ) -> Response<Body> {
        let value = match media.shape {
            Shape::Whole if media == MediaType::JSON => {
                let mut out = Vec::with_capacity(1024);
                ordered::object(&mut out, &object, self.resource.schema(self.version));
                return bytes_response(code, out, media);
            }
            Shape::Whole => object,
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => self.metadata_only(object, shape),
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, vec![object], None, media.shape, options)
            }
        };
        value_response(code, &value, media)
    }

    fn list_response(
        &self,
        entries: &[std::sync::Arc<Entry>],
        meta: Value,
        media: MediaType,
        options: table::Options,
    ) -> Result<Response<Body>> {
        if media == MediaType::JSON {
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
            .map(|entry| match is_over() {
                true => Err(timed_out()),
                false => self.object(entry),
            })
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
                Value::from_iter([
                    ("kind", self.resource.list_kind.as_str().into()),
                    ("apiVersion", self.api_version().into()),
                    ("metadata", meta),
                    ("items", objects.into()),
                ])
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
                Value::from_iter([
                    ("kind", "PartialObjectMetadataList".into()),
                    ("apiVersion", metadata_version(shape).into()),
                    ("metadata", meta),
                    ("items", items),
                ])
            }
            Shape::Table | Shape::TableV1beta1 => {
                table::table(self, objects, Some(meta), media.shape, options)
            }
        };
        // Tables and metadata have no raw fields; what is encoded here with them is small.
        if media.shape == Shape::Whole {
            let entries = entries.iter().map(|entry| &**entry);
            return Ok(self.with_texts_of(entries, || value_response(200, &value, media)));
        }
        Ok(value_response(200, &value, media))
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = write_json(out, value);
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
