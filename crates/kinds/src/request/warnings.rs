//! Warnings in responses.

use std::collections::HashSet;

use http::HeaderMap;

/// The maximum number of characters of all warnings of a response. Beyond it each warning is truncated; warnings that
/// still do not fit are dropped. As upstream.
const MOST: usize = 4 * 1024;
/// The maximum number of characters of a truncated warning.
const CUT: usize = 256;

/// The `Warning` headers of a response, without duplicates.
#[derive(Debug, Default)]
pub struct Warnings(parking_lot::Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    seen: HashSet<String>,
    texts: Vec<String>,
    /// The total number of characters of the warnings.
    written: usize,
    /// Whether the limit is exceeded, so that each warning is truncated.
    cutting: bool,
}

impl Recorded {
    fn push(&mut self, text: String) {
        let length = text.chars().count();
        if self.cutting && length > CUT {
            self.texts.push(text.chars().take(CUT).collect());
            self.written += CUT;
        } else {
            self.texts.push(text);
            self.written += length;
        }
    }
}

impl Warnings {
    /// Adds a warning. A single request can cause any number of warnings.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut recorded = self.0.lock();
        let full = recorded.cutting && recorded.written >= MOST;
        if full || text.is_empty() || !recorded.seen.insert(text.clone()) {
            return;
        }
        recorded.push(text);
        if recorded.written > MOST && !recorded.cutting {
            recorded.cutting = true;
            recorded.written = 0;
            let texts = std::mem::take(&mut recorded.texts);
            texts.into_iter().for_each(|text| recorded.push(text));
        }
    }

    /// Adds a `Warning` header for each text.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        for text in &self.0.lock().texts {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
            let clean: String = escaped
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
                headers.append(http::header::WARNING, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(warnings: &Warnings) -> Vec<String> {
        let mut headers = HeaderMap::new();
        warnings.write_to(&mut headers);
        let values = headers.get_all(http::header::WARNING).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn each_text_is_told_once() {
        let warnings = Warnings::default();
        for text in ["a", "b\"\n", "a", ""] {
            warnings.add(text);
        }
        assert_eq!(written(&warnings), ["299 - \"a\"", "299 - \"b\\\" \""]);
    }

    /// A body full of unknown fields caused one header per field, more than a response can contain.
    #[test]
    fn regression_any_number_of_warnings_makes_few_headers() {
        let warnings = Warnings::default();
        for number in 0..100_000 {
            warnings.add(format!("unknown field {number}"));
        }
        let all = written(&warnings);
        assert!(all.len() < 400, "{}", all.len());
        assert_eq!(all[0], "299 - \"unknown field 0\"");
        let warnings = Warnings::default();
        warnings.add("a".repeat(MOST));
        assert_eq!(written(&warnings)[0].len(), MOST + "299 - \"\"".len());
        warnings.add("b".repeat(1000));
        let all = written(&warnings);
        assert_eq!(all.len(), 2);
        assert!(
            all.iter()
                .all(|text| text.len() == CUT + "299 - \"\"".len())
        );
    }
}
