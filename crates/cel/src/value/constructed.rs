//! Objects that expressions create, for use outside.

use serde_json::{Map as JsonMap, Value as Json};

use super::{Key, Map, MapKey, Value};
use crate::types::OPERATION;

/// The part of a value that JSON cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToJsonError {
    /// The key of a map is not a string.
    #[error("map key \"{key}\" is of type {ty}, not string")]
    Key {
        /// The key as text.
        key: String,
        /// The type of the key, as cel-go names it.
        ty: &'static str,
    },
    /// A value of a type that has no JSON form, such as a type or an authorizer.
    #[error("cannot convert value of type {ty} to JSON")]
    Type {
        /// The type, as cel-go names it.
        ty: &'static str,
    },
}

/// Created objects whose type names do not match the fields that they are in; one line for each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ObjectTypeError(String);

impl Value<'_> {
    /// The value as JSON.
    ///
    /// # Errors
    /// [`ToJsonError`] for a map key that is no string, and for a value of a type without a JSON form.
    pub fn to_json(&self) -> Result<Json, ToJsonError> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => (*value).into(),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::Double(value) => (*value).into(),
            Self::String(text) => (**text).into(),
            Self::List(list) => {
                let elements: Result<Vec<Json>, ToJsonError> =
                    list.iter().map(|element| element.to_json()).collect();
                elements?.into()
            }
            Self::Map(map) => {
                let mut object = JsonMap::new();
                for key in map.keys() {
                    let Self::String(name) = &key else {
                        return Err(ToJsonError::Key {
                            key: key.to_string(),
                            ty: key.go_type(),
                        });
                    };
                    let value = map.find(&key).unwrap_or(Value::Null);
                    object.insert(name.to_string(), value.to_json()?);
                }
                object.into()
            }
            Self::Optional(Some(inner)) => inner.to_json()?,
            Self::Quantity(_) | Self::Timestamp(_) | Self::Duration(_) => self.to_string().into(),
            other => {
                return Err(ToJsonError::Type {
                    ty: other.go_type(),
                });
            }
        })
    }

    /// Checks that created objects have the types of their fields: `Object.spec` for the field `spec` of an `Object`.
    ///
    /// # Errors
    /// [`ObjectTypeError`] with upstream's text.
    pub fn check_object_names(&self) -> Result<(), ObjectTypeError> {
        let mut errors = Vec::new();
        match self {
            // The value of an operation is whatever its path leads to.
            Self::Map(map @ Map::Object(name, _)) if **name == *OPERATION => {
                if let Some(value) = map.find_key(Key::new("value")) {
                    value.check_object_names()?;
                }
            }
            Self::Map(Map::Object(name, _)) => check(self, name, &mut errors),
            Self::List(list) => list.iter().try_for_each(|it| it.check_object_names())?,
            _ => {}
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ObjectTypeError(errors.join("\n")))
    }
}

fn check(value: &Value<'_>, path: &str, errors: &mut Vec<String>) {
    match value {
        Value::Map(Map::Object(name, fields)) => {
            if **name != *path {
                errors.push(format!(
                    "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object \
                     type"
                ));
            }
            for (key, value) in &**fields {
                let MapKey::String(key) = key else { continue };
                check(value, &format!("{path}.{key}"), errors);
            }
        }
        Value::Map(Map::Shared(entries)) => {
            entries
                .values()
                .for_each(|value| check(value, path, errors));
        }
        Value::List(list) => list.iter().for_each(|value| check(&value, path, errors)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        env::Env,
        program::{Limits, Program},
    };

    /// The result of an expression as JSON, or the error.
    fn make(expression: &str) -> Result<String, String> {
        let ast = Env::kubernetes().with_patches().compile(expression);
        let ast = ast.map_err(|error| error.to_string())?;
        let program = Program::new(&ast).map_err(|error| error.to_string())?;
        let outcome = program.evaluate(&[], &Limits::default());
        let value = outcome.result.map_err(|error| error.to_string())?;
        value
            .check_object_names()
            .map_err(|error| error.to_string())?;
        let json = value.to_json().map_err(|error| error.to_string())?;
        Ok(json.to_string())
    }

    #[test]
    fn objects_are_made_of_their_fields() {
        for (expression, expected) in [
            (
                "Object{spec: Object.spec{replicas: 3, ?paused: optional.none(), list: [Object.spec.list{a: 1u}]}}",
                r#"{"spec":{"list":[{"a":1}],"replicas":3}}"#,
            ),
            (
                "Object{metadata: Object.metadata{labels: {'a': 'b'}}}.metadata.labels.a",
                r#""b""#,
            ),
            (
                "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: {'x': true}}]",
                r#"[{"op":"add","path":"/metadata/labels/a~1b~0c","value":{"x":true}}]"#,
            ),
            (
                "Object{a: 1} == Object{a: 1} && Object{a: 1} != dyn(Object.b{a: 1})",
                "true",
            ),
        ] {
            assert_eq!(make(expression).as_deref(), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn mistakes_in_objects_are_told() {
        for (expression, expected) in [
            (
                "JSONPatch{op: 1}",
                "expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            ("JSONPatch{where: 'x'}", "undefined field 'where'"),
            ("Other{}", "undeclared reference to 'Other'"),
            (
                "Object{spec: Object.wrong{}}",
                "unexpected type name \"Object.wrong\", expected \"Object.spec\", which matches field name path from root \
                 Object type",
            ),
            (
                "[JSONPatch{op: 'add', path: '/spec', value: Object.spec{a: Object.b{}}}]",
                "unexpected type name \"Object.b\", expected \"Object.spec.a\"",
            ),
            (
                "Object{labels: {1: 'a'}}",
                "map key \"1\" is of type types.Int, not string",
            ),
        ] {
            let error = make(expression).unwrap_err();
            assert!(error.contains(expected), "{expression}: {error}");
        }
        let plain = Env::kubernetes().compile("Object{}").map(|_| ());
        assert!(
            plain
                .unwrap_err()
                .to_string()
                .contains("undeclared reference to 'Object'")
        );
    }
}
