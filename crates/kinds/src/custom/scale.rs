//! The scale subresource of custom resources.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_schema::merge::{go_type, go_value};
use serde_json::{Value, json};

use super::text;
use crate::object::scale_metadata;
use crate::request::Part;

/// The paths of the scale fields in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    spec_replicas: String,
    status_replicas: String,
    label_selector: Option<String>,
}

impl Scale {
    /// Reads `subresources.scale`.
    pub(super) fn of(declared: &Value) -> Option<Self> {
        declared.is_object().then(|| Self {
            spec_replicas: text(declared, "specReplicasPath").to_owned(),
            status_replicas: text(declared, "statusReplicasPath").to_owned(),
            label_selector: declared["labelSelectorPath"].as_str().map(str::to_owned),
        })
    }

    /// The scale of an object; `None` if it has no number of replicas.
    pub fn read(&self, object: &Value) -> Option<Value> {
        let replicas = at(object, &self.spec_replicas)?.as_i64()?;
        let count = at(object, &self.status_replicas)
            .and_then(Value::as_i64)
            .unwrap_or_default();
        let mut status = json!({"replicas": count});
        let selector = self
            .label_selector
            .as_deref()
            .and_then(|path| at(object, path)?.as_str());
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = selector.into();
        }
        Some(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": scale_metadata(object),
            "spec": if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) }, "status": status,
        }))
    }

    /// The path of the desired number, such as `.spec.replicas`.
    pub fn replicas_path(&self) -> &str {
        &self.spec_replicas
    }

    /// Writes the desired number into an object.
    pub fn write(&self, object: &mut Value, replicas: i64) {
        let mut place = object;
        for key in self.spec_replicas.trim_start_matches('.').split('.') {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[key];
        }
        *place = replicas.into();
    }

    /// Errors in the fields that the scale reads.
    pub(super) fn validate(&self, object: &Value, part: Part) -> ErrorList {
        let mut errors = ErrorList::new();
        if part != Part::Status {
            check_count(object, &self.spec_replicas, &mut errors);
        }
        check_count(object, &self.status_replicas, &mut errors);
        if let Some(path) = &self.label_selector
            && let Err(error) = find(object, path).and_then(|value| match value {
                Some(value) if !value.is_string() => Err(TypeError::new(path, value, "string")),
                _ => Ok(()),
            })
        {
            errors.push(Error::invalid(&Path::new(path), "", error.to_string()));
        }
        errors
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(object, |value, key| value.get(key))
}

/// The value at a path; `None` if it does not exist.
///
/// # Errors
/// A value on the way is neither an object nor null.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, TypeError> {
    let mut place = object;
    let mut passed = String::new();
    for key in path.trim_start_matches('.').split('.') {
        passed = format!("{passed}.{key}");
        match place {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(key) {
                Some(value) => place = value,
                None => return Ok(None),
            },
            other => return Err(TypeError::new(&passed, other, "map[string]interface{}")),
        }
    }
    Ok(Some(place))
}

fn check_count(object: &Value, path: &str, errors: &mut ErrorList) {
    let field = Path::new(path);
    match find(object, path) {
        Err(error) => errors.push(Error::invalid(&field, 0, error.to_string())),
        Ok(None) => {}
        Ok(Some(value)) => match value.as_i64() {
            None => {
                let error = TypeError::new(path, value, "int64");
                errors.push(Error::invalid(&field, 0, error.to_string()));
            }
            Some(count) if count < 0 => errors.push(Error::invalid(
                &field,
                count,
                "should be a non-negative integer",
            )),
            Some(count) if count > i64::from(i32::MAX) => {
                errors.push(Error::invalid(
                    &field,
                    count,
                    format!("should be less than or equal to {}", i32::MAX),
                ));
            }
            Some(_) => {}
        },
    }
}

/// A field has a value of another type than expected; the text is that of upstream's accessors of unstructured objects.
#[derive(Debug, thiserror::Error)]
#[error("{path} accessor error: {value} is of the type {found}, expected {expected}")]
struct TypeError {
    path: String,
    /// The value as Go prints it.
    value: String,
    /// The Go type of the value.
    found: &'static str,
    expected: &'static str,
}

impl TypeError {
    fn new(path: &str, value: &Value, expected: &'static str) -> Self {
        let dot = if path.starts_with('.') { "" } else { "." };
        Self {
            path: format!("{dot}{path}"),
            value: go_value(value),
            found: go_type(value),
            expected,
        }
    }
}
