//! Field and label selectors, as far as they compare with one value.

use serde_json::Value;

/// One comparison: whether it is about labels, the field or label, the value, and whether they have to be equal.
type Comparison = (bool, String, String, bool);

/// What a list or watch selects.
#[derive(Debug, Default)]
pub(super) struct Selector(Vec<Comparison>);

impl Selector {
    /// Reads both selectors. Any field can be selected; an absent one is an empty text.
    ///
    /// # Errors
    /// A comparison with a set of values, or none at all.
    pub(super) fn parse(fields: &str, labels: &str) -> Result<Self, String> {
        let mut comparisons = Vec::new();
        for (is_label, text) in [(false, fields), (true, labels)] {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
                    (name, value, false)
                } else if let Some((name, value)) = part.split_once("==") {
                    (name, value, true)
                } else if let Some((name, value)) = part.split_once('=') {
                    (name, value, true)
                } else {
                    return Err(format!("selector {part:?} is not known to this test API"));
                };
                let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
                comparisons.push((is_label, name, value, equal));
            }
        }
        Ok(Self(comparisons))
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(is_label, name, value, equal)| {
            let found = match is_label {
                true => object["metadata"]["labels"].get(name),
                false => {
                    let mut at = Some(object);
                    for field in name.split('.') {
                        at = at.and_then(|object| object.get(field));
                    }
                    at
                }
            };
            let found = match found {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(),
            };
            (found == *value) == *equal
        })
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
        check("", "x/y in (1)", Err("x/y in (1)"));
    }
}
