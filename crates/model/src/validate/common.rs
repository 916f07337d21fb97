//! Walking lists and maps.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use serde_json::Value;

use crate::view::Entries;

/// Checks every item, unless there are more than `max`: then only that is reported, so that a huge object costs
/// nothing.
pub(crate) fn list(
    items: &[Value],
    max: usize,
    path: &Path,
    mut check: impl FnMut(&Value, &Path) -> ErrorList,
) -> ErrorList {
    if items.len() > max {
        return ErrorList::from([Error::too_many(path, items.len(), max)]);
    }
    items
        .iter()
        .enumerate()
        .flat_map(|(index, item)| check(item, &path.index(index)))
        .collect()
}

/// As [`list`], and no two items may have the same key.
pub(crate) fn set<K: Ord + Clone + Into<BadValue>>(
    items: &[Value],
    max: usize,
    path: &Path,
    check: impl FnMut(&Value, &Path) -> ErrorList,
    key: impl Fn(&Value) -> K,
) -> ErrorList {
    let mut errors = list(items, max, path, check);
    if items.len() > max {
        return errors;
    }
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let key = key(item);
        if !seen.insert(key.clone()) {
            errors.push(Error::duplicate(&path.index(index), key));
        }
    }
    errors
}

/// A string item as a key of [`set`].
pub(crate) fn itself(item: &Value) -> String {
    item.as_str().unwrap_or_default().to_owned()
}

/// Checks keys and values of a map, unless there are more than `max`. Keys longer than `show` bytes are shortened
/// in paths.
pub(crate) fn map(
    entries: Entries<'_>,
    max: usize,
    show: usize,
    path: &Path,
    check_key: impl Fn(&str, &Path) -> ErrorList,
    check: impl Fn(&Value, &Path) -> ErrorList,
) -> ErrorList {
    if entries.len() > max {
        return ErrorList::from([Error::too_many(path, entries.len(), max)]);
    }
    let mut errors = ErrorList::new();
    for (key, item) in entries.iter() {
        errors.extend(check_key(key, path));
        errors.extend(check(item, &path.key(&shorten(key, show))));
    }
    errors
}

/// Cuts the middle out of a text that is longer than `max` bytes, at least 16.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    const ELLIPSIS: &[u8] = b"...";
    let max = max.max(16);
    if text.len() <= max {
        return text.to_owned();
    }
    let rest = max - ELLIPSIS.len();
    let bytes = text.as_bytes();
    let parts = [
        &bytes[..rest.div_ceil(2)],
        ELLIPSIS,
        &bytes[bytes.len() - rest / 2..],
    ];
    // Upstream cuts bytes; a character that was cut shows as a replacement character, as in its JSON.
    String::from_utf8_lossy(&parts.concat()).into_owned()
}

/// One error per text, about `value`.
pub(crate) fn invalid(path: &Path, value: &str, texts: Vec<String>) -> ErrorList {
    texts
        .into_iter()
        .map(|text| Error::invalid(path, value, text))
        .collect()
}
