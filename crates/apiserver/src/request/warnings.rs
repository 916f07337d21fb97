//! Warnings for the client.

use http::HeaderMap;

/// `Warning` headers of an answer, each text once.
#[derive(Debug, Default)]
pub struct Warnings(parking_lot::Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }

    pub(crate) fn write_to(&self, headers: &mut HeaderMap) {
        for text in self.0.lock().iter() {
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
