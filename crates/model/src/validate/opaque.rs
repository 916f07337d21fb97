//! Configuration that only drivers understand.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::names;
use crate::limits;
use crate::shape::raw_length;
use crate::view::View;

/// Checks the one-of inside a configuration; `stored` means that the configuration was accepted before.
pub(super) fn configuration(config: &Value, path: &Path, stored: bool) -> ErrorList {
    let opaque_path = path.child("opaque");
    if !config.has("opaque") {
        return ErrorList::from([Error::required(&opaque_path, "")]);
    }
    let opaque = config.at("opaque");
    let mut errors = names::driver(opaque.text("driver"), &opaque_path.child("driver"));
    errors.extend(raw_object(
        opaque.at("parameters"),
        &opaque_path.child("parameters"),
        stored,
    ));
    errors
}

/// Checks a `RawExtension` that must be a JSON object of limited size.
pub(super) fn raw_object(raw: &Value, path: &Path, stored: bool) -> ErrorList {
    if raw.is_null() {
        return ErrorList::from([Error::required(path, "")]);
    }
    let length = || raw_length(raw).unwrap_or_else(|| json_len(raw));
    if !stored && length() > limits::OPAQUE_PARAMETERS {
        return ErrorList::from([Error::too_long(path, limits::OPAQUE_PARAMETERS)]);
    }
    if !raw.is_object() {
        return ErrorList::from([Error::invalid(
            path,
            "<value omitted>",
            "must be a valid JSON object",
        )]);
    }
    ErrorList::new()
}

/// The length of the compact JSON form.
fn json_len(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither the counter nor a Value can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}
