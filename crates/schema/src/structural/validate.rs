//! Value validation with upstream's texts.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use serde_json::Value;

use super::{Additional, Structural, format};

/// Checks a value. `path` leads to it; `name` is what the texts call it, which is relative to where validation began.
pub fn validate(value: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    Check {
        old: None,
        path: path.clone(),
        name: String::new(),
    }
    .run(value, schema, &mut errors);
    errors
}

/// As [`validate`] for an update: parts that did not change are not checked again.
pub fn validate_update(value: &Value, old: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    Check {
        old: Some(old),
        path: path.clone(),
        name: String::new(),
    }
    .run(value, schema, &mut errors);
    errors
}

/// The place that is checked.
#[derive(Clone)]
struct Check<'a> {
    /// The value before the update, where it can be told which one it was.
    old: Option<&'a Value>,
    path: Path,
    name: String,
}

impl<'a> Check<'a> {
    fn child(&self, key: &str) -> Check<'a> {
        Check {
            old: self.old.and_then(|old| old.get(key)),
            path: self.path.child(key),
            name: if self.name.is_empty() {
                key.to_owned()
            } else {
                format!("{}.{key}", self.name)
            },
        }
    }

    /// Elements are told apart by key in lists of type `map`, and have no old value otherwise.
    fn item(&self, index: usize, item: &Value, schema: &Structural) -> Check<'a> {
        let old = self
            .old
            .and_then(Value::as_array)
            .filter(|_| schema.list_type == "map")
            .and_then(|old| {
                old.iter().find(|other| {
                    schema
                        .list_map_keys
                        .iter()
                        .all(|key| other.get(key) == item.get(key))
                })
            });
        Check {
            old,
            path: self.path.index(index),
            name: format!("{}[{index}]", self.name),
        }
    }

    fn run(&self, value: &Value, schema: &Structural, errors: &mut ErrorList) {
        if self.old.is_some_and(|old| old == value) {
            return;
        }
        self.check_type(value, schema, errors);
        if !value.is_null() {
            self.check_junctors(value, schema, errors);
            match value {
                Value::String(text) => self.check_string(text, schema, errors),
                Value::Number(number) => {
                    self.check_number(value, number.as_f64().unwrap_or_default(), schema, errors)
                }
                Value::Array(items) => self.check_list(items, schema, errors),
                Value::Object(map) => self.check_object(map, schema, errors),
                _ => {}
            }
        }
        if let Some(allowed) = &schema.checks.allowed
            && !allowed.contains(value)
            && !(value.is_null() && schema.nullable)
        {
            let names: Vec<String> = allowed
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
                .collect();
            errors.push(Error::not_supported(&self.path, value, &names));
        }
    }

    fn invalid(&self, value: impl Into<BadValue>, text: &str) -> Error {
        Error::invalid(&self.path, value, format!("{} in body {text}", self.name))
    }

    fn check_type(&self, value: &Value, schema: &Structural, errors: &mut ErrorList) {
        let expected: &str = if schema.int_or_string {
            "integer,string"
        } else {
            &schema.ty
        };
        if expected.is_empty() {
            return;
        }
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number)
                if number.is_f64() && number.as_f64().is_some_and(|f| f.fract() != 0.0) =>
            {
                "number"
            }
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = match found {
            "null" => schema.nullable,
            "integer" => expected == "number" || expected.split(',').any(|ty| ty == "integer"),
            found => expected.split(',').any(|ty| ty == found),
        };
        if !fits {
            let detail = format!(
                "{} in body must be of type {expected}: {found:?}",
                self.name
            );
            errors.push(Error::type_invalid(&self.path, found, detail));
        }
    }

    fn check_string(&self, text: &str, schema: &Structural, errors: &mut ErrorList) {
        let checks = &schema.checks;
        let length = text.chars().count() as u64;
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            errors.push(Error::too_long(&self.path, max as usize));
        } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
            errors.push(self.invalid(text, &format!("should be at least {min} chars long")));
        } else if !checks.pattern.is_empty() && !format::matches(&checks.pattern, text) {
            errors.push(self.invalid(text, &format!("should match '{}'", checks.pattern)));
        }
        if !checks.format.is_empty() && !format::check(&checks.format, text) {
            let detail = format!(
                "{} in body must be of type {}: {text:?}",
                self.name, checks.format
            );
            errors.push(Error::type_invalid(&self.path, text, detail));
        }
    }

    fn check_number(
        &self,
        value: &Value,
        number: f64,
        schema: &Structural,
        errors: &mut ErrorList,
    ) {
        let checks = &schema.checks;
        if let Some(factor) = checks
            .multiple_of
            .filter(|factor| *factor > 0.0 && (number / factor).fract().abs() > 1e-9)
        {
            errors.push(self.invalid(value, &format!("should be a multiple of {factor}")));
        }
        match checks.maximum {
            Some((max, false)) if number > max => {
                errors.push(self.invalid(value, &format!("should be less than or equal to {max}")));
            }
            Some((max, true)) if number >= max => {
                errors.push(self.invalid(value, &format!("should be less than {max}")));
            }
            _ => {}
        }
        match checks.minimum {
            Some((min, false)) if number < min => {
                errors.push(
                    self.invalid(value, &format!("should be greater than or equal to {min}")),
                );
            }
            Some((min, true)) if number <= min => {
                errors.push(self.invalid(value, &format!("should be greater than {min}")));
            }
            _ => {}
        }
        let whole = number.fract() == 0.0;
        let out_of_range = match checks.format.as_str() {
            "int32" => whole && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
            _ => false,
        };
        if out_of_range {
            errors.push(self.invalid(
                value,
                &format!("must be of type {}: {value}", checks.format),
            ));
        }
    }

    fn check_list(&self, items: &[Value], schema: &Structural, errors: &mut ErrorList) {
        if let Some(element) = &schema.items {
            for (index, item) in items.iter().enumerate() {
                self.item(index, item, schema).run(item, element, errors);
            }
        }
        let count = items.len() as u64;
        if let Some(min) = schema.checks.min_items.filter(|min| count < *min) {
            errors.push(self.invalid(count, &format!("should have at least {min} items")));
        }
        if let Some(max) = schema.checks.max_items.filter(|max| count > *max) {
            errors.push(Error::too_many(&self.path, items.len(), max as usize));
        }
        if schema.checks.unique_items && (1..items.len()).any(|n| items[..n].contains(&items[n])) {
            errors.push(self.invalid("", "shouldn't contain duplicates"));
        }
    }

    fn check_object(
        &self,
        map: &serde_json::Map<String, Value>,
        schema: &Structural,
        errors: &mut ErrorList,
    ) {
        let checks = &schema.checks;
        let count = map.len() as u64;
        if let Some(min) = checks.min_properties.filter(|min| count < *min) {
            errors.push(self.invalid(count, &format!("should have at least {min} properties")));
        } else if let Some(max) = checks.max_properties.filter(|max| count > *max) {
            errors.push(Error::too_many(&self.path, map.len(), max as usize));
        }
        for name in &checks.required {
            if !map.contains_key(name) {
                errors.push(Error::required(&self.path.child(name), ""));
            }
        }
        for (key, value) in map {
            if let Some(property) = schema.properties.get(key) {
                self.child(key).run(value, property, errors);
            } else if let Additional::Schema(sub) = &schema.additional {
                self.child(key).run(value, sub, errors);
            }
        }
    }

    fn check_junctors(&self, value: &Value, schema: &Structural, errors: &mut ErrorList) {
        let checks = &schema.checks;
        let failures = |sub: &Structural| {
            let mut errors = ErrorList::new();
            self.run(value, sub, &mut errors);
            errors
        };
        // Texts about junctors name the place; the field of the error is where validation began.
        let whole = |text: String| Error::invalid(&self.base(), "", text);
        if !checks.any_of.is_empty() {
            let all: Vec<ErrorList> = checks.any_of.iter().map(failures).collect();
            if all.iter().all(|errors| !errors.is_empty()) {
                errors.push(whole(format!(
                    "{:?} must validate at least one schema (anyOf)",
                    self.name
                )));
                errors.extend(best(all));
            }
        }
        if !checks.one_of.is_empty() {
            let all: Vec<ErrorList> = checks.one_of.iter().map(failures).collect();
            let valid = all.iter().filter(|errors| errors.is_empty()).count();
            if valid != 1 {
                let why = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                errors.push(whole(format!(
                    "{:?} must validate one and only one schema (oneOf). {why}",
                    self.name
                )));
                if valid == 0 {
                    errors.extend(best(all));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let all: Vec<ErrorList> = checks.all_of.iter().map(failures).collect();
            let valid = all.iter().filter(|errors| errors.is_empty()).count();
            if valid != all.len() {
                let why = if valid == 0 { ". None validated" } else { "" };
                errors.extend(all.into_iter().flatten());
                errors.push(whole(format!(
                    "{:?} must validate all the schemas (allOf){why}",
                    self.name
                )));
            }
        }
        if let Some(not) = &checks.not
            && failures(not).is_empty()
        {
            errors.push(whole(format!(
                "{:?} must not validate the schema (not)",
                self.name
            )));
        }
    }

    /// The path at which validation began.
    fn base(&self) -> Path {
        let text = self.path.as_str();
        let base = text
            .strip_suffix(&self.name)
            .unwrap_or(text)
            .trim_end_matches('.');
        if base.is_empty() {
            Path::new("<nil>")
        } else {
            Path::new(base)
        }
    }
}

/// Of several ways to fail, the one that came furthest: with the fewest errors.
fn best(all: Vec<ErrorList>) -> ErrorList {
    all.into_iter().min_by_key(Vec::len).unwrap_or_default()
}
