//! Conversion of values in the file to their types. Errors name the field, its value and the expected type.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, Visitor};
use serde_json::Value;

use super::ConfigError;

/// Reads the value at `path`, which is empty for the whole file.
pub(super) fn typed<T: DeserializeOwned>(path: &str, value: Value) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let path = match (path, &*below) {
            (path, ".") => path.to_owned(),
            ("", below) => below.to_owned(),
            // An index follows without a dot.
            (path, below) if below.starts_with('[') => format!("{path}{below}"),
            (path, below) => format!("{path}.{below}"),
        };
        let text = without_rust_types(&error.into_inner().to_string());
        ConfigError::Type { path, text }
    })
}

/// The same text without names of Rust's types.
fn without_rust_types(text: &str) -> String {
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return text.to_owned();
    };
    let expected = match expected {
        "i64" | "i32" => "a whole number",
        "u32" => "a whole number that is not negative",
        "f32" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// A duration as written in the file; it is parsed where its field is known.
#[derive(Debug)]
pub(super) struct DurationText(pub(super) String);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = DurationText;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a duration with its unit, such as \"10s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DurationText, E> {
                Ok(DurationText(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
