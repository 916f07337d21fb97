//! Defaults have to be valid themselves: pruned, of the right type, and in accord with the rules.

use allot_apimachinery::field::{Error, ErrorList, Path, aggregate};
use serde_json::{Value, json};

use crate::{
    rules::Rules,
    structural::{
        MetaRule, Structural, prune_value, validate_default, validate_embedded, validate_object,
    },
};

/// Metadata in defaults is held to its types alone, which the schema knows.
const ANY_META: MetaRule = |_, _| ErrorList::new();

/// Errors of the defaults of a whole object's schema.
pub(super) fn errors(schema: &Structural, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    Walk {
        root: schema,
        whole: true,
        in_meta: false,
        around: Vec::new(),
    }
    .visit(schema, path, &mut errors);
    errors
}

/// Where a default stands.
struct Walk<'a> {
    /// The schema of the innermost object around it: the custom resource, or one inside of it.
    root: &'a Structural,
    /// The current schema is that root.
    whole: bool,
    /// Inside of the metadata, or the type, of that object.
    in_meta: bool,
    /// The way from that object to the place.
    around: Vec<Step<'a>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index,
}

impl<'a> Walk<'a> {
    fn visit(&self, schema: &'a Structural, path: &Path, errors: &mut ErrorList) {
        if schema.embedded && !self.whole {
            let inner = Walk {
                root: schema,
                whole: true,
                in_meta: false,
                around: Vec::new(),
            };
            return inner.visit(schema, path, errors);
        }
        if let Some(value) = schema.default.as_ref().filter(|value| !value.is_null()) {
            self.check(value, schema, &path.child("default"), errors);
        }
        // Keys of maps have no defaults: nothing tells which of them are missing.
        if let Some(items) = schema.items.as_deref() {
            self.below(Step::Index, self.in_meta)
                .visit(items, &path.child("items"), errors);
        }
        for (name, property) in &schema.properties {
            let meta = self.whole && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
            self.below(Step::Key(name), self.in_meta || meta).visit(
                property,
                &path.child("properties").key(name),
                errors,
            );
        }
    }

    fn below(&self, step: Step<'a>, in_meta: bool) -> Walk<'a> {
        let mut around = self.around.clone();
        around.push(step);
        Walk {
            root: self.root,
            whole: false,
            in_meta,
            around,
        }
    }

    fn check(&self, value: &Value, schema: &Structural, path: &Path, errors: &mut ErrorList) {
        let found = if self.in_meta {
            let object = self.object_around(value);
            let wrong = validate_object(&object, self.root, &Path::root(), ANY_META);
            match aggregate(&wrong) {
                Some(text) => {
                    let detail = format!("must result in valid metadata: {text}");
                    ErrorList::from([Error::invalid(path, value, detail)])
                }
                None => ErrorList::new(),
            }
        } else {
            let mut pruned = value.clone();
            prune_value(&mut pruned, schema);
            if pruned != *value {
                errors.push(Error::invalid(path, value, "must not have unknown fields"));
            }
            validate_embedded(value, schema, path, ANY_META)
        };
        if !found.is_empty() {
            errors.extend(found);
            return;
        }
        let invalid = validate_default(value, schema, path);
        if !invalid.is_empty() {
            errors.extend(invalid);
            return;
        }
        let Some(rules) = Rules::of(schema, self.whole) else {
            return;
        };
        let mut broken = rules.validate_unchanged(value, path);
        if broken.is_empty() {
            // Rules with an optional old value see it appear, too.
            broken = rules.validate(value, None, path);
        }
        errors.extend(broken);
    }

    /// The least object that has the value at this place.
    fn object_around(&self, value: &Value) -> Value {
        let wrap = |inner: Value, step: &Step<'_>| match step {
            Step::Key(name) => json!({ *name: inner }),
            Step::Index => json!([inner]),
        };
        let mut object = self.around.iter().rev().fold(value.clone(), wrap);
        for (key, stand_in) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
            if object[key].is_null() {
                object[key] = stand_in.into();
            }
        }
        object
    }
}
