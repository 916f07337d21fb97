//! `LabelSelector` of the API, as objects have it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Labels, Operator, ParseError, Requirement, Selector};
use crate::field::{self, Error as FieldError, ErrorList, Path};
use crate::names;
use crate::quote::quote;

/// The `LabelSelector` of the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub match_labels: Labels,
    /// Further conditions.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition of a [`LabelSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// The label that the condition is about.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values of `In` and `NotIn`.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub values: Vec<String>,
}

fn null_as_default<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

impl LabelSelector {
    /// Reads the JSON form.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, ParseError> {
        Self::deserialize(value).map_err(|error| ParseError(error.to_string()))
    }

    /// The selector, compiled for matching. An empty one selects everything; no selector at all (`None` in the object)
    /// selects nothing: use [`Selector::nothing`].
    pub fn to_selector(&self) -> Result<Selector, ParseError> {
        let mut requirements =
            Vec::with_capacity(self.match_labels.len() + self.match_expressions.len());
        for (key, value) in &self.match_labels {
            requirements.push(Requirement::new(
                key,
                Operator::Equals,
                vec![value.clone()],
            )?);
        }
        for expression in &self.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(ParseError(format!(
                        "{} is not a valid label selector operator",
                        quote(other)
                    )));
                }
            };
            requirements.push(Requirement::new(
                &expression.key,
                operator,
                expression.values.clone(),
            )?);
        }
        Ok(Selector::from_requirements(requirements))
    }

    /// The errors of the selector in an object (`ValidateLabelSelector`).
    pub fn validate(&self, path: &Path) -> ErrorList {
        let labels_path = path.child("matchLabels");
        let mut errors = ErrorList::new();
        for (key, value) in &self.match_labels {
            errors.extend(
                names::qualified_name(key)
                    .into_iter()
                    .map(|t| FieldError::invalid(&labels_path, key, t)),
            );
            errors.extend(
                names::label_value(value)
                    .into_iter()
                    .map(|t| FieldError::invalid(&labels_path, value, t)),
            );
        }
        for (i, expression) in self.match_expressions.iter().enumerate() {
            errors.extend(expression.validate(&path.child("matchExpressions").index(i)));
        }
        errors
    }
}

impl LabelSelectorRequirement {
    /// The errors of the requirement in an object (`ValidateLabelSelectorRequirement`).
    pub fn validate(&self, path: &Path) -> ErrorList {
        let mut errors = ErrorList::new();
        let values_path = path.child("values");
        match self.operator.as_str() {
            "In" | "NotIn" if self.values.is_empty() => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !self.values.is_empty() => {
                errors.push(FieldError::forbidden(
                    &values_path,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ))
            }
            "Exists" | "DoesNotExist" => {}
            other => {
                let bad = field::BadValue::from(other);
                errors.push(FieldError::invalid(
                    &path.child("operator"),
                    bad,
                    "not a valid selector operator",
                ));
            }
        }
        let key_path = path.child("key");
        errors.extend(
            names::qualified_name(&self.key)
                .into_iter()
                .map(|t| FieldError::invalid(&key_path, &self.key, t)),
        );
        for (i, value) in self.values.iter().enumerate() {
            let at = values_path.index(i);
            errors.extend(
                names::label_value(value)
                    .into_iter()
                    .map(|t| FieldError::invalid(&at, value, t)),
            );
        }
        errors
    }
}

/// A `LabelSelector` as the `String` method of Go's type prints it, from `matchLabels` and `matchExpressions`: the key, the
/// operator and the values, separated by spaces.
pub fn go_string<'a>(
    match_labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    match_expressions: impl IntoIterator<Item = (&'a str, &'a str, String)>,
) -> String {
    let labels = match_labels.into_iter();
    let labels: String = labels
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expressions = match_expressions
        .into_iter()
        .map(|(key, operator, values)| {
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
