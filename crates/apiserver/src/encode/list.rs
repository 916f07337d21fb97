//! Large lists, which are streamed.
//!
//! A list is a snapshot of pointers to stored entries. The frame around the items is created at once; the items are
//! encoded in pieces as the connection takes them, so that a list costs a buffer and not the size of a collection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use allot_apimachinery::quote::write_json;
use allot_store::Entry;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::{Respond as _, write_head};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::limits::{BURST, CHUNK, STREAM_BUFFERS, TREE_FACTOR};
use crate::negotiate::{Encoding, MediaType, Shape};
use crate::registry::Resource;
use crate::view::{View, metadata_version};
use crate::{protobuf, table, yaml};

#[cfg(test)]
mod tests;

/// Rows of a table that are created together: their columns are looked up once.
const ROWS: usize = 64;
/// Objects that are measured before others on the same thread get their turn.
const MEASURED: usize = 64;

/// A list that is to be answered.
pub struct Listing {
    /// The resource whose objects are listed: it decides on kind, columns and encoding.
    pub resource: Arc<Resource>,
    /// The requested version.
    pub version: String,
    /// The media type, and whether objects, metadata or a Table are requested.
    pub media: MediaType,
    /// What tables show.
    pub options: table::Options,
    /// Metadata of the list.
    pub meta: Value,
    /// The objects as they are stored, in the order of their keys.
    pub entries: Vec<Arc<Entry>>,
}

impl Listing {
    fn view(&self) -> View<'_> {
        View {
            resource: &self.resource,
            version: &self.version,
        }
    }

    /// The list is too small to be streamed.
    pub fn is_small(&self) -> bool {
        let mut left = CHUNK;
        self.entries.iter().all(|entry| {
            let fits = entry.value.len() <= left;
            left = left.saturating_sub(entry.value.len());
            fits
        })
    }

    /// The list can be encoded item by item.
    fn can_stream(&self) -> bool {
        match (self.media.encoding, self.media.shape) {
            // Its items come before its metadata.
            (Encoding::Protobuf, Shape::MetadataV1beta1) => false,
            // Its rows are sorted.
            (_, Shape::Table | Shape::TableV1beta1) => self.resource.rules.row_order.is_none(),
            _ => true,
        }
    }

    /// Bytes that the answer holds at most, the stored objects not included.
    pub fn cost(&self) -> usize {
        if self.can_stream() {
            return STREAM_BUFFERS + self.entries.len() * size_of::<Arc<Entry>>();
        }
        let stored: usize = self.entries.iter().map(|entry| entry.value.len()).sum();
        stored * TREE_FACTOR
    }

    /// The answer in one piece.
    ///
    /// # Errors
    /// 500 if an object cannot be converted.
    pub fn whole(self) -> Result<Response<Body>> {
        let view = self.view();
        view.list_response(&self.entries, self.meta.clone(), self.media, self.options)
    }

    /// The answer, streamed if possible.
    ///
    /// # Errors
    /// 500 if an object cannot be converted and that is seen in time; later it ends the answer.
    pub async fn stream(self) -> Result<Response<Body>> {
        if !self.can_stream() {
            return self.whole();
        }
        let frame = self.frame().await?;
        let content_type = HeaderValue::from_static(self.media.content_type());
        let mut response = Response::new(Body::stream(Pieces {
            head: frame.head,
            tail: frame.tail,
            items: frame.items,
            listing: self,
            next: 0,
            burst: 0,
            done: false,
        }));
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// What surrounds the items, and how they are written.
    async fn frame(&self) -> Result<Frame> {
        if self.media == MediaType::JSON {
            let mut head = Vec::with_capacity(256);
            let (kind, version) = (&self.resource.list_kind, self.view().api_version());
            write_head(&mut head, kind, &version, &self.meta);
            let (tail, items) = (b"]}".to_vec(), Items::Stored);
            return Ok(Frame { head, tail, items });
        }
        if self.media.encoding == Encoding::Protobuf {
            return self.message().await;
        }
        // The list is encoded with a unique mark as its only item; the text before and after the mark surrounds the real items.
        let mark = format!("items-{}", uuid::Uuid::new_v4());
        let skeleton = self.skeleton(json!([mark]));
        let (text, quoted, separator) = match self.media.encoding {
            Encoding::PrettyJson => {
                let mut text = serde_json::to_string_pretty(&skeleton).unwrap_or_default();
                text.push('\n');
                (text, format!("{mark:?}"), ",")
            }
            Encoding::Yaml => {
                let text = yaml::write(&skeleton);
                (text, format!("- {mark}\n"), "")
            }
            Encoding::Json | Encoding::Protobuf => (skeleton.to_string(), format!("{mark:?}"), ","),
        };
        let (head, tail) = text
            .split_once(&quoted)
            .ok_or_else(|| ApiError::unknown("the list has no place for its items"))?;
        // Everything between the line break before the mark and the mark.
        let indent = match head.rsplit_once('\n') {
            Some((_, indent)) => format!("\n{indent}"),
            None => String::new(),
        };
        Ok(Frame {
            head: head.as_bytes().to_vec(),
            tail: tail.as_bytes().to_vec(),
            items: Items::Text {
                separator: format!(
                    "{separator}{}",
                    if separator.is_empty() { "" } else { &indent }
                ),
                indent,
            },
        })
    }

    /// The list with other items.
    fn skeleton(&self, items: Value) -> Value {
        let (view, meta) = (self.view(), self.meta.clone());
        match self.media.shape {
            Shape::Whole => Value::from_iter([
                ("kind", self.resource.list_kind.as_str().into()),
                ("apiVersion", view.api_version().into()),
                ("metadata", meta),
                ("items", items),
            ]),
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => Value::from_iter([
                ("kind", "PartialObjectMetadataList".into()),
                ("apiVersion", metadata_version(shape).into()),
                ("metadata", meta),
                ("items", items),
            ]),
            shape @ (Shape::Table | Shape::TableV1beta1) => {
                let mut table = table::table(&view, Vec::new(), Some(meta), shape, self.options);
                table["rows"] = items;
                table
            }
        }
    }

    /// The frame around the items of a message. It starts with the length, so the items are encoded once to measure
    /// them.
    async fn message(&self) -> Result<Frame> {
        let prefix = protobuf::message_of(&self.skeleton(json!([])))
            .ok_or_else(|| ApiError::unknown("the list has no protobuf form"))?;
        let mut length = prefix.len();
        for (index, entry) in self.entries.iter().enumerate() {
            length += self.item_message(entry, &prefix)?.len();
            if index % MEASURED == MEASURED - 1 {
                tokio::task::yield_now().await;
            }
        }
        let skeleton = self.skeleton(Value::Null);
        let (mut head, tail) = protobuf::envelope(&skeleton, length);
        head.extend_from_slice(&prefix);
        let items = Items::Message { prefix };
        Ok(Frame { head, tail, items })
    }

    /// One item as a field of the list's message: a list with only this item without its prefix.
    fn item_message(&self, entry: &Entry, prefix: &[u8]) -> Result<Vec<u8>> {
        let list = self.skeleton(Value::Array(vec![self.item(entry)?]));
        let write = || protobuf::message_of(&list).unwrap_or_default();
        let message = self.view().with_texts(entry, write);
        let item = message.strip_prefix(prefix).map(<[u8]>::to_vec);
        item.ok_or_else(|| ApiError::unknown("the list has no protobuf form"))
    }

    /// An object as an item of a list in this shape.
    fn item(&self, entry: &Entry) -> Result<Value> {
        let mut object = self.view().object(entry)?;
        if self.media.shape.is_metadata() {
            return Ok(self.view().metadata_only(object, self.media.shape));
        }
        if self.resource.custom.is_none()
            && let Value::Object(map) = &mut object
        {
            map.remove("kind");
            map.remove("apiVersion");
        }
        Ok(object)
    }

    /// The next objects of the list; as many as are encoded together.
    fn items(&self, entries: &[Arc<Entry>]) -> Result<Vec<Value>> {
        if !matches!(self.media.shape, Shape::Table | Shape::TableV1beta1) {
            return entries.iter().map(|entry| self.item(entry)).collect();
        }
        let view = self.view();
        let objects = entries.iter().map(|entry| view.object(entry));
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let mut table = table::table(&view, objects, None, self.media.shape, self.options);
        match table["rows"].take() {
            Value::Array(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }
}

struct Frame {
    head: Vec<u8>,
    tail: Vec<u8>,
    items: Items,
}

/// How items are written.
enum Items {
    /// JSON, mostly as it is stored.
    Stored,
    /// Text, with what separates two items, and what each line of an item begins with.
    Text { separator: String, indent: String },
    /// Protobuf, with the part of the message before the items.
    Message { prefix: Vec<u8> },
}

/// A list on its way.
struct Pieces {
    listing: Listing,
    head: Vec<u8>,
    tail: Vec<u8>,
    items: Items,
    next: usize,
    /// Pieces since others had their turn.
    burst: usize,
    done: bool,
}

impl Pieces {
    /// Writes some objects.
    fn write(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let listing = &self.listing;
        let rest = &listing.entries[self.next..];
        let first = self.next == 0;
        match &self.items {
            Items::Stored => {
                if !first {
                    out.push(b',');
                }
                listing.view().write_item(out, &rest[0])?;
                self.next += 1;
            }
            Items::Message { prefix } => {
                out.extend_from_slice(&listing.item_message(&rest[0], prefix)?);
                self.next += 1;
            }
            Items::Text { separator, indent } => {
                let mut bytes = 0;
                let together = rest.iter().take(ROWS).take_while(|entry| {
                    let more = bytes < CHUNK;
                    bytes += entry.value.len();
                    more
                });
                let batch = &rest[..together.count()];
                for (index, item) in listing.items(batch)?.iter().enumerate() {
                    if !first || index > 0 {
                        out.extend_from_slice(separator.as_bytes());
                    }
                    write_text(out, item, listing.media.encoding, indent);
                }
                self.next += batch.len();
            }
        }
        Ok(())
    }

    fn piece(&mut self) -> Result<Vec<u8>> {
        let mut out = std::mem::take(&mut self.head);
        out.reserve(CHUNK);
        while out.len() < CHUNK && self.next < self.listing.entries.len() {
            self.write(&mut out)?;
        }
        if self.next == self.listing.entries.len() {
            out.append(&mut self.tail);
            self.done = true;
        }
        Ok(out)
    }
}

fn write_text(out: &mut Vec<u8>, item: &Value, encoding: Encoding, indent: &str) {
    match encoding {
        Encoding::PrettyJson => {
            let text = serde_json::to_string_pretty(item).unwrap_or_default();
            out.extend_from_slice(text.replace('\n', indent).as_bytes());
        }
        Encoding::Yaml => {
            out.extend_from_slice(yaml::write_item(item).as_bytes());
        }
        Encoding::Json | Encoding::Protobuf => {
            // Writing JSON to memory does not fail.
            let _ = write_json(out, item);
        }
    }
}

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        if self.burst == BURST {
            // A fast reader must not keep the thread from other connections.
            self.burst = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.burst += 1;
        match self.piece() {
            Ok(piece) => Poll::Ready(Some(Ok(piece.into()))),
            Err(error) => {
                tracing::error!(%error, resource = self.listing.resource.plural, "a list ends early");
                self.done = true;
                Poll::Ready(Some(Err(io::Error::other(error.to_string()))))
            }
        }
    }
}
