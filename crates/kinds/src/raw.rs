//! The texts of raw extensions: JSON that the server keeps unchanged, such as the opaque parameters of a driver, the
//! data of a device's status or of a ControllerRevision.
//!
//! Upstream stores such a field as the bytes it was sent: clients that read protobuf get them, those that read JSON get
//! them without the space between tokens. Here an object is a tree of values, which preserves neither
//! the order of members nor repeated members nor the digits of large numbers. So the texts are kept beside the trees
//! while a request is served: those that were sent, and those of the stored objects that it reads. When a raw field is
//! written again, its text is found by its value, the texts of equal values in their order. A patch that does not
//! change the value does not change its text either.

use std::cell::RefCell;
use std::future::Future;

use allot_schema::decode::{Empty, RawText, raw_texts, write_compact};
use allot_schema::types::Struct;
use serde_json::Value;

#[derive(Default)]
struct Texts {
    sent: Vec<Known>,
    stored: Vec<Known>,
    /// The request has sent a whole object. A patch goes through a tree in upstream's server as well.
    whole: bool,
    /// What [`crate::empties`] keeps: one scope for both, since every one takes stack.
    empties: Vec<Empty>,
}

struct Known {
    raw: RawText,
    /// It has been written into the object that is being written.
    used: bool,
}

tokio::task_local! {
    static TEXTS: RefCell<Texts>;
}

/// Serves a request with its own set of texts.
pub async fn scope<F: Future>(request: F) -> F::Output {
    TEXTS.scope(RefCell::default(), request).await
}

/// Writes objects with the texts of their stored forms, ignoring other known texts. The texts are searched for every
/// raw field: there should be few objects.
pub fn of_stored<'a, T>(
    schema: Option<&'static Struct>,
    stored: impl IntoIterator<Item = &'a [u8]>,
    work: impl FnOnce() -> T,
) -> T {
    let Some(schema) = schema else { return work() };
    let found = stored
        .into_iter()
        .flat_map(|bytes| raw_texts(bytes, schema));
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return work();
    }
    TEXTS.sync_scope(RefCell::default(), || {
        with(|texts| add(&mut texts.stored, found));
        work()
    })
}

/// Adds texts that were sent with the request.
pub fn sent(found: Vec<RawText>) {
    if !found.is_empty() {
        with(|texts| add(&mut texts.sent, found));
    }
}

/// As [`sent`], for an object in the body of the request.
pub fn sent_object(found: Vec<RawText>) {
    with(|texts| texts.whole = true);
    sent(found);
}

/// As [`sent`], for a patch: what it sets has been through another encoding in upstream's server, without space.
pub fn sent_patch(found: Vec<RawText>) {
    sent(found.into_iter().map(compact).collect());
}

fn compact(raw: RawText) -> RawText {
    let mut text = Vec::with_capacity(raw.text.len());
    write_compact(&mut text, raw.text.as_bytes());
    RawText {
        text: String::from_utf8(text).unwrap_or(raw.text),
        value: raw.value,
    }
}

/// Remembers the texts of a stored object that the request changes.
pub fn stored(schema: Option<&'static Struct>, bytes: &[u8]) {
    if let Some(schema) = schema {
        let found = raw_texts(bytes, schema);
        if !found.is_empty() {
            with(|texts| add(&mut texts.stored, found));
        }
    }
}

/// Another object begins to be written: equal values get their texts from the first on.
pub fn rewind() {
    with(|texts| {
        for known in texts.sent.iter_mut().chain(&mut texts.stored) {
            known.used = false;
        }
    });
}

/// Writes the value of a raw field: its text if there is one.
pub fn write(out: &mut Vec<u8>, value: &Value) {
    let found = with(|texts| {
        let all = texts.sent.iter_mut().chain(&mut texts.stored);
        let mut equal = all.filter(|known| known.raw.value == *value);
        let first = equal.next()?;
        let unused = if first.used {
            equal.find(|known| !known.used).unwrap_or(first)
        } else {
            first
        };
        unused.used = true;
        out.extend_from_slice(unused.raw.text.as_bytes());
        Some(())
    });
    if found.flatten().is_none() {
        // Writing JSON to memory does not fail.
        let _ = serde_json::to_writer(out, value);
    }
}

/// As [`write`], without the space between the tokens of the text: the form of JSON answers.
pub fn write_json(out: &mut Vec<u8>, value: &Value) {
    let mut text = Vec::new();
    write(&mut text, value);
    write_compact(out, &text);
}

/// How an error shows a raw field of an object in the body: its text, with the escapes that Go writes into a page.
pub fn shown(value: &Value) -> Option<String> {
    let text = with(|texts| {
        let mut all = texts.sent.iter().filter(|_| texts.whole);
        let found = all.find(|known| known.raw.value == *value)?;
        Some(compact(found.raw.clone()).text)
    });
    let mut out = text.flatten()?;
    for (plain, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        out = out.replace(plain, escaped);
    }
    Some(out)
}

/// The length of a raw field that was sent, as it is stored: of the longest text with this value.
pub fn length(value: &Value) -> Option<usize> {
    let longest = with(|texts| {
        let equal = texts.sent.iter().filter(|it| it.raw.value == *value);
        equal.map(|known| known.raw.text.len()).max()
    });
    longest.flatten()
}

fn add(known: &mut Vec<Known>, found: Vec<RawText>) {
    known.extend(found.into_iter().map(|raw| Known { raw, used: false }));
}

/// What is kept for [`crate::empties`]; none outside of a request.
pub(crate) fn with_empties<T>(work: impl FnOnce(&mut Vec<Empty>) -> T) -> Option<T> {
    with(|texts| work(&mut texts.empties))
}

/// None outside of a request.
fn with<T>(work: impl FnOnce(&mut Texts) -> T) -> Option<T> {
    TEXTS.try_with(|texts| work(&mut texts.borrow_mut())).ok()
}
