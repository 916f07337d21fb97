//! Field selectors: `metadata.name=a,status.phase!=Running`.

use std::fmt;

/// Why a field selector cannot be read, with upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The part without an operator.
        term: String,
    },
    /// A backslash escapes a character that needs no escape.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A comma or equals sign in a value without a backslash.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
}

/// One condition on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// Path of the field, as in `metadata.name`.
    pub field: String,
    /// The value to compare with; an unset field is the empty string.
    pub value: String,
    /// Whether the field must differ from the value.
    pub negated: bool,
}

/// All conditions that an object must meet. The empty selector selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

impl FieldSelector {
    /// Parses the query form. Terms are kept in upstream's sort order.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::with_capacity(terms.len());
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (at, operator) = term
                .char_indices()
                .find_map(|(at, _)| {
                    ["!=", "==", "="]
                        .iter()
                        .find(|op| term[at..].starts_with(**op))
                        .map(|op| (at, *op))
                })
                .ok_or_else(|| ParseError::Term {
                    selector: text.to_owned(),
                    term: term.to_owned(),
                })?;
            let field = &term[..at];
            let value = unescape(&term[at + operator.len()..])?;
            // A term without field and value is ignored.
            if !field.is_empty() || !value.is_empty() {
                requirements.push(Requirement {
                    field: field.to_owned(),
                    value,
                    negated: operator == "!=",
                });
            }
        }
        Ok(Self { requirements })
    }

    /// These conditions, in the order in which they are given.
    pub fn as_given(requirements: Vec<Requirement>) -> Self {
        Self { requirements }
    }

    /// The conditions, all of which an object must satisfy.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The same conditions on fields of other names.
    pub fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        for requirement in &mut self.requirements {
            requirement.field = name(&requirement.field);
        }
        self
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that `field` must have, if the selector requires one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| !r.negated && r.field == field)
            .map(|r| r.value.as_str())
    }

    /// Whether an object with these field values is selected; `get` answers `None` for an unset field.
    pub fn matches<'a>(&self, mut get: impl FnMut(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|r| (get(&r.field).unwrap_or("") == r.value) != r.negated)
    }
}

impl std::str::FromStr for FieldSelector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if r.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", r.field, escape(&r.value))?;
        }
        Ok(())
    }
}

/// A value, escaped for a field selector.
pub fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape(text: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(ParseError::Escape(format!("\\{c}"))),
                None => return Err(ParseError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(ParseError::Unescaped(c as u32)),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn split_terms(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_matches() {
        let selector =
            FieldSelector::parse("spec.nodeName=n1,status.phase!=Running,metadata.name==a\\,b")
                .unwrap();
        assert_eq!(
            selector.to_string(),
            "metadata.name=a\\,b,spec.nodeName=n1,status.phase!=Running"
        );
        assert_eq!(FieldSelector::parse("=,b=").unwrap().to_string(), "b=");
        assert_eq!(selector.exact("spec.nodeName"), Some("n1"));
        let get = |field: &str| match field {
            "metadata.name" => Some("a,b"),
            "spec.nodeName" => Some("n1"),
            _ => None,
        };
        assert!(selector.matches(get));
        assert!(!selector.matches(|field| if field == "status.phase" {
            Some("Running")
        } else {
            get(field)
        }));
    }

    #[test]
    fn errors_are_upstreams() {
        let error = FieldSelector::parse("a=b,c").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid selector: 'a=b,c'; can't understand 'c'"
        );
        assert_eq!(
            FieldSelector::parse("a=b=c").unwrap_err(),
            ParseError::Unescaped(61)
        );
        assert_eq!(
            FieldSelector::parse("a=\\x").unwrap_err(),
            ParseError::Escape("\\x".to_owned())
        );
        assert!(FieldSelector::parse("").unwrap().is_empty());
    }
}
