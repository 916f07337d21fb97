//! Bodies in YAML.

mod write;

use allot_apimachinery::quote::quote;
use serde_json::Value;

pub(crate) use write::{write, write_item};

/// A document, and the reports about duplicate keys in it.
pub(crate) struct Yaml {
    /// The document; of a repeated key the last value counts.
    pub(crate) value: Value,
    /// The repeated keys, as upstream's parser reports them.
    pub(crate) repeated: Option<String>,
}

const PREFIX: &str = "yaml: unmarshal errors:\n";

/// Reads a document.
///
/// # Errors
/// It is no YAML, or no text.
pub(crate) fn read(body: &[u8]) -> Result<Yaml, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let error = match serde_saphyr::from_str(text) {
        Ok(value) => {
            return Ok(Yaml {
                value,
                repeated: None,
            });
        }
        Err(error) => error,
    };
    let serde_saphyr::Error::DuplicateMappingKey { .. } = error.without_snippet() else {
        return Err(error.to_string());
    };
    let repeated = repeated_keys(text);
    let lenient = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins
    };
    let value =
        serde_saphyr::from_str_with_options(text, lenient).map_err(|error| error.to_string())?;
    Ok(Yaml {
        value,
        repeated: Some(format!("{PREFIX}{}", repeated.join("\n"))),
    })
}

/// Repeated keys of a document that are named at most.
const MAX_REPEATED: usize = 64;
/// Limit of text that is parsed again to find them, in bytes: each one costs a pass over everything before it.
const MAX_REREAD: usize = 16 << 20;

/// A line for each repeated key. The parser ends at the first one, so each is given another name to find the next.
fn repeated_keys(text: &str) -> Vec<String> {
    let most = (MAX_REREAD / text.len().max(1)).clamp(1, MAX_REPEATED);
    let (mut text, mut found) = (text.to_owned(), Vec::new());
    while found.len() < most
        && let Err(error) = serde_saphyr::from_str::<Value>(&text)
        && let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet()
    {
        let key = key.as_deref().unwrap_or_default();
        let line = location.line();
        found.push(format!(
            "  line {line}: key {} already set in map",
            quote(key)
        ));
        let Some(at) = offset(&text, line, location.column()) else {
            break;
        };
        // A quoted key begins with its quote.
        let start = at + usize::from(text[at..].starts_with(['"', '\'']));
        if key.is_empty() || !text[start..].starts_with(key) {
            break;
        }
        let unique = format!("{key}-{}", uuid::Uuid::new_v4());
        text.replace_range(start..start + key.len(), &unique);
    }
    found
}

/// Offset of a line and column, counted from one, in a text.
fn offset(text: &str, line: u64, column: u64) -> Option<usize> {
    let line = usize::try_from(line).ok()?.checked_sub(1)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..)?;
    let (within, _) = rest.char_indices().nth(column)?;
    Some(start + within)
}

/// The warnings for an error `text` of strict validation: the lines of the parser's report, or the text.
pub(crate) fn warnings(text: &str) -> impl Iterator<Item = String> {
    let report = text
        .strip_prefix("error converting YAML to JSON: ")
        .unwrap_or(text);
    let lines = report.strip_prefix(PREFIX).unwrap_or(text);
    lines.split('\n').map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_repeated_keys_counts() {
        let read = read(b"a: 1\nb:\n  c: 2\n  c: 3\n").expect("YAML");
        assert_eq!(read.value, json!({"a": 1, "b": {"c": 3}}));
        let repeated = read.repeated.expect("a repeated key");
        assert_eq!(
            repeated,
            "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map"
        );
        let warned: Vec<String> = warnings(&repeated).collect();
        assert_eq!(warned, ["line 4: key \"c\" already set in map"]);
        assert_eq!(warnings("unknown field \"x\"").count(), 1);
    }

    #[test]
    fn all_repeated_keys_are_named() {
        let text = b"a: 1\na: 2\nb:\n  \"c\": 2\n  \"c\": 3\n  c: 4\n";
        let read = read(text).expect("YAML");
        assert_eq!(read.value, json!({"a": 2, "b": {"c": 4}}));
        let repeated = read.repeated.expect("repeated keys");
        let warned: Vec<String> = warnings(&repeated).collect();
        let lines = [(2, "a"), (5, "c"), (6, "c")];
        assert_eq!(
            warned,
            lines.map(|(line, key)| format!("line {line}: key \"{key}\" already set in map"))
        );
    }

    #[test]
    fn what_is_no_yaml_is_refused() {
        assert!(read(b"a: [1").is_err());
        assert!(read(b"\xff").is_err());
    }
}
