//! Bodies in YAML.

mod build;
mod go;
mod parse;
mod resolve;
mod write;

use serde_json::Value;

use build::Document;

pub(crate) use write::{write, write_item};

/// A document, and the reports about duplicate keys in it.
pub(crate) struct Yaml {
    /// The document; of a repeated key the last value counts.
    pub(crate) value: Value,
    /// The repeated keys, as upstream's parser reports them.
    pub(crate) repeated: Option<String>,
}

const PREFIX: &str = "yaml: unmarshal errors:\n";

/// Reads the first document of a body; as upstream, others are not read.
///
/// # Errors
/// Upstream's texts about a body that is no YAML, or cannot be written in JSON.
pub(crate) fn read(body: &[u8]) -> Result<Yaml, String> {
    let Document { value, repeated } = parse::parse(body)?;
    let repeated = (!repeated.is_empty()).then(|| format!("{PREFIX}{}", repeated.join("\n")));
    Ok(Yaml { value, repeated })
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
