//! Query parameters.

/// Decoded parameters in order; names may repeat.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            let spaces = text.replace('+', " ");
            percent_encoding::percent_decode_str(&spaces)
                .decode_utf8_lossy()
                .into_owned()
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decode(k), decode(v)))
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// `1` or `true`.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true"))
    }

    /// A whole number; an empty value counts as absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, String> {
        match self.get(name).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| format!("invalid {name}: {text:?}")),
        }
    }
}
