//! The stored form of an object, which is not larger than what etcd takes.

use std::sync::Arc;

use allot_schema::apply::Managed;
use allot_store::{Draft, Entry};
use serde_json::Value;

use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::object::meta;
use crate::storage::Owned;
use crate::{conversion, strategy};

/// The largest object that etcd takes with its default limit of 1.5 MiB for a request.
pub(super) const MAX_STORED: usize = 1536 * 1024;

/// The largest message that etcd's client sends.
const MAX_SENT: usize = 2 * 1024 * 1024;

/// What a write left behind.
pub(super) enum Stored {
    /// A stored version.
    Entry(Arc<Entry>),
    /// An object that is not stored: a dry run, or its last state.
    Value(Value),
}

impl Call<'_> {
    /// The stored form of an object. If it is too large, the managed fields, often half of it, are omitted; except for
    /// an apply, which depends on them.
    ///
    /// # Errors
    /// 500 with the message of etcd, or of its client, if it is still too large.
    pub(super) async fn draft(
        &self,
        object: &Value,
        owners: &Managed,
        is_applied: bool,
    ) -> Result<Draft> {
        let draft = conversion::draft(self.core, &self.resource, object, owners).await?;
        let mut size = self.size(&draft, object, owners);
        if size <= MAX_STORED {
            return Ok(draft);
        }
        if !is_applied {
            let no_owners = Managed::default();
            let smaller = conversion::draft(self.core, &self.resource, object, &no_owners).await?;
            size = self.size(&smaller, object, &no_owners);
            if size <= MAX_STORED {
                return Ok(smaller);
            }
        }
        let sent = self.sent_to_etcd(size, object);
        Err(ApiError::unknown(match sent > MAX_SENT {
            true => format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({sent} vs. {MAX_SENT})"
            ),
            false => "etcdserver: request is too large".to_owned(),
        }))
    }

    /// The size of the object for etcd, if that matters. What counts is the form in which upstream stores it: built-in
    /// kinds are smaller there than they are here.
    fn size(&self, draft: &Draft, object: &Value, owners: &Managed) -> usize {
        if draft.size() <= MAX_STORED || self.resource.custom.is_some() {
            return draft.size();
        }
        let (object, owners) = (object.clone(), owners.clone());
        let whole = Owned { object, owners }.whole();
        crate::protobuf::message_of(&whole).map_or(draft.size(), |it| it.len())
    }

    /// The size of the request with which kube-apiserver would store an object of this size: with the key of the object,
    /// once for the comparison with what is there and once for the write, and what is around them.
    fn sent_to_etcd(&self, size: usize, object: &Value) -> usize {
        const AROUND: usize = 25;
        let own = self.resource.key(self.namespace(), meta(object, "name"));
        let prefix = strategy::storage_prefix(&self.resource);
        let key = format!("/registry/{prefix}/{own}");
        let envelope = match self.resource.custom {
            Some(_) => 0,
            None => {
                21 + self
                    .resource
                    .api_version(&self.resource.storage_version)
                    .len()
                    + self.resource.kind.len()
            }
        };
        size + envelope + AROUND + 2 * key.len()
    }
}
