//! Label selectors: kubectl's string form and the `LabelSelector` of the API.

use std::{collections::BTreeMap, fmt};

use crate::field::{self, Error as FieldError, ErrorList, Path};
use crate::names;

mod label_selector;
mod parse;

pub use label_selector::{LabelSelector, LabelSelectorRequirement, go_string};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Why a selector is refused, with upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub(crate) String);

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The value is one of the given.
    In,
    /// The label is unset or its value is none of the given.
    NotIn,
    /// The value equals the given (`=`).
    Equals,
    /// The value equals the given (`==`).
    DoubleEquals,
    /// The label is unset or differs.
    NotEquals,
    /// The label is set.
    Exists,
    /// The label is not set.
    DoesNotExist,
    /// The value is an integer greater than the given.
    GreaterThan,
    /// The value is an integer smaller than the given.
    LessThan,
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// A validated requirement; the values are sorted and made unique as upstream's parser does. Fails with upstream's
    /// text when key, operator and values are not compatible.
    pub fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, ParseError> {
        let path = Path::root();
        let mut errors = ErrorList::new();
        let key_problems = names::qualified_name(key);
        if !key_problems.is_empty() {
            errors.push(FieldError::invalid(
                &path.child("key"),
                key,
                key_problems.join("; "),
            ));
        }
        let values_path = path.child("values");
        let shown = || field::BadValue::from(&serde_json::Value::from(values.clone()));
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let text = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(FieldError::invalid(&values_path, shown(), text));
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals
                if values.len() != 1 =>
            {
                let text = "exact-match compatibility requires one single value";
                errors.push(FieldError::invalid(&values_path, shown(), text));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let text = "values set must be empty for exists and does not exist";
                errors.push(FieldError::invalid(&values_path, shown(), text));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    let text = "for 'Gt', 'Lt' operators, exactly one value is required";
                    errors.push(FieldError::invalid(&values_path, shown(), text));
                }
                for (i, value) in values
                    .iter()
                    .enumerate()
                    .filter(|(_, value)| value.parse::<i64>().is_err())
                {
                    let text = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(FieldError::invalid(&values_path.index(i), value, text));
                }
            }
            _ => {}
        }
        for (i, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let at = values_path.index(i).key(key);
                errors.push(FieldError::invalid(&at, value, problems.join("; ")));
            }
        }
        if let Some(text) = field::aggregate(&errors) {
            return Err(ParseError(text));
        }
        values.sort_unstable();
        values.dedup();
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }

    /// As [`Self::new`], but the values stay as they are given: access reviews are passed on so.
    pub fn as_given(
        key: &str,
        operator: Operator,
        values: Vec<String>,
    ) -> Result<Self, ParseError> {
        let checked = Self::new(key, operator, values.clone())?;
        Ok(Self { values, ..checked })
    }

    /// Label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the value of the label is compared with [`Self::values`].
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, sorted unless the requirement was made by [`Self::as_given`].
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether a label with this value (`None` = unset) meets the requirement.
    pub fn matches_value(&self, value: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(has),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let (Some(Ok(left)), [right]) = (value.map(str::parse::<i64>), &self.values[..])
                else {
                    return false;
                };
                let Ok(right) = right.parse::<i64>() else {
                    return false;
                };
                if self.operator == Operator::GreaterThan {
                    left > right
                } else {
                    left < right
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A selector ready for matching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// `None` selects nothing at all.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Selects everything.
    pub fn everything() -> Self {
        Self {
            requirements: Some(Vec::new()),
        }
    }

    /// Selects nothing.
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Reads kubectl's form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`. The empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text).map(Self::from_requirements)
    }

    /// All of `requirements`, sorted by key.
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            requirements: Some(requirements),
        }
    }

    /// All of `requirements`, in the order in which they are given.
    pub fn as_given(requirements: Vec<Requirement>) -> Self {
        Self {
            requirements: Some(requirements),
        }
    }

    /// Whether every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// The requirements; empty if the selector selects nothing.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Like [`Self::matches`], for labels in another form.
    pub fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .as_ref()
            .is_some_and(|all| all.iter().all(|r| r.matches_value(get(&r.key))))
    }
}

impl std::str::FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements().iter().enumerate() {
            write!(f, "{}{requirement}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
