//! Fields that are reset before an object is validated.

use serde_json::{Map, Value};

use super::Kind;
use crate::strategy::{copy, reset_metadata};
use crate::view::set;

/// Prepares a new object: it has no status.
pub fn prepare_for_create(kind: Kind, value: &mut Value) {
    if kind.has_status() {
        set(value, "status", Map::new());
    }
}

/// Prepares an object that replaces `old` through the main endpoint: the status is that of `old`.
pub fn prepare_for_update(kind: Kind, value: &mut Value, old: &Value) {
    if kind.has_status() {
        copy(value, old, "status");
    }
}

/// Prepares an object whose status replaces that of `old`: spec and metadata are those of `old`.
pub fn prepare_for_status_update(_kind: Kind, value: &mut Value, old: &Value) {
    copy(value, old, "spec");
    reset_metadata(value, old);
}
