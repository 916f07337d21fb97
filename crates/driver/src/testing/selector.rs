//! What a list or a watch selects.

use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::labels;
use serde_json::Value;

/// A field selector and a label selector.
#[derive(Debug)]
pub(super) struct Selector {
    fields: FieldSelector,
    labels: labels::Selector,
}

impl Selector {
    /// Reads both selectors. Any field can be selected; an absent one is an empty text.
    ///
    /// # Errors
    /// The text of an API server for a selector that cannot be read.
    pub(super) fn parse(fields: &str, labels: &str) -> Result<Self, String> {
        Ok(Self {
            fields: FieldSelector::parse(fields).map_err(|error| error.to_string())?,
            labels: labels::Selector::parse(labels).map_err(|error| error.to_string())?,
        })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let label = |name: &str| object["metadata"]["labels"][name].as_str();
        let mut fields = self.fields.requirements().iter();
        fields.all(|wanted| (text(object, &wanted.field) == wanted.value) != wanted.negated)
            && self.labels.matches_with(label)
    }
}

/// The value at a path such as `spec.nodeName`.
fn text(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |at, field| &at[field]) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_labels_are_compared() {
        let object = json!({"metadata": {"name": "a", "labels": {"x/y": "1"}}, "spec": {"all": true, "driver": "d"}});
        let check = |fields: &str, labels: &str, expected: Result<bool, &str>| {
            let got = Selector::parse(fields, labels).map(|selector| selector.matches(&object));
            match (got, expected) {
                (Ok(got), Ok(expected)) if got == expected => {}
                (Err(text), Err(part)) if text.contains(part) => {}
                (got, _) => panic!("{fields} {labels}: {got:?}, expected {expected:?}"),
            }
        };
        check("", "", Ok(true));
        check("spec.driver=d,spec.nodeName=", "", Ok(true));
        check("spec.driver==d,spec.nodeName!=", "", Ok(false));
        check("spec.all=true,metadata.name!=b", "x/y=1", Ok(true));
        check("", "x/y=2", Ok(false));
        check("", "x/y in (1)", Ok(true));
        check("", "x/y notin (1)", Ok(false));
        check("", "x/y in 1", Err("expected: '('"));
        check("spec.driver", "", Err("can't understand 'spec.driver'"));
    }
}
