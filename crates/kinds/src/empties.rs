//! Lists and maps that were sent empty: upstream's validation tells them from absent ones, and shows them in errors.
//!
//! Objects are stored and served without them, and field owners, policies and webhooks do not see them either. So they
//! are kept beside the object while its request is served, and put back where it is validated.

use std::borrow::Cow;

use allot_apimachinery::field::Path;
use allot_schema::decode::Empty;
use serde_json::{Value, json};

use crate::raw::with_empties as with;
use crate::request::Part;

/// Remembers those of the object that the request writes, in place of those of an earlier attempt.
pub fn sent(found: Vec<Empty>) {
    with(|empties| *empties = found);
}

/// The object with the lists and maps that were sent empty in the part that is written. `place` answers where a pointer
/// into the sent version leads in this form of the object, if anywhere.
pub(crate) fn restored<'a>(
    object: &'a Value,
    part: Part,
    place: impl Fn(&str) -> Option<String>,
) -> Cow<'a, Value> {
    let mut object = Cow::Borrowed(object);
    with(|empties| {
        for Empty { pointer, value } in empties.iter() {
            let of_status = pointer.starts_with("/status/") || pointer == "/status";
            if of_status != (part == Part::Status) || pointer.starts_with("/metadata/") {
                continue;
            }
            let Some(pointer) = place(pointer) else {
                continue;
            };
            let Some((holder, key)) = pointer.rsplit_once('/') else {
                continue;
            };
            let lacks = |holder: &Value| {
                let members = holder.as_object();
                members.is_some_and(|members| !members.contains_key(key))
            };
            if object.pointer(holder).is_some_and(lacks)
                && let Some(Value::Object(members)) = object.to_mut().pointer_mut(holder)
            {
                members.insert(key.to_owned(), value.clone());
            }
        }
    });
    object
}

/// The spec of a kind with one version, as errors show what changed in it: with the lists and maps that were sent empty,
/// but for those that `is_kept` leaves as they were before, and those that have another form in Go.
pub(crate) fn shown_spec(spec: &Value, is_kept: impl Fn(&str) -> bool) -> Value {
    let whole = json!({"spec": spec});
    let place = |it: &str| (!is_kept(it) && !is_omitted(it)).then(|| it.to_owned());
    let mut whole = restored(&whole, Part::Main, place).into_owned();
    whole["spec"].take()
}

/// Metadata and label selectors are the same structs inside of the server as outside: what is empty there is left out.
fn is_omitted(pointer: &str) -> bool {
    let mut keys = pointer.split('/');
    keys.any(|key| {
        matches!(
            key,
            "metadata" | "labelSelector" | "namespaceSelector" | "selector"
        )
    })
}

/// Whether there is one at a path without indexes.
pub(crate) fn has(path: &Path) -> bool {
    let pointer = format!("/{}", path.to_string().replace('.', "/"));
    with(|empties| empties.iter().any(|empty| empty.pointer == pointer)).unwrap_or_default()
}
