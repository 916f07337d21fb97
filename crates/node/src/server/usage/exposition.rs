//! Prometheus' text format.

use std::fmt::Write as _;

use jiff::Timestamp;

/// A value of a family.
pub(super) struct Sample {
    /// Names and values, in the order in which they are shown.
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
    /// When it was measured; `None` for now.
    pub(super) at: Option<Timestamp>,
}

impl Sample {
    /// A value without labels, for now.
    pub(super) fn plain(value: f64) -> Self {
        Self {
            labels: Vec::new(),
            value,
            at: None,
        }
    }
}

/// The text of an answer.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Adds a family with its samples; nothing without samples.
    pub(super) fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let out = &mut self.0;
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            out.push_str(name);
            for (index, (label, value)) in sample.labels.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                let _ = write!(out, "{label}=\"{}\"", escaped(value));
            }
            if !sample.labels.is_empty() {
                out.push('}');
            }
            let _ = write!(out, " {}", sample.value);
            if let Some(at) = sample.at {
                let _ = write!(out, " {}", at.as_millisecond());
            }
            out.push('\n');
        }
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: an image whose name ends the line and begins another.
    #[test]
    fn values_of_labels_stay_in_their_line() {
        let mut all = Exposition::default();
        let sample = |value: f64, text: &str| Sample {
            labels: vec![("a", text.to_owned()), ("b", String::new())],
            value,
            at: Some(Timestamp::UNIX_EPOCH),
        };
        all.family("x", "gauge", "What.", []);
        let samples = [sample(0.5, "\"} 1\nx\\"), sample(2e10, "é")];
        all.family("y_total", "counter", "What.", samples);
        assert_eq!(
            all.text(),
            "# HELP y_total What.\n# TYPE y_total counter\n\
             y_total{a=\"\\\"} 1\\nx\\\\\",b=\"\"} 0.5 0\ny_total{a=\"é\",b=\"\"} 20000000000 0\n"
        );
    }
}
