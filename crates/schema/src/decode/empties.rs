//! Lists and maps that were sent without elements. The encoder leaves them out as if they were absent, but validation
//! tells them apart: in Go they are not nil.

use serde_json::{Value, json};

use super::outcome::Empty;
use super::shape::{self, is_empty_collection};
use crate::types::{Struct, Type};

/// The maximum number that is remembered of an object. The rest of a longer list is treated as absent.
const MAX: usize = 256;

/// Takes empty lists and maps out of an object that was decoded with them.
pub(super) fn take(value: &mut Value, structure: &'static Struct) -> Vec<Empty> {
    let mut found = Vec::new();
    in_struct(value, structure, &mut String::new(), &mut found);
    shape::normalize(value, structure);
    found
}

fn in_struct(value: &Value, structure: &'static Struct, path: &mut String, found: &mut Vec<Empty>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(field) = structure.field(name)
            && found.len() < MAX
        {
            below(path, name, |path| match is_empty_collection(field, value) {
                true => found.push(Empty {
                    pointer: path.clone(),
                    value: match field.ty {
                        Type::Map(_) => json!({}),
                        _ => json!([]),
                    },
                }),
                false => inside(value, &field.ty, path, found),
            });
        }
    }
}

fn inside(value: &Value, ty: &Type, path: &mut String, found: &mut Vec<Empty>) {
    match (ty, value) {
        (Type::Struct(id), value) => in_struct(value, id.get(), path, found),
        (Type::List(element), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                below(path, &index.to_string(), |path| {
                    inside(item, element, path, found);
                });
            }
        }
        (Type::Map(element), Value::Object(map)) => {
            for (key, item) in map {
                below(path, key, |path| inside(item, element, path, found));
            }
        }
        _ => {}
    }
}

/// Runs `work` with a key added to the path.
fn below(path: &mut String, key: &str, work: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
    work(path);
    path.truncate(length);
}
